//! What the model has beside the paper's section 5 and its TCP/IP: two hosts with adapters
//! over a native link, frame by frame. The engine is in adapter mode: bursts go to memory
//! without it, and a tripwire that fires interrupts the host. What hosts spend is charged to
//! their processors. The costs are the caller's.
//!
//! | file | what is there |
//! | --- | --- |
//! | `host` | [`HostProcessor`]: jobs one after another, which interrupts delay |
//! | `server` | the event-based server: round trips, requests, messages that are acknowledged |
//! | `ip` | TCP/IP over CLAN: packets into buffers whose cookies are in a queue |

mod host;
mod ip;
mod server;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use clan_dsm::native::wire::Unit;
use clan_dsm::offload::{Action, Secret};
use clan_dsm::{
    Access, ApertureId, Config, Cookie, Event, HostId, NativeConfig, Nic, Rights, TripwireId, WORD,
    WindowId,
};
use landfall_placement::{Area, Duration, Instant, Random};
use landfall_simnet::memory::Writer;
use landfall_simnet::sim::Fate;
use landfall_simnet::{EngineConfig, Frame, Handle, LinkConfig, Node, Outbox, PortId};

use super::{Clan, Cycles, Entries, Tables};
use crate::machine::{Adapter, BridgeCosts, Coalescing, Costs, Lock, Parts, Sizes, time_of};
use crate::node::NicNode;
use crate::runs;
use crate::world::{Runs, World};
pub use host::HostProcessor;
pub(crate) use ip::{ACKNOWLEDGED, SOCKET_BUFFER};
pub use ip::{IpCosts, ip_round_trip, ip_stream};
pub use server::{Requests, acknowledged, requests, round_trip};

/// The constants of a run.
#[derive(Clone, Copy, Debug)]
pub struct Design {
    /// What the adapter's logic spends.
    pub cycles: Cycles,
    /// What the machine costs.
    pub costs: Costs,
    /// Bits in a second on the link.
    pub link: u64,
    /// From the last bit that leaves to the last that arrives.
    pub delay: Duration,
    /// From the moment at which a host is interrupted until it has heard.
    pub interrupt: Duration,
    /// For so long an interrupt keeps a host's processor.
    pub interrupt_busy: Duration,
    /// From there until a process that slept runs.
    pub wake: Duration,
    /// A call of the system.
    pub call: Duration,
    /// A server that has nothing to do asks for so long before it sleeps.
    pub patience: Duration,
    /// What a server spends on a request and its answer.
    pub handling: Duration,
    /// Setting the DMA engine up, beside the interrupt that the one before ends with.
    pub setup: Duration,
}

impl Design {
    /// The hosts of the paper: 530 MHz Alphas. Section 5.1 has the interrupt, the process that
    /// is woken and the call; 5.3 the server's patience; 5.3.2 that a transfer's 6 µs of set-up
    /// are an interrupt and this. What a server spends on a request is fitted to 7.9 µs.
    pub const PAPER: Self = Self {
        cycles: Cycles::CLAN,
        costs: super::COSTS,
        link: super::LINK,
        delay: Duration::from_nanos(50),
        interrupt: Duration::from_micros(3),
        interrupt_busy: Duration::from_micros(3),
        wake: Duration::from_micros(8),
        call: Duration::from_nanos(750),
        patience: Duration::from_micros(15),
        handling: Duration::from_nanos(1_000),
        setup: Duration::from_micros(3),
    };

    /// The receiving bridge stalls for this many cycles before each burst. The transaction is
    /// among them.
    #[must_use]
    pub const fn with_stall(self, cycles: u32) -> Self {
        let recovery = super::recovery(cycles, self.costs.bus.transaction);
        self.with_bridge(BridgeCosts { recovery, ..self.costs.bridge })
    }

    /// With another bridge.
    #[must_use]
    pub const fn with_bridge(self, bridge: BridgeCosts) -> Self {
        Self { costs: Costs { bridge, ..self.costs }, ..self }
    }

    /// The adapter of the receiver joins bursts before it feeds them to the bridge, as the paper's
    /// next one, which then never locks.
    #[must_use]
    pub const fn joining(self) -> Self {
        self.with_bridge(BridgeCosts { joins: super::DMA_BURST, ..self.costs.bridge })
    }

    /// The bridge locks so.
    #[must_use]
    pub const fn with_lock(self, lock: Lock) -> Self {
        self.with_bridge(BridgeCosts { lock: Some(lock), ..self.costs.bridge })
    }
}

/// No run has more steps.
const MOST_STEPS: u32 = 2_000_000;
/// Nothing takes longer.
const LIMIT: Duration = Duration::from_secs(2);
/// How long a link takes to be up, and adapters to know what there is.
const SETTLING: Duration = Duration::from_millis(5);

type Host = NicNode<Clan<'static>, Nic>;
/// What a host was told and has not looked at.
type EventQueue = Rc<RefCell<VecDeque<Event>>>;

/// Memory of one host that the other one writes to.
#[derive(Clone, Copy, Debug)]
struct Exposed {
    area: Area,
    /// As the other host has it.
    window: WindowId,
    /// The tripwire on its last word.
    tripwire: Option<TripwireId>,
}

/// Somebody who waits: time passes where nothing else happens, too.
#[derive(Debug)]
struct Alarm(Option<Instant>);

impl Node for Alarm {
    fn handle_frame(&mut self, _: Instant, _: PortId, _: Frame, _: &mut Outbox<'_>) {}

    fn handle_timeout(&mut self, _: Instant, _: &mut Outbox<'_>) {
        self.0 = None;
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.0
    }
}

/// Two hosts, the link between them, and memory of each that the other one has mapped.
struct Pair {
    world: World<Nic, Host>,
    alarm: Handle<Alarm>,
    told: [EventQueue; 2],
    /// Words of memory that have left a host, but for headers.
    left: [Rc<Cell<u64>>; 2],
    /// How often each host had been interrupted when that was last asked.
    interrupts: [u64; 2],
    deadline: Instant,
    /// This many steps more may be done.
    steps: u32,
}

/// Who hears of an interrupt at once, and who after [`Design::interrupt`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listens {
    /// Its program looks at memory all the time, and its driver is never waited for.
    Spinning,
    Interrupted,
}

fn host(design: &Design, number: u16, listens: Listens, told: EventQueue) -> Option<Host> {
    let id = HostId::new(number)?;
    let native = NativeConfig { adapter: true, ..NativeConfig::default() };
    let config = Config { native: Some(native), ..Config::default() };
    let secret = Secret::new(&mut Random::from_number(number.into()));
    let entries = Entries { apertures: 4_096, ..Entries::default() };
    let habits = super::Config { cycles: design.cycles, ..super::Config::new(id, native.room) };
    let firmware = Clan::new(Tables::owned(&entries, secret), habits);
    let interrupts = match listens {
        Listens::Spinning => Coalescing::Watched,
        Listens::Interrupted => design.costs.interrupts,
    };
    let costs = Costs { interrupts, ..design.costs };
    let adapter = Adapter::new(firmware, Parts::owned(&Sizes::default()), costs);
    let nic = Nic::new(config, id, [number as u8; 32]).ok()?;
    // Both sides write to the same words, a message after the other.
    let how = EngineConfig { shared: true, ..EngineConfig::default() };
    let node = Host::with_config(nic, vec![adapter], how);
    let node = match listens {
        Listens::Spinning => node,
        Listens::Interrupted => node.interrupt_latency(design.interrupt),
    };
    Some(node.with_handler(move |_, _, _, event| told.borrow_mut().push_back(event)))
}

impl Pair {
    /// Two hosts, and how each listens; nothing where the link does not come up.
    fn new(design: &Design, listens: [Listens; 2]) -> Option<Self> {
        Self::between([design; 2], listens)
    }

    /// Two hosts that are not alike, on the link of the first.
    fn between(designs: [&Design; 2], listens: [Listens; 2]) -> Option<Self> {
        let told = [EventQueue::default(), EventQueue::default()];
        let [first, second] = [0, 1]
            .map(|side| host(designs[side], side as u16 + 1, listens[side], told[side].clone()));
        let [design, _] = designs;
        let mut world = World::new(1, ("host 1", first?), ("host 2", second?));
        let link =
            LinkConfig { overhead: 0, delay: design.delay, ..LinkConfig::ethernet(design.link) };
        // A unit that is told to wait is not behind others that nobody can take back.
        let link = world.connect(link.queue_frames(2))?;
        let left = [Rc::default(), Rc::default()];
        for (way, left) in [link.there(), link.back()].into_iter().zip(&left) {
            let left: Rc<Cell<u64>> = Rc::clone(left);
            let count = move |_: Instant, frame: &mut Frame| {
                if let Ok(Unit::Packet(burst)) = Unit::parse(&frame.bytes, frame.bytes.len() as u32)
                {
                    left.set(left.get() + u64::from(burst.words()));
                }
                Fate::Pass
            };
            world.sim_mut().intercept(way, count).ok()?;
        }
        let alarm = world.sim_mut().add("alarm", Alarm(None)).ok()?;
        let deadline = Instant::ZERO + LIMIT;
        let interrupts = [0; 2];
        let steps = MOST_STEPS;
        let mut pair = Self { world, alarm, told, left, interrupts, deadline, steps };
        pair.settle()?;
        Some(pair)
    }

    /// This side exposes this many bytes to the other one, with a tripwire on the last word or
    /// without.
    fn expose(&mut self, side: usize, len: u32, is_watched: bool) -> Option<Exposed> {
        let area = self.world.lend(side, vec![0; len as usize]);
        let engine = self.world.engine_mut(side);
        let aperture: ApertureId = engine.expose(area).ok()?;
        let cookie: Cookie = engine.cookie(aperture, Rights::ReadWrite).ok()?;
        let tripwire = if is_watched {
            let last = u64::from(len - WORD)..u64::from(len);
            let wire = engine.watch(aperture, last, Access::Write, Action::Event, false);
            Some(wire.ok()?)
        } else {
            None
        };
        let window = self.world.engine_mut(1 - side).map(&cookie).ok()?;
        Some(Exposed { area, window, tripwire })
    }

    /// All that was exposed is known to the adapters.
    fn settle(&mut self) -> Option<()> {
        let until = self.world.now() + SETTLING;
        while self.world.now() < until {
            self.step(Some(until))?;
        }
        self.told.iter().for_each(|told| told.borrow_mut().clear());
        self.interrupts = [0, 1].map(|side| self.count_interrupts(side));
        self.deadline = self.world.now() + LIMIT;
        Some(())
    }

    fn count_interrupts(&self, side: usize) -> u64 {
        self.world.node(side).adapters().iter().map(Adapter::interrupts).sum()
    }

    /// Was a host interrupted since this was last asked?
    fn is_interrupted(&mut self, side: usize) -> bool {
        let count = self.count_interrupts(side);
        std::mem::replace(&mut self.interrupts[side], count) != count
    }

    /// The last word of memory.
    fn last_word(&self, side: usize, memory: &Exposed) -> u64 {
        let at = memory.area.len - u64::from(WORD);
        let span = memory.area.span(at, WORD);
        let bytes = self.world.memory(side).read(span).ok().and_then(|bytes| bytes.first_chunk());
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// A program of this side stores a word into the last place of the other's memory.
    fn store(&mut self, side: usize, memory: &Exposed, word: u64) -> Option<()> {
        let now = self.world.now();
        let at = memory.area.len - u64::from(WORD);
        self.world.engine_mut(side).write(now, memory.window, at, &word.to_le_bytes()).ok()
    }

    /// The DMA engine of this side moves all of its own memory there; the last word of it is
    /// this one.
    fn send(&mut self, side: usize, from: Area, memory: &Exposed, word: u64) -> Option<()> {
        let now = self.world.now();
        let span = from.span(from.len - u64::from(WORD), WORD);
        let bytes = word.to_le_bytes();
        self.world.memory_mut(side).write(now, Writer::User, span, &bytes).ok()?;
        let at = memory.area.len - from.len;
        self.world.engine_mut(side).write_from(now, memory.window, at, from).ok()?;
        Some(())
    }

    /// When the DMA engine of a side was done with the last that it fetched, if this many words
    /// have left.
    fn is_fetched(&self, side: usize, words: u64) -> Option<Instant> {
        if self.left[side].get() < words {
            return None;
        }
        let engines = self.world.node(side).adapters().iter().map(|it| it.dma()[0].free_at());
        engines.max().map(|at| at.max(self.world.now()))
    }

    /// The next thing happens, but nothing behind `until`; nothing where it took too long.
    fn step(&mut self, until: Option<Instant>) -> Option<()> {
        self.steps = self.steps.checked_sub(1)?;
        let until = until.unwrap_or(self.deadline).min(self.deadline);
        if let Ok(alarm) = self.world.sim_mut().node_mut(self.alarm) {
            alarm.0 = Some(until);
        }
        self.world.step(until);
        (self.world.now() < self.deadline && self.world.wrong().is_empty()).then_some(())
    }
}

/// From a program's store until a program of the other host, which looks all the time, sees
/// it; nothing where it never does. With `answers` until the other's answer is seen here.
#[must_use]
pub fn word(design: &Design, answers: bool) -> Option<Duration> {
    runs::once("clan word", &(design, answers), || run_word(design, answers))
}

fn run_word(design: &Design, answers: bool) -> Option<Duration> {
    let mut pair = Pair::new(design, [Listens::Spinning; 2])?;
    let here = pair.expose(0, WORD, false)?;
    let there = pair.expose(1, WORD, false)?;
    pair.settle()?;
    let began = pair.world.now();
    pair.store(0, &there, 7)?;
    while pair.last_word(1, &there) != 7 {
        pair.step(None)?;
    }
    if answers {
        pair.store(1, &here, 7)?;
        while pair.last_word(0, &here) != 7 {
            pair.step(None)?;
        }
    }
    Some(pair.world.now().since(began))
}

/// How one long message came.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Raw {
    /// Bits in a second between the first word and the last that a program of the other host
    /// sees, which looks all the time: what Figure 7 shows.
    pub rate: f64,
    /// How often the receiver's bridge locked.
    pub locks: u64,
}

/// A message of this many bytes that a program stores, burst after burst, or that the DMA engine
/// moves.
#[must_use]
pub fn raw(design: &Design, len: u32, is_dma: bool) -> Option<Raw> {
    runs::once("clan raw", &(design, len, is_dma), || run_raw(design, len, is_dma))
}

fn run_raw(design: &Design, len: u32, is_dma: bool) -> Option<Raw> {
    let mut sender = *design;
    if !is_dma {
        // One store after another goes on in the burst of the sender's bus that is under way.
        sender.costs.bus.transaction = Duration::ZERO;
    }
    let mut pair = Pair::between([&sender, design], [Listens::Spinning; 2])?;
    let there = pair.expose(1, len, false)?;
    let from = pair.world.lend(0, vec![1; len as usize]);
    pair.settle()?;
    if is_dma {
        pair.send(0, from, &there, 7)?;
    }
    let burst = if is_dma { super::DMA_BURST } else { super::PIO_BURST }.min(len);
    let first = there.area.span(0, WORD);
    let (mut stored, mut began) = (0, None);
    while pair.last_word(1, &there) == 0 {
        // A program stores as fast as its adapter takes it.
        while !is_dma && stored < len && pair.world.engine(0).room(there.window) >= burst as usize {
            let now = pair.world.now();
            let engine = pair.world.engine_mut(0);
            let bytes = vec![7; burst as usize];
            engine.write(now, there.window, stored.into(), &bytes).ok()?;
            stored += burst;
        }
        pair.step(None)?;
        if began.is_none() && pair.world.memory(1).read(first).is_ok_and(|it| it != [0; 8]) {
            began = Some(pair.world.now());
        }
    }
    // A burst is seen when all of it is there: a word of the bus in each of its cycles.
    let bus = design.costs.bus.rate;
    let ahead = time_of(u64::from(burst - BUS_WORD), bus);
    let took = pair.world.now().since(began?) + ahead;
    let bits = f64::from(len - BUS_WORD) * 8.0;
    let locks = pair.world.node(1).adapters().iter().map(Adapter::bridge_locks).sum();
    Some(Raw { rate: bits / took.as_secs_f64(), locks })
}

/// Bytes of a word of the bus.
const BUS_WORD: u32 = 4;

/// Bits in a second of messages of this many bytes, each set up when the one before has left:
/// by the interrupt that it ends with, and a call of the driver; or at once, where the adapter
/// chains requests.
#[must_use]
pub fn stream(design: &Design, len: u32, chains: bool) -> Option<f64> {
    runs::once("clan stream", &(design, len, chains), || run_stream(design, len, chains))
}

fn run_stream(design: &Design, len: u32, chains: bool) -> Option<f64> {
    // Those that find everything idle do not count; long ones are few.
    const WARM: u64 = 2;
    let messages = WARM + u64::from((256 << 10) / len.max(1)).clamp(10, 40);
    let mut pair = Pair::new(design, [Listens::Spinning; 2])?;
    let there = pair.expose(1, len.max(WORD), false)?;
    let from = [0, 1].map(|_| pair.world.lend(0, vec![1; there.area.len as usize]));
    pair.settle()?;
    let words = there.area.len / u64::from(WORD);
    let left = pair.left[0].get();
    let pause = if chains { design.setup } else { design.interrupt + design.setup };
    let (mut asked, mut next, mut began) = (0, Some(pair.world.now()), None);
    loop {
        let now = pair.world.now();
        if next.is_some_and(|at| at <= now) {
            asked += 1;
            pair.send(0, from[asked as usize % 2], &there, asked)?;
            next = None;
        }
        pair.step(next)?;
        let now = pair.world.now();
        if next.is_none() && asked < messages {
            next = pair.is_fetched(0, left + asked * words).map(|at| at + pause);
        }
        let came = pair.last_word(1, &there);
        if came >= WARM && began.is_none() {
            began = Some((came, now));
        }
        if came == messages {
            let (first, began) = began?;
            let bits = (messages - first) as f64 * f64::from(len) * 8.0;
            return Some(bits / now.since(began).as_secs_f64());
        }
    }
}
