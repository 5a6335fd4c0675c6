//! A stream between two drivers of whole frames, of whatever kind.

use std::net::Ipv4Addr;

use landfall_placement::{Engine, PathState, RegionId};
use landfall_testkit::engines::stream::{Config, Framing, Station};
use landfall_testkit::engines::{Area, Stream};
use landfall_transport::memory::{Memory, Regions, Rights};
use landfall_transport::{Clock, Driver};

use super::{PATIENCE, assert_same, contents, pattern};

/// TCP tells large windows in steps (RFC 7323, 2.2): what is posted beyond the
/// last whole step is not offered.
const LARGEST_STEP: u64 = 1 << 14;

/// A stream engine with its driver and memory.
pub struct StreamEnd<D> {
    pub engine: Stream,
    pub driver: D,
    pub regions: Regions,
    pub region: RegionId,
}

impl<D: Driver> StreamEnd<D> {
    /// One that connects, or listens.
    pub fn new(
        (driver, regions): (D, Regions),
        [local, remote]: [Station<Ipv4Addr>; 2],
        connects: bool,
        memory: &[u8],
        clock: &Clock,
    ) -> Self {
        let memory = Memory::from_bytes(memory);
        let region = regions.lend(memory, Rights::READ | Rights::WRITE).unwrap();
        let framing = Framing::EthernetIpv4Tcp { local, remote };
        let config = Config::new(framing, driver.path()).steady();
        let mut engine = if connects {
            Stream::connect(config, [1; 32])
        } else {
            Stream::listen(config, [2; 32])
        };
        engine.handle_path(clock.now(), driver.path(), PathState::Up(driver.limits()));
        Self { engine, driver, regions, region }
    }

    pub fn turn(&mut self, clock: &Clock) {
        self.driver.turn(&mut self.engine, clock.now()).unwrap();
    }
}

/// Streams a message of so many bytes between two drivers, each with its
/// regions, and gives both ends.
pub fn carry_stream<A: Driver, B: Driver>(
    from: (A, Regions),
    to: (B, Regions),
    stations: [Station<Ipv4Addr>; 2],
    len: usize,
) -> (StreamEnd<A>, StreamEnd<B>) {
    let clock = Clock::start();
    let message = pattern(len, 11);
    let room = len as u64 + LARGEST_STEP;
    let [a, b] = stations;
    let mut from = StreamEnd::new(from, [a, b], true, &message, &clock);
    let mut to = StreamEnd::new(to, [b, a], false, &vec![0; room as usize], &clock);
    let len = len as u64;
    from.engine.send(Area::new(from.region, 0, len)).unwrap();
    from.engine.close();
    to.engine.receive_into(Area::new(to.region, 0, room)).unwrap();
    let deadline = clock.now() + PATIENCE;
    while to.engine.received() < len || from.engine.acknowledged() < len {
        let counters = [from.driver.counters(), to.driver.counters()];
        assert!(clock.now() < deadline, "{} of {len}: {counters:?}", to.engine.received());
        from.turn(&clock);
        to.turn(&clock);
    }
    assert_same(&contents(&to.regions, to.region)[..len as usize], &message);
    (from, to)
}
