//! The test engine over UDP beside kernel TCP, over loopback, in one run.
//! `landfall perf local` measures more, interleaved and over a virtual cable.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use landfall_placement::{Engine, PathId, PathState, Peer};
use landfall_testbed::rivals::{Amount, Endpoints, Plan, TcpThroughput};
use landfall_testkit::engines::numbered::{Config, Event};
use landfall_testkit::engines::{Area, Numbered};
use landfall_transport::memory::{Memory, Regions, Rights};
use landfall_transport::udp::{UdpConfig, UdpDriver};
use landfall_transport::{Clock, Driver, Wait, Waiter};

const PATH: PathId = PathId(0);
const TRANSFER: u64 = 64 << 20;
const MESSAGE: u64 = 512 << 10;
const SLOTS: u64 = 16;
/// Nothing here takes as long; a run that does is broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// One end: an engine, its driver, and the memory that it was lent.
struct End {
    engine: Numbered,
    driver: UdpDriver,
    clock: Clock,
    waiter: Waiter,
    slots: Vec<Area>,
}

impl End {
    fn open(seed: u8) -> Self {
        let regions = Regions::new(4);
        let address: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let config = UdpConfig::new(address, 65_535);
        let driver = UdpDriver::open(PATH, config, &regions).expect("a UDP socket");
        let memory = Memory::zeroed((MESSAGE * SLOTS) as usize);
        let region = regions.lend(memory, Rights::READ | Rights::WRITE).expect("room");
        // A window that fits the receive buffer of an ordinary user, too.
        let config = Config {
            window: 1 << 20,
            retransmit_after: Duration::from_millis(200),
            ..Config::with_unit(8192)
        };
        let clock = Clock::start();
        let mut engine = Numbered::new(config, [seed; 32]);
        engine.handle_path(clock.now(), PATH, PathState::Up(driver.limits()));
        let slots = (0..SLOTS).map(|n| Area::new(region, n * MESSAGE, MESSAGE)).collect();
        Self { engine, driver, clock, waiter: Waiter::new(Wait::Block), slots }
    }

    /// Turns until `handle` has counted `messages`.
    fn run(&mut self, messages: u64, mut handle: impl FnMut(&mut Numbered, Event) -> u64) {
        let deadline = self.clock.now() + PATIENCE;
        let mut counted = 0;
        while counted < messages {
            assert!(self.clock.now() < deadline, "stuck after {counted} of {messages} messages");
            let progress = self.driver.turn(&mut self.engine, self.clock.now()).expect("a turn");
            while let Some(event) = self.engine.poll_event() {
                counted += handle(&mut self.engine, event);
            }
            if progress.any() {
                self.waiter.busy();
            } else {
                let (driver, engine) = (&mut self.driver, &self.engine);
                self.waiter.idle(driver, engine, &self.clock, PATIENCE).expect("a wait");
            }
        }
    }
}

/// Sends this many messages from one thread to another; gives how long it took.
fn over_udp(messages: u64) -> Duration {
    let (mut from, mut to) = (End::open(1), End::open(2));
    let peer = Peer::Socket(to.driver.local_address());
    for slot in &to.slots {
        to.engine.receive_into(*slot).expect("memory is posted");
    }
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(move || {
            to.run(messages, |engine, event| {
                let Event::Delivered { posted, .. } = event else { return 0 };
                engine.receive_into(posted).expect("memory is posted again");
                1
            });
            // What it said last may be lost: it answers until the sender is content.
            let until = to.clock.now() + Duration::from_millis(20);
            while to.clock.now() < until {
                to.driver.turn(&mut to.engine, to.clock.now()).expect("a turn");
            }
        });
        let (clock, slots) = (from.clock, from.slots.clone());
        let mut next = slots.iter().cycle();
        let mut left = messages;
        let mut send = move |engine: &mut Numbered| {
            if left > 0 {
                left -= 1;
                let slot = *next.next().expect("a cycle has no end");
                engine.send(clock.now(), PATH, peer, slot).expect("a message is taken");
            }
        };
        (0..3).for_each(|_| send(&mut from.engine));
        from.run(messages, |engine, event| {
            let Event::Sent { .. } = event else { panic!("{event:?}") };
            send(engine);
            1
        });
        start.elapsed()
    })
}

fn over_tcp(bytes: u64) -> Duration {
    let endpoints = Endpoints::loopback().expect("loopback");
    let plan = Plan::new(endpoints, Amount::Bytes(bytes));
    let sample = TcpThroughput::new(plan).run().expect("kernel TCP works");
    Duration::from_secs_f64(sample.seconds)
}

fn drivers(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("64 MiB over loopback");
    group.throughput(Throughput::Bytes(TRANSFER)).sample_size(10);
    group.bench_function("kernel TCP", |b| b.iter_custom(|times| over_tcp(times * TRANSFER)));
    group.bench_function("test engine over UDP", |b| {
        b.iter_custom(|times| over_udp(times * (TRANSFER / MESSAGE)));
    });
    group.finish();
}

criterion_group!(benches, drivers);
criterion_main!(benches);
