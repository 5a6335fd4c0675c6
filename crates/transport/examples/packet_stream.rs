//! A byte stream in real TCP frames over packet sockets, beside kernel TCP:
//! `packet_stream [MTU [SECONDS [ROUNDS]]]`.
//!
//! As root it makes two network namespaces and a cable between them. The
//! stream's ends are engines, each on a core of its own; super-packets of up
//! to 62 KiB cross the cable whole and are received over and over straight
//! into the same few megabytes. Round trips are of one byte, both sides spin.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use landfall_placement::{Engine, PathId, PathState};
use landfall_testbed::rivals::{Amount, Endpoints, Plan, Polling, TcpLatency, TcpThroughput};
use landfall_testbed::{
    Candidate, Comparison, RttHistogram, Sample, Spread, VethConfig, VethEnd, VethPair, cpu,
    interleave,
};
use landfall_testkit::engines::stream::{Config, Event, Framing, Station};
use landfall_testkit::engines::{Area, Stream};
use landfall_transport::memory::{Memory, Regions, Rights};
use landfall_transport::packet::{self, Filter, PacketConfig, PacketDriver};
use landfall_transport::{Clock, Counters, Driver, Wait, Waiter};

const PATH: PathId = PathId(0);
const PORT: u16 = 7000;
/// This many areas are posted at each end, each of this many units.
const AREAS: u64 = 16;
const UNITS: u64 = 8;
const WINDOW: u32 = 16 << 20;
/// The largest that TCP writes without scaling: a larger one is told in steps
/// that a few posted bytes are less than.
const SMALL_WINDOW: u32 = 65_535;

type Error = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u32>());
    let mtu = arguments.next().transpose()?.unwrap_or(1500);
    let time = Duration::from_secs(arguments.next().transpose()?.unwrap_or(1).into());
    let rounds = arguments.next().transpose()?.unwrap_or(5) as usize;
    let cable = VethPair::new(VethConfig { mtu, ..VethConfig::default() })?;
    let plan = Plan::new(Endpoints::over(&cable)?, Amount::Time(time));
    let spin = plan.clone().polling(Polling::Spin);

    let ours = || run(&cable, time, throughput).map_err(candidate_failed);
    let result = interleave(
        rounds,
        &mut [
            Candidate::new("tcp", || TcpThroughput::new(plan.clone()).run()),
            Candidate::new("ours", ours),
        ],
    );
    print(&result, "GB/s", |sample| sample.goodput() / 1e9);
    print(&result, "CPU-s/GB", |sample| sample.cpu_per_gb().machine_s);
    let ours = || run(&cable, time, round_trips).map_err(candidate_failed);
    let result = interleave(
        rounds,
        &mut [
            Candidate::new("tcp", || TcpLatency::new(spin.clone(), 1).run()),
            Candidate::new("ours", ours),
        ],
    );
    print(&result, "µs round trip", |sample| sample.rtt_p50_ns() / 1e3);
    Ok(())
}

fn candidate_failed(source: Error) -> landfall_testbed::Error {
    landfall_testbed::Error::Candidate { label: "ours".into(), source }
}

fn print(result: &Comparison, unit: &str, figure: fn(&Sample) -> f64) {
    for measured in &result.measured {
        match (measured.spread(figure), &measured.failure) {
            (Some(Spread { median, min, max, .. }), None) => {
                println!("{:5} {median:6.2} {unit} ({min:.2} to {max:.2})", measured.label);
            }
            (_, failure) => println!("{:5} failed: {failure:?}", measured.label),
        }
    }
    if let Some(ratio) = result.ratio("ours", "tcp", figure) {
        println!("ratio {ratio:6.2}");
    }
}

/// The address of a second station at this end of the cable.
fn own_station(end: &VethEnd) -> [u8; 6] {
    let mut station = end.mac.0;
    station[3] ^= 0x80;
    station
}

/// One end of the stream.
struct End {
    engine: Stream,
    driver: PacketDriver,
    clock: Clock,
    waiter: Waiter,
    regions: Regions,
}

impl End {
    fn open(cable: &VethPair, at_a: bool, window: u32, wait: Wait) -> Result<Self, Error> {
        let [a, b] = cable.ends();
        let (from, to) = if at_a { (a, b) } else { (b, a) };
        let station = |end: &VethEnd| Station {
            // Addresses that the kernel does not have: it would answer, and
            // look at each frame to find out that it need not.
            mac: own_station(end),
            ip: Ipv4Addr::from(end.ipv4.to_bits() | 0x80),
            port: PORT,
        };
        let framing = Framing::EthernetIpv4Tcp { local: station(from), remote: station(to) };
        let filter = Filter::ethertypes([0x0800]).station(own_station(from));
        let config = PacketConfig::new(from.name.as_str(), packet::Framing::Ethernet { filter });
        let regions = Regions::new(2);
        let driver = from.namespace.enter(|| PacketDriver::open(PATH, &config, &regions))??;
        let config = Config { window, ..Config::new(framing, PATH).steady() };
        let seed = [u8::from(at_a); 32];
        let mut engine =
            if at_a { Stream::connect(config, seed) } else { Stream::listen(config, seed) };
        let clock = Clock::start();
        engine.handle_path(clock.now(), PATH, PathState::Up(driver.limits()));
        Ok(Self { engine, driver, clock, waiter: Waiter::new(wait), regions })
    }

    /// Memory in areas of `len` bytes.
    fn areas(&self, len: u64, rights: Rights) -> Result<Vec<Area>, Error> {
        let memory = Memory::zeroed((AREAS * len) as usize);
        let region = self.regions.lend(memory, rights)?;
        Ok((0..AREAS).map(|n| Area::new(region, n * len, len)).collect())
    }

    /// Turns until `stop`, and lets `handle` see each event.
    fn run_until(
        &mut self,
        stop: &AtomicBool,
        mut handle: impl FnMut(&mut Stream, Event) -> Result<(), Error>,
    ) -> Result<(), Error> {
        while !stop.load(Ordering::Relaxed) {
            let progress = self.driver.turn(&mut self.engine, self.clock.now())?;
            while let Some(event) = self.engine.poll_event() {
                handle(&mut self.engine, event)?;
            }
            if progress.any() {
                self.waiter.busy();
            } else {
                let patience = Duration::from_millis(10);
                self.waiter.idle(&mut self.driver, &self.engine, &self.clock, patience)?;
            }
        }
        Ok(())
    }
}

/// What both ends and the one who measures share.
#[derive(Default)]
struct Progress {
    stop: AtomicBool,
    delivered: AtomicU64,
}

/// What an end does, at `a` (true) and at `b`, until it is stopped.
type Work = fn(&VethPair, bool, &Progress, &mut Sample) -> Result<Counters, Error>;

/// Both ends on threads and cores of their own, for a while.
fn run(cable: &VethPair, time: Duration, work: Work) -> Result<Sample, Error> {
    let shared = Progress::default();
    let cores = cpu::allowed_cores()?;
    let mut sample = Sample::default();
    std::thread::scope(|scope| {
        let end = |at_a: bool| {
            let (shared, core) = (&shared, cores[usize::from(at_a) % cores.len()]);
            move || {
                cpu::pin_this_thread(core)?;
                let mut sample = Sample::default();
                let counters = work(cable, at_a, shared, &mut sample);
                // If one end fails, the other shall not go on.
                if counters.is_err() {
                    shared.stop.store(true, Ordering::Relaxed);
                }
                counters.map(|counters| (counters, sample))
            }
        };
        let (b, a) = (scope.spawn(end(false)), scope.spawn(end(true)));
        std::thread::sleep(time / 10);
        let (start, before) = (Instant::now(), shared.delivered.load(Ordering::Relaxed));
        let busy = cpu::machine_busy_s()?;
        std::thread::sleep(time);
        sample.bytes = shared.delivered.load(Ordering::Relaxed) - before;
        sample.seconds = start.elapsed().as_secs_f64();
        sample.cpu.machine_s = cpu::machine_busy_s()? - busy;
        shared.stop.store(true, Ordering::Relaxed);
        let panicked = |_| Error::from("an end panicked");
        let (counters_a, sample_a) = a.join().map_err(panicked)??;
        let (counters_b, _) = b.join().map_err(panicked)??;
        sample.rtt = sample_a.rtt;
        sample.user_copied_bytes = counters_a.bytes_copied + counters_b.bytes_copied;
        if std::env::var_os("COUNTERS").is_some() {
            eprintln!("a: {counters_a:#?}\nb: {counters_b:#?}");
        }
        Ok(sample)
    })
}

fn throughput(
    cable: &VethPair,
    at_a: bool,
    shared: &Progress,
    sample: &mut Sample,
) -> Result<Counters, Error> {
    let mut end = End::open(cable, at_a, WINDOW, Wait::BALANCED)?;
    let len = UNITS * u64::from(end.engine.unit_payload());
    if at_a {
        for area in end.areas(len, Rights::READ)? {
            end.engine.send(area)?;
        }
    } else {
        for area in end.areas(len, Rights::WRITE)? {
            end.engine.receive_into(area)?;
        }
    }
    end.run_until(&shared.stop, |engine, event| {
        match event {
            Event::Sent { memory } => engine.send(memory)?,
            Event::Received { posted, len } => {
                shared.delivered.fetch_add(len, Ordering::Relaxed);
                engine.receive_into(posted)?;
            }
            _ => {}
        }
        Ok(())
    })?;
    sample.retransmitted = end.engine.retransmitted();
    Ok(*end.driver.counters())
}

fn round_trips(
    cable: &VethPair,
    at_a: bool,
    shared: &Progress,
    sample: &mut Sample,
) -> Result<Counters, Error> {
    let mut end = End::open(cable, at_a, SMALL_WINDOW, Wait::Spin)?;
    for area in end.areas(1, Rights::WRITE)? {
        end.engine.receive_into(area)?;
    }
    let byte = end.areas(1, Rights::READ)?[0];
    let mut round_trips = RttHistogram::new();
    let mut asked = None;
    end.run_until(&shared.stop, |engine, event| {
        match event {
            Event::Connected if at_a => {
                asked = Some(Instant::now());
                engine.send(byte)?;
            }
            Event::Received { posted, len } => {
                shared.delivered.fetch_add(len, Ordering::Relaxed);
                engine.receive_into(posted)?;
                if let Some(asked) = asked.replace(Instant::now()).filter(|_| at_a) {
                    round_trips.record(asked.elapsed());
                }
                engine.send(byte)?;
            }
            _ => {}
        }
        Ok(())
    })?;
    sample.rtt = round_trips.summary();
    Ok(*end.driver.counters())
}
