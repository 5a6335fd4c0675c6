//! The proof that drivers carry an engine: messages in numbered units end as
//! the same bytes at the other side, whichever driver carried them, however
//! the path behaved.

use std::time::Duration;

use crate::support::transfer::{
    DEFAULT, End, PATH, PATIENT, SIZES, messages, run_to_the_end, start,
};
use crate::support::{PATIENCE, assert_same, pattern};
use landfall_placement::{Engine, Peer, Random, WordFunction, WordWidth};
use landfall_testkit::engines::Area;
use landfall_testkit::engines::numbered::Config;
use landfall_transport::channel::{ChannelConfig, channel};
use landfall_transport::fault::{FaultCounts, Faults, Faulty};
use landfall_transport::memory::Regions;
use landfall_transport::udp::{UdpConfig, UdpDriver};
use landfall_transport::{AsyncWaiter, Clock, Driver, Wait, Waiter};

fn udp(regions: &Regions, unit: u32, batch: bool) -> UdpDriver {
    let config = UdpConfig { batch, unit, ..UdpConfig::new("127.0.0.1:0".parse().unwrap(), 1500) };
    UdpDriver::open(PATH, config, regions).unwrap()
}

/// What is carried, and how.
#[derive(Clone, Copy)]
struct Case {
    config: Config,
    batch: bool,
    faults: Faults,
}

/// Carries all messages over UDP through faults, and gives what happened.
fn over_udp(case: Case, seed: u64) -> [FaultCounts; 2] {
    let clock = Clock::start();
    let mut random = Random::from_number(seed);
    let mut end = |memory: &[u8], number| {
        let regions = Regions::new(8);
        let driver = udp(&regions, 9000, case.batch);
        let address = driver.local_address();
        let driver = Faulty::new(driver, case.faults, random.fork(), &regions).unwrap();
        (End::new(driver, regions, memory, case.config, number, &clock), address)
    };
    let (mut from, _) = end(&messages(), 1);
    let (mut to, address) = end(&vec![0; messages().len()], 2);
    start(&mut from, &mut to, address.into(), &clock);
    run_to_the_end(&mut from, &mut to, &clock);
    let counts = [from.driver.counts(), to.driver.counts()];
    assert_same(&to.contents(), &messages());
    assert_same(&from.contents(), &messages());
    counts
}

const CLEAN: Case =
    Case { config: Config { unit: 1024, ..DEFAULT }, batch: true, faults: Faults::loss(0) };

#[test]
fn udp_carries_messages_in_batches_and_singly() {
    for batch in [true, false] {
        for unit in [100, 1024, 8192] {
            over_udp(Case { config: Config { unit, ..PATIENT }, batch, ..CLEAN }, 1);
        }
    }
}

#[test]
fn a_clean_stream_of_messages_is_never_copied() {
    let clock = Clock::start();
    // On a busy machine time passes; it shall make no difference here.
    let config = Config { retransmit_after: Duration::from_secs(10), ..DEFAULT };
    let end = |memory: &[u8], number| {
        let regions = Regions::new(8);
        let driver = udp(&regions, 9000, true);
        let address = driver.local_address();
        (End::new(driver, regions, memory, config, number, &clock), address)
    };
    let bytes = pattern(8 * 100_000, 5);
    let (mut from, _) = end(&bytes, 1);
    let (mut to, address) = end(&vec![0; bytes.len()], 2);
    let area = |region, n: u64| Area::new(region, n % 8 * 100_000, 100_000);
    (0..8).for_each(|n| to.engine.receive_into(area(to.region, n)).unwrap());
    let deadline = clock.now() + PATIENCE;
    let (mut offered, mut warm) = (0, None);
    while from.sent < 40 {
        assert!(clock.now() < deadline, "stuck after {} messages", from.sent);
        if offered < 40 && offered - from.sent < 4 {
            let area = area(from.region, offered as u64);
            from.engine.send(clock.now(), PATH, address.into(), area).unwrap();
            offered += 1;
        }
        from.driver.turn(&mut from.engine, clock.now()).unwrap();
        from.events();
        to.driver.turn(&mut to.engine, clock.now()).unwrap();
        to.events();
        for delivered in std::mem::take(&mut to.received) {
            to.engine.receive_into(delivered).unwrap();
        }
        if from.sent >= 4 {
            warm.get_or_insert(*to.driver.counters());
        }
    }
    let (warm, end) = (warm.unwrap(), *to.driver.counters());
    assert_eq!(end.bytes_copied, warm.bytes_copied, "{end:?}");
    assert_eq!(end.guessed_wrong, warm.guessed_wrong);
    assert!(end.guessed_right > warm.guessed_right);
    assert_same(&to.contents(), &bytes);
}

#[test]
fn invariant_4_udp_survives_each_fault_alone() {
    let ppm = 50_000;
    let faults = [
        Faults::loss(ppm),
        Faults { duplication: ppm, ..Faults::default() },
        Faults { reordering: ppm, ..Faults::default() },
        Faults { delay: Duration::from_micros(500), ..Faults::default() },
        Faults { loss_at_place: ppm, ..Faults::default() },
    ];
    for (seed, faults) in faults.into_iter().enumerate() {
        let [counts, _] = over_udp(Case { faults, ..CLEAN }, seed as u64);
        let happened = counts.lost + counts.duplicated + counts.reordered + counts.delayed;
        assert!(happened > 0 || faults.loss_at_place > 0, "{faults:?} did nothing");
    }
}

#[test]
fn invariant_3_corruption_is_found_by_the_checksum() {
    let faults = Faults { corruption: 50_000, ..Faults::default() };
    let config = Config { checksum: true, ..DEFAULT };
    let [counts, _] = over_udp(Case { config, faults, ..CLEAN }, 7);
    assert!(counts.corrupted > 0);
}

#[test]
fn invariant_1_all_faults_at_once_change_no_delivered_byte() {
    let faults = Faults {
        loss: 100_000,
        duplication: 50_000,
        reordering: 100_000,
        corruption: 20_000,
        delay: Duration::ZERO,
        loss_at_place: 20_000,
    };
    for seed in 0..3 {
        for batch in [true, false] {
            let config = Config { checksum: true, ..DEFAULT };
            over_udp(Case { config, batch, faults }, seed);
        }
    }
}

#[test]
fn the_channel_carries_messages_between_threads() {
    let clock = Clock::start();
    let (one, two) = (Regions::new(8), Regions::new(8));
    let config = ChannelConfig { unit: 2048, queue: 16 };
    let (a, b) = channel(config, (PATH, &one), (PATH, &two)).unwrap();
    let mut from = End::new(a, one, &messages(), DEFAULT, 1, &clock);
    let mut to = End::new(b, two, &vec![0; messages().len()], DEFAULT, 2, &clock);
    start(&mut from, &mut to, Peer::Node(1), &clock);
    let receiver = std::thread::spawn(move || {
        let mut waiter = Waiter::new(Wait::Block);
        let deadline = clock.now() + PATIENCE;
        // Lingers until the sender, having heard that all arrived, hangs up.
        loop {
            assert!(clock.now() < deadline, "stuck after {} messages", to.received.len());
            match to.driver.turn(&mut to.engine, clock.now()) {
                Ok(progress) if progress.any() => waiter.busy(),
                Ok(_) => waiter.idle(&mut to.driver, &to.engine, &clock, PATIENCE).unwrap(),
                Err(error) => break assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe),
            }
            to.events();
        }
        assert_eq!(to.received.len(), SIZES.len());
        assert_same(&to.contents(), &messages());
    });
    let mut waiter = Waiter::new(Wait::SpinThenBlock(Duration::from_micros(50)));
    let deadline = clock.now() + PATIENCE;
    while from.sent < SIZES.len() {
        assert!(clock.now() < deadline, "stuck after {} messages sent", from.sent);
        match from.driver.turn(&mut from.engine, clock.now()).unwrap() {
            progress if progress.any() => waiter.busy(),
            _ => waiter.idle(&mut from.driver, &from.engine, &clock, PATIENCE).unwrap(),
        }
        from.events();
    }
    drop(from);
    receiver.join().unwrap();
}

#[test]
fn words_change_exactly_once_though_units_repeat() {
    let clock = Clock::start();
    let faults = Faults { loss: 200_000, duplication: 200_000, ..Faults::default() };
    let end = |number: u8| {
        let regions = Regions::new(8);
        let driver = udp(&regions, 9000, true);
        let address = driver.local_address();
        let driver = Faulty::new(driver, faults, [number; 32], &regions).unwrap();
        (End::new(driver, regions, &[0; 64], DEFAULT, number, &clock), address)
    };
    let ((mut from, _), (mut to, address)) = (end(1), end(2));
    to.engine.serve_words(Some(Area::new(to.region, 0, 64))).unwrap();
    let deadline = clock.now() + PATIENCE;
    let mut asked = 0;
    while from.fetched.len() < 100 {
        assert!(clock.now() < deadline, "stuck after {}", from.fetched.len());
        if asked == from.fetched.len() {
            let word = (8, WordWidth::Eight);
            let function = WordFunction::Add(1);
            from.engine.fetch(clock.now(), PATH, address.into(), word, function).unwrap();
            asked += 1;
        }
        from.driver.turn(&mut from.engine, clock.now()).unwrap();
        to.driver.turn(&mut to.engine, clock.now()).unwrap();
        from.events();
    }
    assert_eq!(from.fetched, (0..100).collect::<Vec<u64>>());
    assert_eq!(to.contents()[8..16], 100u64.to_ne_bytes());
}

#[tokio::test]
async fn a_tokio_task_drives_both_ends() {
    let clock = Clock::start();
    let end = |memory: &[u8], number| {
        let regions = Regions::new(8);
        let driver = udp(&regions, 9000, true);
        let address = driver.local_address();
        (End::new(driver, regions, memory, DEFAULT, number, &clock), address)
    };
    let (mut from, _) = end(&messages(), 1);
    let (mut to, address) = end(&vec![0; messages().len()], 2);
    start(&mut from, &mut to, address.into(), &clock);
    let receiving = async {
        let waiter = AsyncWaiter::new(&to.driver).unwrap();
        // It answers repeated units until the sender knows, or the test ends.
        while to.received.len() < SIZES.len() {
            waiter.turn(&mut to.driver, &mut to.engine, &clock, PATIENCE).await.unwrap();
            to.events();
        }
        loop {
            waiter.turn(&mut to.driver, &mut to.engine, &clock, PATIENCE).await.unwrap();
        }
    };
    let sending = async {
        let waiter = AsyncWaiter::new(&from.driver).unwrap();
        while from.sent < SIZES.len() {
            waiter.turn(&mut from.driver, &mut from.engine, &clock, PATIENCE).await.unwrap();
            from.events();
        }
    };
    let both = async {
        tokio::select! { () = receiving => {}, () = sending => {} }
    };
    tokio::time::timeout(PATIENCE, both).await.expect("neither end got stuck");
    assert_eq!(to.received.len(), SIZES.len());
    assert_same(&to.contents(), &messages());
}

#[test]
fn a_blocked_thread_is_woken_by_what_arrives_and_by_its_timers() {
    let clock = Clock::start();
    let regions = Regions::new(8);
    let mut sleeper = End::new(udp(&regions, 9000, true), regions, &[0; 64], DEFAULT, 1, &clock);
    let mut waiter = Waiter::new(Wait::Block);
    let address = sleeper.driver.local_address();
    let waker = std::thread::spawn(move || {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"wake up", address).unwrap();
    });
    let deadline = clock.now() + PATIENCE;
    while sleeper.driver.counters().units_received == 0 {
        assert!(clock.now() < deadline, "overslept");
        waiter.idle(&mut sleeper.driver, &sleeper.engine, &clock, PATIENCE).unwrap();
        sleeper.driver.turn(&mut sleeper.engine, clock.now()).unwrap();
    }
    waker.join().unwrap();
    // Nobody answers: only the engine's own timer can end this sleep early.
    let nobody = Peer::Socket("127.0.0.1:9".parse().unwrap());
    let area = Area::new(sleeper.region, 0, 64);
    sleeper.engine.send(clock.now(), PATH, nobody, area).unwrap();
    sleeper.driver.turn(&mut sleeper.engine, clock.now()).unwrap();
    let due = sleeper.engine.poll_timeout().expect("it will ask again").at;
    while clock.now() < due {
        assert!(clock.now() < deadline, "overslept");
        waiter.idle(&mut sleeper.driver, &sleeper.engine, &clock, PATIENCE).unwrap();
        sleeper.driver.turn(&mut sleeper.engine, clock.now()).unwrap();
    }
}
