//! Messages end as the same bytes at the other side, whether plain calls or a
//! ring carried them, with a copy in the kernel or without.
use std::net::{SocketAddr, UdpSocket};
use std::thread;

use crate::support::packet::uring::why_no_uring;
use crate::support::transfer::DEFAULT;
use crate::support::{PATIENCE, assert_same, contents, pattern};
use landfall_placement::{Duration, Engine, Instant, PathId, PathState, Random, RegionId};
use landfall_testbed::skip_unless;
use landfall_testkit::engines::numbered::{Config, Event};
use landfall_testkit::engines::{Area, Numbered};
use landfall_transport::memory::{Memory, Regions, Rights};
use landfall_transport::udp::{UdpConfig, UdpDriver};
use landfall_transport::uring::{UringUdpConfig, UringUdpDriver, ZeroCopy};
use landfall_transport::{Clock, Counters, Driver, Wait, Waiter};

const PATH: PathId = PathId(5);
const SIZES: [usize; 6] = [1, 4095, 4096, 4097, 100_000, 1 << 20];
/// What a receive coalesces fits in the list that was posted for it.
const CONFIG: Config = Config {
    unit: 4096,
    window: 256 << 10,
    ack_every: 16,
    eager: false,
    retransmit_after: Duration::from_millis(20),
    give_up_after: 10,
    ..DEFAULT
};

/// A driver that a peer can find.
trait Reachable: Driver + Send {
    fn open(regions: &Regions, zero_copy: ZeroCopy) -> Self;
    fn address(&self) -> SocketAddr;
}

impl Reachable for UdpDriver {
    fn open(regions: &Regions, _: ZeroCopy) -> Self {
        let config = UdpConfig::new("127.0.0.1:0".parse().unwrap(), 9000);
        Self::open(PATH, config, regions).unwrap()
    }

    fn address(&self) -> SocketAddr {
        self.local_address()
    }
}

impl Reachable for UringUdpDriver {
    fn open(regions: &Regions, zero_copy: ZeroCopy) -> Self {
        let config = UringUdpConfig {
            zero_copy,
            ..UringUdpConfig::new("127.0.0.1:0".parse().unwrap(), 9000)
        };
        Self::open(PATH, config, regions).unwrap()
    }

    fn address(&self) -> SocketAddr {
        self.local_address()
    }
}

/// An engine with its driver and memory.
struct End<D> {
    engine: Numbered,
    driver: D,
    regions: Regions,
    region: RegionId,
    received: usize,
    sent: usize,
}

impl<D: Reachable> End<D> {
    fn new(memory: &[u8], zero_copy: ZeroCopy, seed: u8, clock: &Clock) -> Self {
        let regions = Regions::new(8);
        let region = regions.lend(Memory::from_bytes(memory), Rights::READ | Rights::WRITE);
        let driver = D::open(&regions, zero_copy);
        let mut engine = Numbered::new(CONFIG, [seed; 32]);
        engine.handle_path(clock.now(), PATH, PathState::Up(driver.limits()));
        Self { engine, driver, region: region.unwrap(), regions, received: 0, sent: 0 }
    }

    fn turn(&mut self, clock: &Clock) -> bool {
        let progress = self.driver.turn(&mut self.engine, clock.now()).unwrap();
        while let Some(event) = self.engine.poll_event() {
            match event {
                Event::Delivered { .. } => self.received += 1,
                Event::Sent { .. } => self.sent += 1,
                failed => panic!("{failed:?}"),
            }
        }
        progress.any()
    }

    fn contents(self) -> Vec<u8> {
        drop(self.driver);
        contents(&self.regions, self.region)
    }
}

fn messages() -> Vec<u8> {
    pattern(SIZES.iter().sum(), 7)
}

/// Two ends, with all messages asked for and to be sent.
fn ends<A: Reachable, B: Reachable>(zero_copy: ZeroCopy, clock: &Clock) -> (End<A>, End<B>) {
    let mut from = End::<A>::new(&messages(), zero_copy, 1, clock);
    let mut to = End::<B>::new(&vec![0; messages().len()], zero_copy, 2, clock);
    let mut at = 0;
    for size in SIZES {
        let area = |region| Area::new(region, at, size as u64);
        to.engine.receive_into(area(to.region)).unwrap();
        let peer = to.driver.address().into();
        from.engine.send(clock.now(), PATH, peer, area(from.region)).unwrap();
        at += size as u64;
    }
    (from, to)
}

/// Carries all messages, and gives the receiver's counters.
fn carry<A: Reachable, B: Reachable>(zero_copy: ZeroCopy) -> Counters {
    let clock = Clock::start();
    let (mut from, mut to) = ends::<A, B>(zero_copy, &clock);
    while from.sent < SIZES.len() || to.received < SIZES.len() {
        assert!(clock.now() < Instant::ZERO + PATIENCE, "stuck");
        from.turn(&clock);
        to.turn(&clock);
    }
    let counters = *to.driver.counters();
    assert_same(&to.contents(), &messages());
    assert_same(&from.contents(), &messages());
    counters
}

#[test]
fn the_memory_is_the_same_whichever_driver_is_at_either_end() {
    skip_unless!(why_no_uring());
    carry::<UdpDriver, UringUdpDriver>(ZeroCopy::Never);
    carry::<UringUdpDriver, UdpDriver>(ZeroCopy::Never);
    carry::<UringUdpDriver, UringUdpDriver>(ZeroCopy::Never);
}

#[test]
fn the_memory_is_the_same_without_copies_in_the_kernel() {
    skip_unless!(why_no_uring());
    for zero_copy in [ZeroCopy::Auto, ZeroCopy::Always] {
        carry::<UringUdpDriver, UdpDriver>(zero_copy);
        carry::<UringUdpDriver, UringUdpDriver>(zero_copy);
    }
}

#[test]
fn a_long_message_lands_in_its_place_without_a_copy() {
    skip_unless!(why_no_uring());
    for zero_copy in [ZeroCopy::Never, ZeroCopy::Auto] {
        let clock = Clock::start();
        let bytes = pattern(1 << 20, 3);
        let mut from = End::<UringUdpDriver>::new(&bytes, zero_copy, 1, &clock);
        let mut to = End::<UringUdpDriver>::new(&vec![0; 1 << 20], zero_copy, 2, &clock);
        to.engine.receive_into(Area::new(to.region, 0, 1 << 20)).unwrap();
        let peer = to.driver.address().into();
        from.engine.send(clock.now(), PATH, peer, Area::new(from.region, 0, 1 << 20)).unwrap();
        while from.sent + to.received < 2 {
            assert!(clock.now() < Instant::ZERO + PATIENCE, "stuck");
            from.turn(&clock);
            to.turn(&clock);
        }
        let counters = *to.driver.counters();
        assert_eq!(counters.bytes_copied, 0, "{counters:?}");
        assert_eq!(counters.payload_bytes, 1 << 20, "{counters:?}");
        assert_same(&to.contents(), &bytes);
    }
}

#[test]
fn a_driver_may_go_from_thread_to_thread_and_sleep_there() {
    skip_unless!(why_no_uring());
    let clock = Clock::start();
    let (mut from, mut to) = ends::<UringUdpDriver, UringUdpDriver>(ZeroCopy::Always, &clock);
    let receiver = thread::spawn(move || {
        let mut waiter = Waiter::new(Wait::Block);
        while to.received < SIZES.len() {
            assert!(clock.now() < Instant::ZERO + PATIENCE, "stuck");
            if !to.turn(&clock) {
                waiter.idle(&mut to.driver, &to.engine, &clock, PATIENCE).unwrap();
            }
        }
        // Answers may be lost; the sender then asks again.
        (0..200).for_each(|_| {
            to.turn(&clock);
            thread::sleep(Duration::from_millis(1));
        });
        to
    });
    while from.sent < SIZES.len() {
        assert!(clock.now() < Instant::ZERO + PATIENCE, "stuck");
        // A thread of its own for a few turns: none of them is the ring's.
        let stay = thread::spawn(move || {
            let mut waiter = Waiter::new(Wait::Block);
            for _ in 0..50 {
                if !from.turn(&clock) && from.sent < SIZES.len() {
                    let at_most = Duration::from_millis(50);
                    waiter.idle(&mut from.driver, &from.engine, &clock, at_most).unwrap();
                }
            }
            from
        });
        from = stay.join().unwrap();
    }
    assert_same(&receiver.join().unwrap().contents(), &messages());
}

#[test]
fn junk_changes_nothing_but_counters() {
    skip_unless!(why_no_uring());
    let clock = Clock::start();
    let (mut from, mut to) = ends::<UringUdpDriver, UringUdpDriver>(ZeroCopy::Never, &clock);
    let junk = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut random = Random::from_number(0x10_0b5);
    let bytes: Vec<u8> = (0..65_507).map(|_| random.next_u32() as u8).collect();
    // Empty, short, as long as a unit, longer than anything guessed.
    let mut lengths = [0, 1, 7, 40, 4136, 9001, 65_507].into_iter().cycle();
    while from.sent < SIZES.len() || to.received < SIZES.len() {
        assert!(clock.now() < Instant::ZERO + PATIENCE, "stuck");
        for address in [from.driver.address(), to.driver.address()] {
            let len = lengths.next().unwrap_or_default();
            let start = random.below((bytes.len() - len) as u64 + 1) as usize;
            junk.send_to(&bytes[start..start + len], address).unwrap();
        }
        // Each turn takes one of them, and one more for what is meant.
        for _ in 0..3 {
            from.turn(&clock);
            to.turn(&clock);
        }
    }
    let refused = |end: &End<UringUdpDriver>| end.driver.counters().refused;
    assert!(refused(&from) + refused(&to) > 0, "no junk arrived");
    assert_same(&to.contents(), &messages());
    assert_same(&from.contents(), &messages());
}
