//! What the model has beside the paper's tables: two hosts with Tigon-IIs in a
//! simulated network, one that writes and one that reads, frame by frame. The costs
//! are the caller's.
//!
//! What does not live here: what a host's processors spend. Here it is counted how
//! often they are called upon ([`HostFigures`]); what that costs them is said beside the
//! paper's tables, in `reproduce`.
//!
//! Two hosts behind such adapters, and the users who sit there.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use landfall_placement::{Area, Duration, Instant, PathId};
use landfall_simnet::{Handle, LinkConfig, Sim};
use stp_core::{
    Admission, Connect, ConnectionId, Endpoint, Event, PutOptions, RemoteRegion, Rights,
};

use super::{COSTS, Cycles};
use crate::machine::{Adapter, Costs, Parts, Sizes, Sram};
use crate::node::NicNode;
use crate::runs;
use crate::tigon::{Config, Tables, Tigon};

/// The constants of a run.
#[derive(Clone, Copy, Debug)]
pub struct Design {
    /// What the firmware spends.
    pub cycles: Cycles,
    /// What the machine costs.
    pub costs: Costs,
    /// The memory of each adapter.
    pub sram: u32,
    /// Bits in a second on each link.
    pub rate: u64,
    /// Bytes that the medium adds to each packet.
    pub overhead: u32,
    /// From the last bit that leaves to the last that arrives.
    pub delay: Duration,
    /// The payload of a packet, as a power of two.
    pub stu: u8,
    /// Packets of a Block, as a power of two.
    pub block: u8,
    /// This many links, each with an adapter of its own at both ends.
    pub links: u8,
    /// From the moment at which a host is interrupted until it looks.
    pub interrupt: Duration,
    /// From there until a process that slept in a call goes on, and makes the next one.
    pub wake: Duration,
}

/// What a packet of Data has before its payload.
const HEADER: u32 = 40;

impl Design {
    /// The machines of the paper: Gigabit Ethernet, an adapter of 1 MB, 64 packets of
    /// 4096 bytes in a Block.
    ///
    /// An interrupt, a process that is woken and a system call take what the paper
    /// on CLAN measured (3, 8 and 0.75 µs, its section 5.1).
    pub const PAPER: Self = Self {
        cycles: Cycles::TIGON,
        costs: COSTS,
        sram: 1 << 20,
        rate: 1_000_000_000,
        // Ethernet's header, check sequence, preamble and gap.
        overhead: 38,
        delay: Duration::from_micros(1),
        stu: 12,
        block: 6,
        links: 1,
        interrupt: Duration::from_micros(3),
        wake: Duration::from_nanos(8_750),
    };

    /// The same with packets of this many bytes, as a power of two.
    #[must_use]
    pub const fn with_stu(self, stu: u8) -> Self {
        Self { stu, ..self }
    }

    /// The same over this many links.
    #[must_use]
    pub const fn striped(self, links: u8) -> Self {
        Self { links, ..self }
    }

    /// The longest packet.
    #[must_use]
    pub const fn frame(&self) -> u32 {
        (1 << self.stu) + HEADER
    }

    /// Slots for packets in what the SRAM has beside the tables.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        let frame = self.frame();
        let fit = |share: u32| (self.sram / share / frame).clamp(4, 1_024) as u16;
        Sizes { arrivals: fit(2), departures: fit(4), frame, ..Sizes::default() }
    }

    /// The engine: it trusts its network, which loses nothing.
    fn engine(&self) -> stp_core::Config {
        let patience = Duration::from_millis(500);
        stp_core::Config {
            max_stu: self.stu,
            block_stus: self.block,
            adapters: self.links,
            retry_after: patience,
            retry_floor: patience,
            keep_alive: Some(Duration::from_secs(3_600)),
            ..stp_core::Config::default()
        }
    }
}

/// How often a host was called upon, and how busy its adapters were.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostFigures {
    /// Interrupts.
    pub interrupts: u64,
    /// Packets that it got whole: control operations.
    pub heard: u64,
    /// Control operations that it sent.
    pub said: u64,
    /// Packets of Data that it sent.
    pub stus_sent: u64,
    /// Packets of Data that its adapters put in place.
    pub stus_placed: u64,
    /// For how long the processors of its adapters were busy, in seconds.
    pub processor: f64,
    /// For how long their buses were.
    pub bus: f64,
    /// DMA transfers, to the host and from it.
    pub transfers: [u64; 2],
}

impl HostFigures {
    /// What was counted since then.
    fn since(&self, before: &Self) -> Self {
        Self {
            interrupts: self.interrupts - before.interrupts,
            heard: self.heard - before.heard,
            said: self.said - before.said,
            stus_sent: self.stus_sent - before.stus_sent,
            stus_placed: self.stus_placed - before.stus_placed,
            processor: self.processor - before.processor,
            bus: self.bus - before.bus,
            transfers: [0, 1].map(|way| self.transfers[way] - before.transfers[way]),
        }
    }

    fn of(pair: &Pair, side: usize, design: &Design) -> Option<Self> {
        let host = pair.host(side)?;
        let stats = host.engine().stats();
        let mut all =
            Self { said: stats.control_sent, stus_sent: stats.stus_sent, ..Self::default() };
        for adapter in host.adapters() {
            let cycles: u64 =
                crate::firmware::Stage::ALL.map(|stage| adapter.spent(stage)).iter().sum();
            all.interrupts += adapter.interrupts();
            all.heard += adapter.counters().to_host;
            all.stus_placed += adapter.counters().placed;
            if design.costs.clock > 0 {
                all.processor += cycles as f64 / design.costs.clock as f64;
            }
            all.bus += adapter.bus().busy().as_secs_f64();
            for (sum, engine) in all.transfers.iter_mut().zip(adapter.dma()) {
                *sum += engine.transfers();
            }
        }
        Some(all)
    }
}

/// What came of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Account {
    /// How long it took, in seconds.
    pub seconds: f64,
    /// How many bytes there are at the receiver.
    pub bytes: u64,
    /// In how many Transfers.
    pub writes: u32,
    /// Blocks of which the receiver was told.
    pub blocks: u64,
    /// Packets of Data that came to the receiver when nothing could take them.
    pub lost: u64,
    /// Who wrote.
    pub sender: HostFigures,
    /// Who read.
    pub receiver: HostFigures,
}

impl Account {
    /// Bytes in a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }
}

/// The users of a run: when the one writes next, and the other reads.
#[derive(Clone, Copy, Debug)]
struct Users {
    write_at: Option<Instant>,
    read_at: Option<Instant>,
    /// Where the last Transfer was there, and the receiver done with it.
    done_at: Instant,
}

/// One side calls `write()` this many times with this many bytes, the other `read()`; each
/// waits until the call is over. The reader is busy with the data for `touching`
/// before it reads again.
///
/// Nothing where the bytes did not come.
#[must_use]
pub fn transfer(design: &Design, writes: u32, len: u32, touching: Duration) -> Option<Account> {
    runs::once("tigon transfer", &(design, writes, len, touching), || {
        run_transfer(design, writes, len, touching)
    })
}

fn run_transfer(design: &Design, writes: u32, len: u32, touching: Duration) -> Option<Account> {
    let mut pair = Pair::new(design, len)?;
    let before = [0, 1].map(|side| HostFigures::of(&pair, side, design));
    let blocks = pair.host(1)?.engine().stats().block_notifications;
    let began = pair.sim.now();
    let limit = began + Duration::from_secs(20);
    let mut users = Users { write_at: Some(began), read_at: Some(began), done_at: began };
    let (mut sent, mut received) = (0, 0);
    while received < writes {
        let now = pair.sim.now();
        if users.write_at.is_some_and(|at| at <= now) {
            users.write_at = None;
            let (id, area) = (pair.connections[0], pair.areas[0]);
            pair.engine(0)?.send(now, id, area, 0).ok()?;
            sent += 1;
        }
        if users.read_at.is_some_and(|at| at <= now) {
            users.read_at = None;
            let (id, area) = (pair.connections[1], pair.areas[1]);
            pair.engine(1)?.post(now, id, area, false).ok()?;
        }
        let next = [users.write_at, users.read_at].into_iter().flatten().min();
        if now >= limit || !pair.step(next.unwrap_or(limit)) {
            return None;
        }
        let now = pair.sim.now();
        while let Some(event) = pair.take(0) {
            if matches!(event, Event::Sent { .. }) && sent < writes {
                users.write_at = Some(now + design.wake);
            }
        }
        while let Some(event) = pair.take(1) {
            if matches!(event, Event::Received { .. }) {
                received += 1;
                users.done_at = now + touching + design.wake;
                users.read_at = Some(users.done_at);
            }
        }
    }
    let sides =
        [0, 1].map(|side| Some(HostFigures::of(&pair, side, design)?.since(&before[side]?)));
    let adapters = pair.host(1)?.adapters();
    let lost = adapters.iter().map(|adapter| adapter.counters().overruns).sum();
    pair.is_delivered(len).then_some(Account {
        seconds: users.done_at.since(began).as_secs_f64(),
        bytes: u64::from(writes) * u64::from(len),
        writes,
        blocks: pair.host(1)?.engine().stats().block_notifications - blocks,
        lost,
        sender: sides[0]?,
        receiver: sides[1]?,
    })
}

/// How a short message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// A Transfer: it is asked for, granted, and sent.
    Transfer,
    /// A Put into a persistent region: nothing is asked for.
    Put,
}

/// How long it takes until the receiver's host has been told of a message of this many
/// bytes, from the call of its sender on, in seconds. A receiver that sleeps is woken
/// later, by [`Design::wake`].
///
/// Nothing where it did not come.
#[must_use]
pub fn one_way(design: &Design, message: Message, len: u32) -> Option<f64> {
    runs::once("tigon one_way", &(design, message, len), || run_one_way(design, message, len))
}

fn run_one_way(design: &Design, message: Message, len: u32) -> Option<f64> {
    const ROUNDS: u32 = 4;
    let mut pair = Pair::new(design, len.max(8))?;
    let region = match message {
        Message::Put => Some(ask_for_region(&mut pair)?),
        Message::Transfer => None,
    };
    let [mine, theirs] = pair.areas.map(|area| Area { len: u64::from(len), ..area });
    let [here, there] = pair.connections;
    let mut took = 0.0;
    for _ in 0..ROUNDS {
        // What went before has been answered.
        let quiet = pair.sim.now() + Duration::from_millis(1) + design.delay * 8;
        pair.run_until(quiet)?;
        let now = pair.sim.now();
        match &region {
            Some(region) => {
                pair.engine(0)?.put(now, here, region, 0, mine, PutOptions::WITH_NOTICE).ok()?;
            }
            None => {
                pair.engine(1)?.post(now, there, theirs, false).ok()?;
                pair.engine(0)?.send(now, here, mine, 0).ok()?;
            }
        }
        let there = |event| matches!(event, Event::Received { .. } | Event::Written { .. });
        pair.await_event(1, |event| there(event).then_some(()))?;
        took = pair.sim.now().since(now).as_secs_f64();
    }
    Some(took)
}

/// A region of the receiver that the sender may write to.
fn ask_for_region(pair: &mut Pair) -> Option<RemoteRegion> {
    let (now, [here, _], area) = (pair.sim.now(), pair.connections, pair.areas[1]);
    pair.engine(0)?.request_region(now, here, 1, area.len, Rights::ALL).ok()?;
    let request = pair.await_event(1, |event| match event {
        Event::RegionRequested { request, .. } => Some(request),
        _ => None,
    })?;
    pair.engine(1)?.expose(request, area, Rights::ALL).ok()?;
    pair.await_event(0, |event| match event {
        Event::RegionAvailable { region, .. } => Some(region),
        _ => None,
    })
}

/// A host behind adapters.
type Host = NicNode<Tigon<'static>, Endpoint>;

/// What a side was told and has not looked at.
type EventQueue = Rc<RefCell<VecDeque<Event>>>;

/// The port of the receiver.
const PORT: u16 = 7;
/// This many Blocks have a place at most.
const BLOCKS: usize = 256;

/// A sender and a receiver, connected, with memory of the same length.
struct Pair {
    sim: Sim,
    /// The sender, the receiver.
    hosts: [Handle<Host>; 2],
    /// The connection, as each names it.
    connections: [ConnectionId; 2],
    /// The memory of each.
    areas: [Area; 2],
    told: [EventQueue; 2],
}

/// An adapter whose slots, rings and tables fit into its SRAM.
fn adapter(design: &Design) -> Option<Adapter<'static, Tigon<'static>>> {
    let sizes = design.sizes();
    let mut sram = Sram::new(design.sram);
    sizes.reserve(&mut sram).ok()?;
    let stus = 1u16.checked_shl(u32::from(design.block))?;
    let blocks = Tables::most(&sram, stus).min(BLOCKS);
    Tables::reserve(&mut sram, blocks, stus).ok()?;
    let config = Config { cycles: design.cycles, ..Config::default() };
    let firmware = Tigon::new(Tables::owned(blocks, stus), config);
    Some(Adapter::new(firmware, Parts::owned(&sizes), design.costs))
}

impl Pair {
    /// Two hosts that are connected over all links; nothing where that fails, or an
    /// adapter's memory does not suffice.
    fn new(design: &Design, memory: u32) -> Option<Self> {
        let mut sim = Sim::from_number(1);
        let told = [EventQueue::default(), EventQueue::default()];
        let mut hosts = Vec::new();
        for (seed, (name, told)) in (1..).zip(["sender", "receiver"].into_iter().zip(&told)) {
            let mut engine = Endpoint::new(design.engine(), [seed; 32]).ok()?;
            engine.listen(PORT, Admission::Open).ok()?;
            let mut adapters = Vec::new();
            for _ in 0..design.links {
                adapters.push(adapter(design)?);
            }
            let told = told.clone();
            let host = Host::new(engine, adapters)
                .interrupt_latency(design.interrupt)
                .on_event(move |_, _, _, event| told.borrow_mut().push_back(event));
            hosts.push(sim.add(name, host).ok()?);
        }
        let hosts = [hosts[0], hosts[1]];
        let frame = design.frame();
        let link = LinkConfig {
            rate: Some(design.rate),
            overhead: design.overhead,
            delay: design.delay,
            mtu: frame,
            ..LinkConfig::new()
        };
        for _ in 0..design.links {
            sim.connect(hosts[0], hosts[1], link).ok()?;
        }
        let mut areas = [Area::default(); 2];
        for (side, area) in areas.iter_mut().enumerate() {
            let bytes = (0..memory).map(|at| (at % 251) as u8 * (1 - side as u8)).collect();
            let region = sim.node_mut(hosts[side]).ok()?.memory_mut().lend(bytes).ok()?;
            *area = Area::new(region, 0, u64::from(memory));
        }
        let connections = connect(&mut sim, hosts, &told, design)?;
        Some(Self { sim, hosts, connections, areas, told })
    }

    /// The engine of a side, to be used.
    fn engine(&mut self, side: usize) -> Option<&mut Endpoint> {
        Some(self.sim.node_mut(self.hosts[side]).ok()?.engine_mut())
    }

    /// A side.
    fn host(&self, side: usize) -> Option<&Host> {
        self.sim.node(self.hosts[side]).ok()
    }

    /// What a side was told next, and has not looked at.
    fn take(&mut self, side: usize) -> Option<Event> {
        self.told[side].borrow_mut().pop_front()
    }

    /// The next thing happens, but nothing behind `deadline`, which is the present
    /// then. False where the simulation cannot go on.
    fn step(&mut self, deadline: Instant) -> bool {
        match self.sim.step(deadline) {
            Ok(true) => true,
            Ok(false) => self.sim.run_until(deadline).is_ok(),
            Err(_) => false,
        }
    }

    /// Lets time pass; what is told in it is forgotten.
    fn run_until(&mut self, deadline: Instant) -> Option<()> {
        self.sim.run_until(deadline).ok()?;
        self.told.iter().for_each(|told| told.borrow_mut().clear());
        Some(())
    }

    /// Waits, not for ever, until a side is told something.
    fn await_event<T>(&mut self, side: usize, wanted: impl Fn(Event) -> Option<T>) -> Option<T> {
        let deadline = self.sim.now() + Duration::from_secs(2);
        while self.sim.now() < deadline {
            if !self.step(deadline) {
                return None;
            }
            while let Some(event) = self.take(side) {
                if let Some(found) = wanted(event) {
                    return Some(found);
                }
            }
        }
        None
    }

    /// Does the receiver have the bytes of the sender?
    fn is_delivered(&self, len: u32) -> bool {
        let bytes = |side: usize| {
            let span = self.areas[side].span(0, len);
            self.host(side).and_then(|host| host.memory().read(span).ok())
        };
        bytes(0).is_some() && bytes(0) == bytes(1)
    }
}

/// Connects the two over their first link, then over all others.
fn connect(
    sim: &mut Sim,
    hosts: [Handle<Host>; 2],
    told: &[EventQueue; 2],
    design: &Design,
) -> Option<[ConnectionId; 2]> {
    let [sender, receiver] = hosts;
    let settle = |sim: &mut Sim| {
        let until = sim.now() + design.delay * 8 + Duration::from_millis(2);
        sim.run_until(until).ok()
    };
    settle(sim)?;
    let (now, connect) = (sim.now(), Connect { port: PORT, ..Connect::default() });
    let engine = sim.node_mut(sender).ok()?.engine_mut();
    let here = engine.connect(now, PathId(0), receiver.peer(), connect).ok()?;
    settle(sim)?;
    for path in 1..design.links {
        let now = sim.now();
        let engine = sim.node_mut(sender).ok()?.engine_mut();
        engine.add_link(now, here, PathId(u16::from(path)), receiver.peer()).ok()?;
    }
    settle(sim)?;
    let there = told[1].borrow().iter().find_map(|event| match event {
        Event::Accepted { connection, .. } => Some(*connection),
        _ => None,
    })?;
    told.iter().for_each(|told| told.borrow_mut().clear());
    Some([here, there])
}
