//! Neighbours: processes of one host and user that reach each other without the socket.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Instant as StdInstant;

use landfall_placement::{Check, Landing, PathId, Peer, RegionId, Span};
use landfall_testbed::privileges::is_root;
use landfall_testkit::engines::numbered::Config;
use landfall_testkit::skip_unless;
use landfall_testkit::trials::{count_kills, kills};
use landfall_transport::memory::{Arena, ArenaConfig, Memory, Regions, Rights};
use landfall_transport::udp::{UdpConfig, UdpDriver};
use landfall_transport::{Clock, Driver, Feature};

use crate::support::transfer::{End, PATIENT, SIZES, messages, run_to_the_end, start};
use crate::support::{
    PATIENCE, Scripted, assert_same, become_nobody, contents, pattern, place_as_labelled,
};

fn anywhere() -> UdpConfig {
    UdpConfig::discover(([127, 0, 0, 1], 0).into())
}

fn open(config: UdpConfig, regions: &Regions) -> UdpDriver {
    UdpDriver::open(PathId(3), config, regions).unwrap()
}

/// Two ends that have exchanged messages, which makes them meet.
fn ends(configs: [UdpConfig; 2], unit: u32, clock: &Clock) -> [End<UdpDriver>; 2] {
    let config = Config { unit, ..PATIENT };
    let total = SIZES.iter().sum::<usize>();
    let memories = [messages(), vec![0; total]];
    let mut seed = 0;
    std::array::from_fn(|at| {
        let regions = Regions::new(64);
        let driver = open(configs[at], &regions);
        seed += 1;
        End::new(driver, regions, &memories[at], config, seed, clock)
    })
}

/// Turns until they have met.
#[track_caller]
fn meet(a: &mut End<UdpDriver>, b: &mut End<UdpDriver>, clock: &Clock) {
    let deadline = clock.now() + PATIENCE;
    while (a.driver.neighbours(), b.driver.neighbours()) != (1, 1) {
        assert!(clock.now() < deadline, "they do not meet");
        a.driver.turn(&mut a.engine, clock.now()).unwrap();
        b.driver.turn(&mut b.engine, clock.now()).unwrap();
    }
}

#[test]
fn messages_between_neighbours_take_no_socket() {
    for unit in [1024, 60_000] {
        let clock = Clock::start();
        let [mut a, mut b] = ends([anywhere(); 2], unit, &clock);
        let peer = Peer::Socket(b.driver.local_address());
        start(&mut a, &mut b, peer, &clock);
        run_to_the_end(&mut a, &mut b, &clock);
        meet(&mut a, &mut b, &clock);
        let before = [*a.driver.counters(), *b.driver.counters()];
        (a.sent, b.received) = (0, Vec::new());
        start(&mut a, &mut b, peer, &clock);
        run_to_the_end(&mut a, &mut b, &clock);
        let after = [*a.driver.counters(), *b.driver.counters()];
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(after.send_calls, before.send_calls, "by the socket");
            assert_eq!(after.receive_calls, before.receive_calls);
            assert_eq!((after.malformed, after.misplaced, after.send_failed), (0, 0, 0));
        }
        assert!(after[1].units_received > before[1].units_received);
        let total = SIZES.iter().sum::<usize>() as u64;
        assert_eq!(after[1].payload_bytes - before[1].payload_bytes, total);
        assert_eq!(after[1].bytes_copied - before[1].bytes_copied, total, "one copy");
        assert_same(&b.contents(), &messages());
    }
}

#[test]
fn what_is_switched_off_on_either_side_takes_the_socket() {
    for off in [0, 1] {
        let clock = Clock::start();
        let mut configs = [anywhere(); 2];
        configs[off].same_host = false;
        let [mut a, mut b] = ends(configs, 1024, &clock);
        assert!(![&a, &b][off].driver.capabilities().has(Feature::SameHost));
        let peer = Peer::Socket(b.driver.local_address());
        start(&mut a, &mut b, peer, &clock);
        run_to_the_end(&mut a, &mut b, &clock);
        for _ in 0..200 {
            a.driver.turn(&mut a.engine, clock.now()).unwrap();
            b.driver.turn(&mut b.engine, clock.now()).unwrap();
        }
        assert_eq!((a.driver.neighbours(), b.driver.neighbours()), (0, 0));
        assert_same(&b.contents(), &messages());
    }
}

#[test]
fn a_neighbour_is_found_behind_the_address_of_all_interfaces() {
    let clock = Clock::start();
    let any = |address: &str| UdpConfig::discover(address.parse().unwrap());
    for configs in [
        [any("0.0.0.0:0"), any("0.0.0.0:0")],
        [any("127.0.0.1:0"), any("[::]:0")],
        [any("[::1]:0"), any("[::]:0")],
    ] {
        let [mut a, mut b] = ends(configs, 8192, &clock);
        let loopback = if configs[0].bind.is_ipv4() { "127.0.0.1" } else { "::1" };
        let to = SocketAddr::new(loopback.parse().unwrap(), b.driver.local_address().port());
        start(&mut a, &mut b, Peer::Socket(to), &clock);
        run_to_the_end(&mut a, &mut b, &clock);
        meet(&mut a, &mut b, &clock);
        (a.sent, b.received) = (0, Vec::new());
        start(&mut a, &mut b, Peer::Socket(to), &clock);
        run_to_the_end(&mut a, &mut b, &clock);
        assert_same(&b.contents(), &messages());
    }
}

#[test]
fn a_process_of_another_user_is_no_neighbour() {
    skip_unless!((!is_root()).then(|| "needs root to be two users".to_owned()));
    let clock = Clock::start();
    let [mut a, mut b] = std::thread::scope(|scope| {
        let ends = scope.spawn(|| {
            let mine = ends([anywhere(); 2], 1024, &clock);
            let [a, _] = mine;
            become_nobody();
            let [_, b] = ends([anywhere(); 2], 1024, &clock);
            [a, b]
        });
        ends.join().unwrap()
    });
    assert!(b.driver.capabilities().has(Feature::SameHost));
    let peer = Peer::Socket(b.driver.local_address());
    start(&mut a, &mut b, peer, &clock);
    let deadline = clock.now() + PATIENCE;
    while a.sent < SIZES.len() || b.received.len() < SIZES.len() {
        assert!(clock.now() < deadline, "stuck");
        a.driver.turn(&mut a.engine, clock.now()).unwrap();
        a.events();
        // A thread that is another user: the kernel judges by who makes the call.
        std::thread::scope(|scope| {
            let turn = scope.spawn(|| {
                become_nobody();
                b.driver.turn(&mut b.engine, clock.now()).unwrap();
            });
            turn.join().unwrap();
        });
        b.events();
    }
    assert_eq!((a.driver.neighbours(), b.driver.neighbours()), (0, 0));
    assert_same(&b.contents(), &messages());
}

/// A driver that sends what a test tells it, and one that puts it into a region.
struct Pair {
    clock: Clock,
    sender: (UdpDriver, Scripted, Regions),
    receiver: (UdpDriver, Scripted, Regions),
    target: RegionId,
}

/// How long the region of the receiver is.
const TARGET: usize = 1 << 20;

impl Pair {
    /// They have met.
    fn met(check: Check) -> Self {
        Self::met_at(anywhere(), check)
    }

    /// The same, with the receiver there.
    fn met_at(receiver: UdpConfig, check: Check) -> Self {
        let (regions, other) = (Regions::new(64), Regions::new(64));
        let target = other.lend(Memory::zeroed(TARGET), Rights::WRITE | Rights::READ).unwrap();
        let place = Scripted::new(move |unit, into| place_as_labelled(target, unit, into, check));
        let mut pair = Self {
            clock: Clock::start(),
            sender: (open(anywhere(), &regions), Scripted::sender(), regions),
            receiver: (open(receiver, &other), place, other),
            target,
        };
        pair.meet();
        pair
    }

    fn peer(&self) -> Peer {
        Peer::Socket(self.receiver.0.local_address())
    }

    fn turn(&mut self) {
        let now = self.clock.now();
        let (driver, engine, _) = &mut self.sender;
        driver.turn(engine, now).unwrap();
        let (driver, engine, _) = &mut self.receiver;
        driver.turn(engine, now).unwrap();
    }

    /// Turns until the condition holds.
    #[track_caller]
    fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let deadline = StdInstant::now() + PATIENCE;
        while !done(self) {
            assert!(StdInstant::now() < deadline, "{what}: {:?}", self.receiver.0.counters());
            self.turn();
        }
    }

    fn meet(&mut self) {
        let to = self.peer();
        self.sender.1.send(to, b"Hello!".to_vec(), &[]);
        self.until("the first packet takes the socket", |pair| !pair.receiver.1.seen.is_empty());
        self.until("they meet", |pair| {
            (pair.sender.0.neighbours(), pair.receiver.0.neighbours()) == (1, 1)
        });
        self.receiver.1.seen.clear();
        self.sender.1.sent.clear();
    }

    /// Sends a message in labelled units; gives what arrived in its place.
    fn carry(&mut self, message: Span, unit: u32) -> Vec<u8> {
        let to = self.peer();
        self.sender.1.send_labelled(to, message, unit);
        let units = message.len.div_ceil(unit) as usize;
        self.receiver.1.landings.clear();
        self.sender.1.sent.clear();
        self.until("all units arrive", |pair| pair.receiver.1.landings.len() == units);
        self.until("all memory is free", |pair| pair.sender.1.sent.len() == units);
        let landed = |(_, landing): &(_, Landing)| *landing == Landing::Unchecked;
        assert!(self.receiver.1.landings.iter().all(landed), "{:?}", self.receiver.1.landings);
        let mut bytes = vec![0; message.len as usize];
        self.receiver.2.read(&self.target.span(0, message.len), &mut bytes).unwrap();
        bytes
    }
}

#[test]
fn payloads_of_every_length_come_from_every_memory() {
    let mut pair = Pair::met(Check::None);
    let arena = Arena::new(ArenaConfig { same_host: true, ..ArenaConfig::default() });
    let private = Arena::new(ArenaConfig::default());
    let calls = pair.sender.0.counters().send_calls;
    for (memory, salt) in [
        (Memory::zeroed(TARGET), 1),
        (arena.take(TARGET).unwrap(), 2),
        (private.take(TARGET).unwrap(), 3),
        // A second chunk of the same arena, and the first again.
        (arena.take(20 << 20).unwrap(), 4),
        (arena.take(TARGET).unwrap(), 5),
    ] {
        let mut memory = memory;
        let bytes = pattern(TARGET, salt);
        memory[..TARGET].copy_from_slice(&bytes);
        let region = pair.sender.2.lend(memory, Rights::READ).unwrap();
        for unit in [1, 8, 77, 2048, 2049, 4096, 65_000] {
            let len = TARGET.min(unit * 61);
            // Not where a word or a page begins.
            for offset in [0, 3, 4096 - 8] {
                let len = len - offset.min(len - 1);
                let arrived = pair.carry(region.span(offset as u64, len as u32), unit as u32);
                assert_same(&arrived, &bytes[offset..offset + len]);
            }
        }
        pair.sender.2.take_back(region).expect("nobody holds it");
    }
    assert_eq!(pair.sender.0.counters().send_calls, calls, "by the socket");
}

#[test]
fn a_chunk_that_is_given_back_is_not_found_at_its_address_any_more() {
    let mut pair = Pair::met(Check::None);
    let arena = Arena::new(ArenaConfig { same_host: true, ..ArenaConfig::default() });
    // More than files are known at a time.
    for round in 0..80 {
        let mut memory = arena.take(1 << 16).unwrap();
        let bytes = pattern(1 << 16, round);
        memory.copy_from_slice(&bytes);
        let region = pair.sender.2.lend(memory, Rights::READ).unwrap();
        assert_same(&pair.carry(region.span(0, 1 << 16), 32_768), &bytes);
        drop(pair.sender.2.take_back(region).unwrap());
        arena.trim();
        assert_eq!(arena.mapped_bytes(), 0);
    }
}

#[test]
fn what_has_to_be_summed_is_summed_before_it_is_placed() {
    // The sum over a payload of zeros, and one that is wrong.
    let sum = |seed| Check::InternetSum { from: 8, len: 5000, seed };
    let mut pair = Pair::met(sum(0xffff));
    let region = pair.sender.2.lend(Memory::zeroed(5000), Rights::READ).unwrap();
    assert_same(&pair.carry(region.span(0, 5000), 5000), &[0; 5000]);
    let mut pair = Pair::met(sum(0x1234));
    let region = pair.sender.2.lend(Memory::from_bytes(&[7; 5000]), Rights::READ).unwrap();
    let to = pair.peer();
    pair.sender.1.send_labelled(to, region.span(0, 5000), 5000);
    pair.until("it is looked at", |pair| !pair.receiver.1.landings.is_empty());
    assert_eq!(pair.receiver.1.landings[0].1, Landing::Corrupt);
    assert_eq!(pair.receiver.0.counters().corrupt, 1);
    let (_, _, regions) = pair.receiver;
    assert!(contents(&regions, pair.target).iter().all(|byte| *byte == 0), "nothing was placed");
}

#[test]
fn when_a_neighbour_goes_its_address_leads_to_the_socket() {
    // At an address of its own: its port is free for a moment, and nobody else shall get it.
    let own = UdpConfig::discover(([127, 9, 3, 3], 0).into());
    let mut pair = Pair::met_at(own, Check::None);
    let at = pair.receiver.0.local_address();
    let region = pair.sender.2.lend(Memory::from_bytes(&[7; 50_000]), Rights::READ).unwrap();
    // Of these it is told, and it never reads them.
    let to = pair.peer();
    pair.sender.1.send_labelled(to, region.span(0, 50_000), 50_000);
    let (driver, engine, _) = &mut pair.sender;
    driver.turn(engine, pair.clock.now()).unwrap();
    assert_eq!(engine.sent.len(), 0, "it is held for the neighbour");
    let (old, place, regions) = pair.receiver;
    drop(old);
    let config = UdpConfig { bind: at, same_host: false, ..anywhere() };
    pair.receiver = (open(config, &regions), place, regions);
    pair.until("its memory is free", |pair| pair.sender.1.sent.len() == 1);
    assert_eq!(pair.sender.0.neighbours(), 0);
    let calls = pair.sender.0.counters().send_calls;
    assert_same(&pair.carry(region.span(0, 50_000), 50_000), &[7; 50_000]);
    assert!(pair.sender.0.counters().send_calls > calls);
}

#[test]
fn a_thread_that_sleeps_is_woken_by_its_neighbour() {
    let mut pair = Pair::met(Check::None);
    let region = pair.sender.2.lend(Memory::from_bytes(&[7; 50_000]), Rights::READ).unwrap();
    let interests = |driver: &UdpDriver| driver.interests();
    let ready = |driver: &UdpDriver| {
        let none = landfall_placement::Duration::ZERO;
        landfall_transport::wait::until_ready(&interests(driver), none).unwrap()
    };
    // Nothing is left to do.
    pair.turn();
    pair.turn();
    while ready(&pair.receiver.0) {
        pair.turn();
    }
    let to = pair.peer();
    pair.sender.1.send_labelled(to, region.span(0, 50_000), 50_000);
    let (driver, engine, _) = &mut pair.sender;
    driver.turn(engine, pair.clock.now()).unwrap();
    assert!(ready(&pair.receiver.0), "it is rung");
    let (driver, engine, _) = &mut pair.receiver;
    driver.turn(engine, pair.clock.now()).unwrap();
    assert_eq!(engine.landings.len(), 1, "one turn is enough");
    // What was written before it sleeps is not overslept either.
    pair.sender.1.send_labelled(to, region.span(0, 50_000), 50_000);
    let (driver, engine, _) = &mut pair.sender;
    driver.turn(engine, pair.clock.now()).unwrap();
    assert!(ready(&pair.receiver.0));
}

// ---- Two processes ------------------------------------------------------------

/// Where the child finds what it is to do.
const CHILD: &str = "LANDFALL_SAME_HOST_CHILD";

/// A child that does not outlive its test.
struct Victim(Child);

impl Victim {
    /// It sends messages to this address, for ever.
    fn sending_to(to: SocketAddr) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "same_host::the_child", "--nocapture", "--test-threads=1"]);
        command.env(CHILD, to.to_string()).stdin(Stdio::null()).stdout(Stdio::null());
        Self(command.spawn().unwrap())
    }

    fn signal(&self, signal: i32) {
        // SAFETY: numbers; the child is not waited for yet, so the number is its.
        assert_eq!(unsafe { libc::kill(self.0.id().cast_signed(), signal) }, 0);
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends whole pages, each full of its number, behind heads that say where they belong. Does
/// nothing unless it finds the address in its environment.
#[test]
fn the_child() {
    const UNIT: usize = 32 << 10;
    let Some(to) = std::env::var(CHILD).ok() else { return };
    let to: SocketAddr = to.parse().unwrap();
    let arena = Arena::new(ArenaConfig { same_host: true, ..ArenaConfig::default() });
    let clock = Clock::start();
    let regions = Regions::new(64);
    let (mut driver, mut engine) = (open(anywhere(), &regions), Scripted::sender());
    let mut serial = 0u8;
    let end = StdInstant::now() + 2 * PATIENCE;
    while StdInstant::now() < end {
        // Never zero, which is what a page has that is used for something else.
        serial = serial % u8::MAX + 1;
        let mut memory = arena.take(TARGET).unwrap();
        memory.fill(serial);
        let region = regions.lend(memory, Rights::READ).unwrap();
        engine.sent.clear();
        engine.send_labelled(Peer::Socket(to), region.span(0, TARGET as u32), UNIT as u32);
        while engine.sent.len() < TARGET / UNIT && StdInstant::now() < end {
            driver.turn(&mut engine, clock.now()).unwrap();
        }
        // From here on the memory is used for something else.
        let mut memory = regions.take_back(region).unwrap();
        memory.fill(0);
    }
}

#[test]
fn a_neighbour_that_is_killed_or_stopped_spoils_nothing() {
    let regions = Regions::new(64);
    let target = regions.lend(Memory::zeroed(TARGET), Rights::WRITE | Rights::READ).unwrap();
    let check = Check::None;
    let mut engine = Scripted::new(move |unit, into| place_as_labelled(target, unit, into, check));
    let mut driver = open(anywhere(), &regions);
    let clock = Clock::start();
    let rounds = kills(30);
    for round in 0..rounds {
        let mut child = Victim::sending_to(driver.local_address());
        let deadline = StdInstant::now() + PATIENCE;
        let run = |driver: &mut UdpDriver, engine: &mut Scripted| {
            driver.turn(engine, clock.now()).unwrap();
            assert!(StdInstant::now() < deadline, "round {round}: {:?}", driver.counters());
            for (ticket, landing) in engine.landings.drain(..) {
                // What was told to be in place is of one page, whole.
                if landing == Landing::Unchecked {
                    let mut bytes = vec![0; 32 << 10];
                    regions.read(&target.span(ticket.raw(), 32 << 10), &mut bytes).unwrap();
                    let first = bytes[0];
                    assert!(first != 0 && bytes.iter().all(|byte| *byte == first));
                }
            }
            engine.seen.clear();
            engine.marks.clear();
        };
        while driver.neighbours() == 0 {
            run(&mut driver, &mut engine);
        }
        for _ in 0..round % 30 * 40 {
            run(&mut driver, &mut engine);
        }
        if round % 3 == 0 {
            child.signal(libc::SIGSTOP);
            for _ in 0..100 {
                run(&mut driver, &mut engine);
            }
            child.signal(libc::SIGCONT);
            for _ in 0..100 {
                run(&mut driver, &mut engine);
            }
        }
        child.0.kill().unwrap();
        child.0.wait().unwrap();
        while driver.neighbours() > 0 {
            run(&mut driver, &mut engine);
        }
    }
    count_kills("a neighbour of UDP on the same host", rounds);
    assert_eq!(driver.counters().malformed, 0);
}

#[test]
fn a_neighbour_that_reads_nothing_keeps_no_memory() {
    // It is stopped in effect: it makes no turns. A second later the memory is free, and
    // what it finds when it goes on is nothing.
    let mut pair = Pair::met(Check::None);
    let arena = Arena::new(ArenaConfig { same_host: true, ..ArenaConfig::default() });
    let mut memory = arena.take(60_000).unwrap();
    memory.fill(7);
    let region = pair.sender.2.lend(memory, Rights::READ).unwrap();
    let to = pair.peer();
    pair.sender.1.send_labelled(to, region.span(0, 60_000), 60_000);
    let (driver, engine, regions) = &mut pair.sender;
    let mut now = pair.clock.now();
    driver.turn(engine, now).unwrap();
    assert!(engine.sent.is_empty());
    for _ in 0..4 {
        now += landfall_placement::Duration::from_millis(600);
        driver.turn(engine, now).unwrap();
    }
    assert_eq!((engine.sent.len(), driver.neighbours()), (1, 0));
    let mut memory = regions.take_back(region).expect("it is free");
    memory.fill(9);
    let (driver, engine, _) = &mut pair.receiver;
    for _ in 0..100 {
        driver.turn(engine, now).unwrap();
    }
    let is_failed = |(_, landing): &(_, Landing)| *landing == Landing::Failed;
    assert!(engine.landings.iter().all(is_failed), "{:?}", engine.landings);
    assert_eq!(driver.neighbours(), 0);
}
