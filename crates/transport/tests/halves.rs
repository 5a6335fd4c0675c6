//! Every driver sums over bytes that are not in the unit, and puts into place
//! what an engine had kept.

#[cfg(feature = "io-uring")]
use crate::support;
use crate::support::{PATIENCE, Scripted, contents, lent, pattern};
use landfall_placement::{Duration, Engine, Instant, PathId, Peer, Refusal, RegionId, SumSlot};
use landfall_testkit::engines::Halves;
use landfall_testkit::engines::halves::Event;
use landfall_transport::Driver;
use landfall_transport::channel::{ChannelConfig, ChannelDriver, channel};
use landfall_transport::fault::{Faults, Faulty};
use landfall_transport::memory::{Regions, Rights};
use landfall_transport::udp::{UdpConfig, UdpDriver};

const PATH: PathId = PathId(1);
const LEN: u32 = 1451;
/// Where messages are cut: at even and odd bytes.
const CUTS: [u32; 6] = [1, 2, 13, 700, 1024, 1450];

struct End<D> {
    engine: Halves,
    driver: D,
    regions: Regions,
    region: RegionId,
    now: Instant,
}

impl<D: Driver> End<D> {
    fn new(driver: D, (regions, region): (Regions, RegionId), peer: Peer) -> Self {
        Self { engine: Halves::new(peer), driver, regions, region, now: Instant::ZERO }
    }

    fn turn(&mut self) {
        self.now += Duration::from_millis(1);
        self.driver.turn(&mut self.engine, self.now).unwrap();
    }
}

fn source(salt: u64) -> (Regions, RegionId) {
    lent(&pattern(LEN as usize, salt), Rights::READ)
}

fn target() -> (Regions, RegionId) {
    lent(&[0xaa; LEN as usize + 1], Rights::WRITE)
}

/// Sends one message cut there, and gives what becomes of it.
fn carry<A: Driver, B: Driver>(from: &mut End<A>, to: &mut End<B>, cut: u32) -> Event {
    assert!(to.engine.post(to.region.span(1, LEN)));
    from.engine.send(from.region.span(0, LEN), cut).unwrap();
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        from.turn();
        to.turn();
        while from.engine.poll_event().is_some() {}
        if let Some(event) = to.engine.poll_event() {
            return event;
        }
        assert!(std::time::Instant::now() < deadline, "{:?}", to.engine.refusals());
    }
}

/// One message for each cut, between drivers of any kind.
fn carry_all<A: Driver, B: Driver>(mut from: End<A>, mut to: End<B>) {
    for (n, cut) in CUTS.into_iter().enumerate() {
        let place = to.region.span(1, LEN);
        assert_eq!(carry(&mut from, &mut to, cut), Event::Received(n as u16, place));
    }
    assert_eq!(to.engine.refusals().total(), 0);
    let counters = to.driver.counters();
    assert_eq!(counters.deposits, CUTS.len() as u64);
    assert_eq!(counters.payload_bytes, u64::from(LEN) * CUTS.len() as u64);
    assert!(counters.bytes_copied >= counters.payload_bytes, "a deposit is a copy");
    let arrived = contents(&to.regions, to.region);
    assert_eq!((arrived[0], &arrived[1..]), (0xaa, &pattern(LEN as usize, 1)[..]));
}

fn channel_ends() -> [End<ChannelDriver>; 2] {
    let (source, target) = (source(1), target());
    let (a, b) = channel(ChannelConfig::default(), (PATH, &source.0), (PATH, &target.0)).unwrap();
    [End::new(a, source, Peer::Node(1)), End::new(b, target, Peer::Node(0))]
}

#[test]
fn the_channel_carries_messages_in_halves() {
    let [from, to] = channel_ends();
    carry_all(from, to);
}

#[test]
fn udp_carries_messages_in_halves() {
    for batch in [true, false] {
        let open = |regions: &Regions| {
            let config =
                UdpConfig { batch, ..UdpConfig::new("127.0.0.1:0".parse().unwrap(), 1500) };
            UdpDriver::open(PATH, config, regions).unwrap()
        };
        let (source, target) = (source(1), target());
        let (from, to) = (open(&source.0), open(&target.0));
        let [to_from, to_to] = [&from, &to].map(|driver| driver.local_address().into());
        carry_all(End::new(from, source, to_to), End::new(to, target, to_from));
    }
}

#[cfg(feature = "io-uring")]
#[test]
fn uring_carries_messages_in_halves() {
    use landfall_transport::uring::{UringUdpConfig, UringUdpDriver};
    landfall_testbed::skip_unless!(support::packet::uring::why_no_uring());
    let open = |regions: &Regions| {
        let config = UringUdpConfig::new("127.0.0.1:0".parse().unwrap(), 1500);
        UringUdpDriver::open(PATH, config, regions).unwrap()
    };
    let (source, target) = (source(1), target());
    let (from, to) = (open(&source.0), open(&target.0));
    let [to_from, to_to] = [&from, &to].map(|driver| driver.local_address().into());
    carry_all(End::new(from, source, to_to), End::new(to, target, to_from));
}

fn faulty<D: Driver>(end: End<D>, faults: Faults) -> End<Faulty<D>> {
    let driver = Faulty::new(end.driver, faults, [7; 32], &end.regions).unwrap();
    End::new(driver, (end.regions, end.region), Peer::Node(1))
}

#[test]
fn faults_keep_the_sum_of_what_is_not_in_the_unit() {
    let [from, to] = channel_ends();
    let faults = Faults { duplication: 500_000, reordering: 500_000, ..Faults::default() };
    let (mut from, mut to) = (faulty(from, faults), to);
    for cut in CUTS {
        let event = carry(&mut from, &mut to, cut);
        assert!(matches!(event, Event::Received(..)), "{event:?}");
    }
    assert_eq!(to.engine.refusals().of(Refusal::BadChecksum), 0);
    assert!(from.driver.counts().reordered > 0);
}

#[test]
fn invariant_3_corrupted_halves_are_never_accepted() {
    let [from, mut to] = channel_ends();
    // Seldom both halves of a message: their flipped bits might cancel out.
    let faults = Faults { corruption: 100_000, ..Faults::default() };
    let mut from = faulty(from, faults);
    let (place, expected) = (to.region.span(1, LEN), pattern(LEN as usize, 1));
    let mut received = 0;
    for _ in 0..300 {
        to.engine.post(place);
        from.engine.send(from.region.span(0, LEN), 700).unwrap();
        for _ in 0..4 {
            from.turn();
            to.turn();
        }
        while from.engine.poll_event().is_some() {}
        while to.engine.poll_event().is_some() {
            received += 1;
        }
    }
    let counts = from.driver.counts();
    assert!(counts.corrupted > 20 && received > 200, "{received}: {counts:?}");
    assert!(to.engine.refusals().of(Refusal::BadChecksum) > 10);
    assert_eq!(contents(&to.regions, to.region)[1..], expected);
}

#[test]
fn invariant_2_a_deposit_to_memory_that_is_gone_is_not_received() {
    let [mut from, mut to] = channel_ends();
    to.regions.take_back(to.region).unwrap();
    assert_eq!(carry(&mut from, &mut to, 700), Event::Lost(0));
    let counters = to.driver.counters();
    assert_eq!((counters.misplaced, counters.deposits, counters.payload_bytes), (1, 0, 0));
}

#[test]
fn what_cannot_be_summed_is_not_sent() {
    let (regions, region) = lent(&[1; 100], Rights::READ);
    let (other, _) = lent(&[0], Rights::READ);
    let (mut driver, _peer) =
        channel(ChannelConfig::default(), (PATH, &regions), (PATH, &other)).unwrap();
    let mut engine = Scripted::sender();
    engine.send(Peer::Node(1), vec![0; 8], &[region.span(0, 10)]);
    let unit = engine.to_send.front_mut().unwrap();
    unit.checksum = Some(SumSlot { start: 0, offset: 2 });
    unit.sum_only = 11;
    driver.turn(&mut engine, Instant::ZERO).unwrap();
    assert_eq!(engine.sent.len(), 1, "it is over all the same");
    let counters = driver.counters();
    assert_eq!((counters.units_sent, counters.send_failed), (0, 1));
}
