//! What the model has beside the paper's tables: two hosts with Tigon-IIs in a
//! simulated network, one that writes and one that reads, frame by frame. The costs
//! are the caller's.
//!
//! What does not live here: what a host's processors spend. Here it is counted how
//! often they are called upon ([`Side`]); what that costs them is said beside the
//! paper's tables, in `reproduce`.

mod pair;

use landfall_placement::{Area, Duration, Instant};
use stp_core::{Event, RemoteRegion, Rights};

use super::{COSTS, Cycles};
use crate::machine::{Costs, Sizes};
use pair::Pair;

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
    /// So many links, each with an adapter of its own at both ends.
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

    /// The same with packets of so many bytes, as a power of two.
    #[must_use]
    pub const fn with_stu(self, stu: u8) -> Self {
        Self { stu, ..self }
    }

    /// The same over so many links.
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
pub struct Side {
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

impl Side {
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
    pub sender: Side,
    /// Who read.
    pub receiver: Side,
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

/// One side calls `write()` so many times with so many bytes, the other `read()`; each
/// waits until the call is over. The reader is busy with the data for `touching`
/// before it reads again.
///
/// Nothing where the bytes did not come.
#[must_use]
pub fn transfer(design: &Design, writes: u32, len: u32, touching: Duration) -> Option<Account> {
    let mut pair = Pair::new(design, len)?;
    let before = [0, 1].map(|side| Side::of(&pair, side, design));
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
    let sides = [0, 1].map(|side| Some(Side::of(&pair, side, design)?.since(&before[side]?)));
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

/// How long it takes until the receiver's host has been told of a message of so many
/// bytes, from the call of its sender on, in seconds. A receiver that sleeps is woken
/// later, by [`Design::wake`].
///
/// Nothing where it did not come.
#[must_use]
pub fn one_way(design: &Design, message: Message, len: u32) -> Option<f64> {
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
                pair.engine(0)?.put(now, here, region, 0, mine, true).ok()?;
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
    let ask = pair.await_event(1, |event| match event {
        Event::RegionAsked { ask, .. } => Some(ask),
        _ => None,
    })?;
    pair.engine(1)?.expose(ask, area, Rights::ALL).ok()?;
    pair.await_event(0, |event| match event {
        Event::RegionAvailable { region, .. } => Some(region),
        _ => None,
    })
}
