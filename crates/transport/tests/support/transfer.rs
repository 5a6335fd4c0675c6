//! Messages from one numbered engine to another, over whatever drivers.

use std::time::Duration;

use landfall_placement::{Engine, PathId, PathState, Peer, RegionId};
use landfall_testkit::engines::numbered::{Config, Event};
use landfall_testkit::engines::{Area, Numbered};
use landfall_transport::memory::{Memory, Regions, Rights};
use landfall_transport::{Clock, Driver};

use super::{PATIENCE, contents, pattern};

pub const PATH: PathId = PathId(3);
pub const SIZES: [usize; 6] = [1, 1023, 1024, 1025, 100_000, 1 << 20];

/// An engine with its driver and memory.
pub struct End<D> {
    pub engine: Numbered,
    pub driver: D,
    pub regions: Regions,
    pub region: RegionId,
    pub received: Vec<Area>,
    pub sent: usize,
    pub fetched: Vec<u64>,
}

impl<D: Driver> End<D> {
    pub fn new(
        driver: D,
        regions: Regions,
        memory: &[u8],
        config: Config,
        seed: u8,
        clock: &Clock,
    ) -> Self {
        let rights = Rights::READ | Rights::WRITE | Rights::WORDS;
        let region = regions.lend(Memory::from_bytes(memory), rights).unwrap();
        let mut engine = Numbered::new(config, [seed; 32]);
        engine.handle_path(clock.now(), PATH, PathState::Up(driver.limits()));
        Self { engine, driver, regions, region, received: vec![], sent: 0, fetched: vec![] }
    }

    pub fn events(&mut self) {
        while let Some(event) = self.engine.poll_event() {
            match event {
                Event::Delivered { posted, len, .. } => {
                    self.received.push(Area { len, ..posted });
                }
                Event::Sent { .. } => self.sent += 1,
                Event::Fetched { old, .. } => self.fetched.push(old),
                failed => panic!("{failed:?}"),
            }
        }
    }

    pub fn contents(self) -> Vec<u8> {
        drop(self.driver);
        contents(&self.regions, self.region)
    }
}

/// All messages one behind the other.
pub fn messages() -> Vec<u8> {
    pattern(SIZES.iter().sum(), 99)
}

/// Asks for memory for each message at one end, and sends it from the other.
pub fn start<A: Driver, B: Driver>(from: &mut End<A>, to: &mut End<B>, peer: Peer, clock: &Clock) {
    let mut at = 0;
    for size in SIZES {
        let area = |region| Area::new(region, at, size as u64);
        to.engine.receive_into(area(to.region)).unwrap();
        from.engine.send(clock.now(), PATH, peer, area(from.region)).unwrap();
        at += size as u64;
    }
}

/// Turns both ends on this thread until all is done.
pub fn run_to_the_end<A: Driver, B: Driver>(from: &mut End<A>, to: &mut End<B>, clock: &Clock) {
    let deadline = clock.now() + PATIENCE;
    while from.sent < SIZES.len() || to.received.len() < SIZES.len() {
        assert!(
            clock.now() < deadline,
            "stuck after {} of {} messages: {:?} {:?} {} refused: {}",
            to.received.len(),
            SIZES.len(),
            from.driver.counters(),
            to.driver.counters(),
            to.engine.refusals(),
            from.engine.refusals(),
        );
        from.driver.turn(&mut from.engine, clock.now()).unwrap();
        from.events();
        to.driver.turn(&mut to.engine, clock.now()).unwrap();
        to.events();
    }
}

/// Where nothing is lost on purpose, little is sent again: on a machine where a
/// turn takes longer than the timer, all would be, again and again.
pub const PATIENT: Config = Config { retransmit_after: Duration::from_millis(200), ..DEFAULT };

/// `Config::default` in a constant.
pub const DEFAULT: Config = Config {
    unit: 1024,
    window: 1 << 20,
    ack_every: 64,
    checksum: false,
    eager: true,
    retransmit_after: Duration::from_millis(5),
    // On a busy machine nothing may happen for long; the tests have a limit of their own.
    give_up_after: 100_000,
    ack_delay: Duration::from_micros(200),
    paths: 4,
    connections: 16,
    incoming: 8,
    outgoing: 8,
    posted: 64,
    fetches: 8,
};
