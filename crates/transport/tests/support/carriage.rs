//! Both test engines over two ends of any driver: what every driver has to do.

use std::sync::mpsc::TryRecvError;
use std::time::Duration;

use landfall_placement::{Engine, PathState, Peer};
use landfall_testkit::engines::Area;
use landfall_testkit::engines::numbered::Config;
use landfall_testkit::engines::stream::{self, Event, Framing, Stream};
use landfall_transport::fault::{Faults, Faulty};
use landfall_transport::memory::{Memory, Regions, Rights};
use landfall_transport::{AsyncWaiter, Clock, Counters, Driver, Wait, Waiter};

use super::transfer::{DEFAULT, End, PATH, PATIENT, SIZES, messages, run_to_the_end, start};
use super::{PATIENCE, assert_same, contents, pattern};

/// A driver with its regions, and the name by which the other end reaches it.
pub struct Opened<D> {
    pub driver: D,
    pub regions: Regions,
    pub name: Peer,
}

impl<D: Driver> Opened<D> {
    pub fn end(self, memory: &[u8], config: Config, seed: u8, clock: &Clock) -> End<D> {
        End::new(self.driver, self.regions, memory, config, seed, clock)
    }
}

/// All messages on one thread, in units of this length.
pub fn messages_in_units<D: Driver>([from, to]: [Opened<D>; 2], unit: u32) {
    let clock = Clock::start();
    let (peer, config) = (to.name, Config { unit, ..PATIENT });
    let mut from = from.end(&messages(), config, 1, &clock);
    let mut to = to.end(&vec![0; messages().len()], config, 2, &clock);
    start(&mut from, &mut to, peer, &clock);
    run_to_the_end(&mut from, &mut to, &clock);
    assert_same(&to.contents(), &messages());
    assert_same(&from.contents(), &messages());
}

/// The same through everything that can go wrong on the way, both ways.
pub fn messages_through_faults<D: Driver>(ends: [Opened<D>; 2], faults: Faults) {
    let mut seed = 0;
    let ends = ends.map(|end| {
        seed += 1;
        let driver = Faulty::new(end.driver, faults, [seed; 32], &end.regions).unwrap();
        Opened { driver, regions: end.regions, name: end.name }
    });
    let clock = Clock::start();
    let [from, to] = ends;
    let (peer, config) = (to.name, Config { checksum: true, ..DEFAULT });
    let mut from = from.end(&messages(), config, 1, &clock);
    let mut to = to.end(&vec![0; messages().len()], config, 2, &clock);
    start(&mut from, &mut to, peer, &clock);
    run_to_the_end(&mut from, &mut to, &clock);
    let counts = from.driver.counts();
    assert!(counts.lost > 0 && counts.duplicated > 0 && counts.corrupted > 0, "{counts:?}");
    assert_same(&to.contents(), &messages());
}

/// Eight places for messages, used again and again. Gives what the receiver had
/// counted once things ran, and what in the end.
pub fn steady_messages<D: Driver>([from, to]: [Opened<D>; 2]) -> [Counters; 2] {
    const MESSAGE: u64 = 100_000;
    let clock = Clock::start();
    // On a busy machine time passes; it shall make no difference here.
    let config = Config { retransmit_after: Duration::from_secs(10), ..DEFAULT };
    let bytes = pattern(8 * MESSAGE as usize, 5);
    let peer = to.name;
    let mut from = from.end(&bytes, config, 1, &clock);
    let mut to = to.end(&vec![0; bytes.len()], config, 2, &clock);
    let area = |region, n: u64| Area::new(region, n % 8 * MESSAGE, MESSAGE);
    (0..8).for_each(|n| to.engine.receive_into(area(to.region, n)).unwrap());
    let deadline = clock.now() + PATIENCE;
    let (mut offered, mut warm) = (0, None);
    while from.sent < 40 {
        assert!(clock.now() < deadline, "stuck after {} messages", from.sent);
        if offered < 40 && offered - from.sent < 4 {
            let area = area(from.region, offered as u64);
            from.engine.send(clock.now(), PATH, peer, area).unwrap();
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
    let counted = [warm.unwrap(), *to.driver.counters()];
    assert_same(&to.contents(), &bytes);
    counted
}

/// All messages between two threads that wait like this.
pub fn messages_between_threads<D: Driver + Send>([from, to]: [Opened<D>; 2], wait: Wait) {
    let clock = Clock::start();
    let peer = to.name;
    let mut from = from.end(&messages(), DEFAULT, 1, &clock);
    let mut to = to.end(&vec![0; messages().len()], DEFAULT, 2, &clock);
    start(&mut from, &mut to, peer, &clock);
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // Lingers until the sender has heard that all arrived.
            let over = || matches!(is_done.try_recv(), Err(e) if e != TryRecvError::Empty);
            drive(&mut to, wait, &clock, |_| over());
            assert_eq!(to.received.len(), SIZES.len());
            assert_same(&to.contents(), &messages());
        });
        let _hang_up = done;
        drive(&mut from, wait, &clock, |from| from.sent == SIZES.len());
    });
}

/// Turns and waits until it is over.
fn drive<D: Driver>(end: &mut End<D>, wait: Wait, clock: &Clock, over: impl Fn(&End<D>) -> bool) {
    let mut waiter = Waiter::new(wait);
    let deadline = clock.now() + PATIENCE;
    while !over(end) {
        assert!(clock.now() < deadline, "stuck: {:?}", end.driver.counters());
        if end.driver.turn(&mut end.engine, clock.now()).unwrap().any() {
            waiter.busy();
        } else {
            let at_most = Duration::from_millis(20);
            waiter.idle(&mut end.driver, &end.engine, clock, at_most).unwrap();
        }
        end.events();
    }
}

/// All messages between two tasks of one thread.
pub async fn messages_between_tasks<D: Driver>([from, to]: [Opened<D>; 2]) {
    let clock = Clock::start();
    let peer = to.name;
    let mut from = from.end(&messages(), DEFAULT, 1, &clock);
    let mut to = to.end(&vec![0; messages().len()], DEFAULT, 2, &clock);
    start(&mut from, &mut to, peer, &clock);
    let receiving = async {
        let waiter = AsyncWaiter::new(&to.driver).unwrap();
        // It answers repeated units until the sender knows.
        loop {
            waiter.turn(&mut to.driver, &mut to.engine, &clock, PATIENCE).await.unwrap();
            to.events();
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

/// A byte stream whose heads vary in length.
pub fn stream<D: Driver>([from, to]: [Opened<D>; 2]) {
    let clock = Clock::start();
    let message = pattern(300_000, 3);
    let framing = Framing::Bare { peer: to.name, local_port: 7000, remote_port: 7001 };
    let framings = [framing, framing.reversed(from.name)];
    let end = |opened: Opened<D>, framing, memory: &[u8], seed: u8| {
        let Opened { driver, regions, .. } = opened;
        let rights = Rights::READ | Rights::WRITE;
        let memory = Memory::from_bytes(memory);
        let region = regions.lend(memory, rights).unwrap();
        let config = stream::Config {
            retransmit_after: Duration::from_millis(5),
            give_up_after: 100_000,
            ..stream::Config::new(framing, PATH)
        };
        let mut engine = match seed {
            1 => Stream::connect(config, [seed; 32]),
            _ => Stream::listen(config, [seed; 32]),
        };
        engine.handle_path(clock.now(), PATH, PathState::Up(driver.limits()));
        (engine, driver, regions, region)
    };
    let mut from = end(from, framings[0], &message, 1);
    let mut to = end(to, framings[1], &vec![0; message.len()], 2);
    let area = |region| Area::new(region, 0, message.len() as u64);
    to.0.receive_into(area(to.3)).unwrap();
    from.0.send(area(from.3)).unwrap();
    let deadline = clock.now() + PATIENCE;
    let (mut sent, mut received) = (false, false);
    while !(sent && received) {
        assert!(clock.now() < deadline, "stuck at {} bytes", to.0.received());
        from.1.turn(&mut from.0, clock.now()).unwrap();
        to.1.turn(&mut to.0, clock.now()).unwrap();
        while let Some(event) = from.0.poll_event() {
            sent |= matches!(event, Event::Sent { .. });
        }
        while let Some(event) = to.0.poll_event() {
            received |= matches!(event, Event::Received { .. });
        }
    }
    drop(to.1);
    assert_same(&contents(&to.2, to.3), &message);
}
