//! Bulk transfer over UDP beside kernel TCP: `udp_bulk [MTU [PAYLOAD [SECONDS]]]`.
//!
//! As root it makes two network namespaces and a cable between them, else it
//! uses loopback. Messages of 1 MiB are received over and over into the same
//! 64 MiB; what the drivers counted is printed for both ends.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use landfall_placement::{Engine, PathId, PathState, Peer};
use landfall_testbed::rivals::{Amount, Endpoints, Plan, TcpThroughput};
use landfall_testbed::{Namespace, VethConfig, VethPair, cpu, privileges};
use landfall_testkit::engines::numbered::{Config, Event};
use landfall_testkit::engines::{Area, Numbered};
use landfall_transport::memory::{Arena, ArenaConfig, Regions, Rights};
use landfall_transport::udp::{UdpConfig, UdpDriver};
use landfall_transport::{Clock, Counters, Driver, Wait, Waiter};

const PATH: PathId = PathId(0);
const MESSAGE: u64 = 1 << 20;
const MEMORY: u64 = 64 << 20;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// What both ends share.
#[derive(Default)]
struct Progress {
    stop: AtomicBool,
    delivered: AtomicU64,
}

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u32>());
    let mtu = arguments.next().transpose()?.unwrap_or(1500);
    let payload = arguments.next().transpose()?.unwrap_or(1024);
    let seconds = Duration::from_secs(arguments.next().transpose()?.unwrap_or(2).into());
    let cable = match privileges::why_no_namespaces() {
        None => Some(VethPair::new(VethConfig { mtu, ..VethConfig::default() })?),
        Some(why) => {
            println!("over loopback, since {why}");
            None
        }
    };
    let endpoints = cable.as_ref().map_or_else(Endpoints::loopback, Endpoints::over)?;
    let tcp = TcpThroughput::new(Plan::new(endpoints, Amount::Time(seconds))).run()?;
    println!("kernel TCP  {:.2} GB/s", tcp.goodput() / 1e9);

    let ours = bulk(cable.as_ref(), mtu, payload, seconds)?;
    println!("ours        {:.2} GB/s   {:.2} x", ours / 1e9, ours / tcp.goodput());
    Ok(())
}

/// Streams messages for a while; gives bytes per second.
fn bulk(cable: Option<&VethPair>, mtu: u32, payload: u32, time: Duration) -> Result<f64, Error> {
    let [from, to] = match cable {
        Some(cable) => cable.ends().map(|end| IpAddr::from(end.ipv4)),
        None => [IpAddr::from(Ipv4Addr::LOCALHOST); 2],
    };
    let shared = Arc::new(Progress::default());
    let receiver = open(cable.map(|cable| &cable.b.namespace), to, mtu)?;
    let address = receiver.0.local_address();
    let sender = open(cable.map(|cable| &cable.a.namespace), from, mtu)?;
    let receiving = spawn(1, receiver, &shared, move |end| end.receive_messages(payload));
    let sending = spawn(0, sender, &shared, move |end| end.send_messages(payload, address));
    std::thread::sleep(time / 10);
    let (start, before) = (Instant::now(), shared.delivered.load(Ordering::Relaxed));
    std::thread::sleep(time);
    let bytes = shared.delivered.load(Ordering::Relaxed) - before;
    let goodput = bytes as f64 / start.elapsed().as_secs_f64();
    shared.stop.store(true, Ordering::Relaxed);
    for (name, thread) in [("sender", sending), ("receiver", receiving)] {
        let counters = thread.join().map_err(|_| "an end panicked")??;
        println!("{name}: {counters:#?}, {:.1} units a call", counters.units_per_receive());
    }
    Ok(goodput)
}

fn open(
    namespace: Option<&Namespace>,
    ip: IpAddr,
    mtu: u32,
) -> Result<(UdpDriver, Regions), Error> {
    let regions = Regions::new(4);
    let config = UdpConfig::new(SocketAddr::new(ip, 0), mtu);
    let open = || UdpDriver::open(PATH, config, &regions);
    let driver = namespace.map_or_else(|| Ok(open()), |namespace| namespace.enter(open))??;
    Ok((driver, regions))
}

/// One end, on its own thread and core.
struct End {
    driver: UdpDriver,
    regions: Regions,
    shared: Arc<Progress>,
    clock: Clock,
    waiter: Waiter,
}

fn spawn(
    core: usize,
    (driver, regions): (UdpDriver, Regions),
    shared: &Arc<Progress>,
    run: impl FnOnce(&mut End) -> Result<(), Error> + Send + 'static,
) -> JoinHandle<Result<Counters, Error>> {
    let shared = Arc::clone(shared);
    std::thread::spawn(move || {
        cpu::pin_this_thread(core)?;
        let (clock, waiter) = (Clock::start(), Waiter::new(Wait::Block));
        let mut end = End { driver, regions, shared, clock, waiter };
        run(&mut end)?;
        Ok(*end.driver.counters())
    })
}

impl End {
    fn engine(&self, payload: u32) -> Numbered {
        // On a busy machine a thread may have to wait long for its core.
        let config =
            Config { retransmit_after: Duration::from_millis(200), ..Config::with_unit(payload) };
        let mut engine = Numbered::new(config, [payload as u8; 32]);
        engine.handle_path(self.clock.now(), PATH, PathState::Up(self.driver.limits()));
        engine
    }

    fn receive_messages(&mut self, payload: u32) -> Result<(), Error> {
        let mut engine = self.engine(payload);
        let memory = Arena::new(ArenaConfig::default()).take(MEMORY as usize)?;
        let region = self.regions.lend(memory, Rights::READ | Rights::WRITE)?;
        for n in 0..MEMORY / MESSAGE {
            engine.receive_into(Area::new(region, n * MESSAGE, MESSAGE))?;
        }
        self.run(&mut engine, |engine, shared, event| {
            if let Event::Delivered { posted, len, .. } = event {
                shared.delivered.fetch_add(len, Ordering::Relaxed);
                engine.receive_into(posted)?;
            }
            Ok(())
        })
    }

    fn send_messages(&mut self, payload: u32, to: SocketAddr) -> Result<(), Error> {
        let mut engine = self.engine(payload);
        let memory = Arena::new(ArenaConfig::default()).take(MEMORY as usize)?;
        let region = self.regions.lend(memory, Rights::READ)?;
        let clock = self.clock;
        let mut next = 0;
        let mut send = move |engine: &mut Numbered| {
            let area = Area::new(region, next % MEMORY, MESSAGE);
            next += MESSAGE;
            engine.send(clock.now(), PATH, Peer::Socket(to), area)
        };
        for _ in 0..4 {
            send(&mut engine)?;
        }
        self.run(&mut engine, |engine, _, event| {
            if let Event::Sent { .. } = event {
                send(engine)?;
            }
            Ok(())
        })
    }

    fn run(
        &mut self,
        engine: &mut Numbered,
        mut handle: impl FnMut(&mut Numbered, &Progress, Event) -> Result<(), Error>,
    ) -> Result<(), Error> {
        while !self.shared.stop.load(Ordering::Relaxed) {
            let progress = self.driver.turn(engine, self.clock.now())?;
            while let Some(event) = engine.poll_event() {
                handle(engine, &self.shared, event)?;
            }
            if progress.any() {
                self.waiter.busy();
            } else {
                let patience = Duration::from_millis(100);
                self.waiter.idle(&mut self.driver, engine, &self.clock, patience)?;
            }
        }
        println!("units sent again: {}", engine.retransmitted());
        Ok(())
    }
}
