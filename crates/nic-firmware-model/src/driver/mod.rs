//! Adapters as drivers of the foundation's kind: an endpoint whose frames go through a
//! card, in real time. The card's [`Cable`] leads to other cards of this process, on a
//! simulated [`Wire`], or to [whatever a real driver reaches](Far).
//!
//! | file | what is there |
//! | --- | --- |
//! | `wire` | [`Cable`]: what a card is plugged into; [`Wire`]: what cards of one process are |
//! | `far` | [`Far`]: a cable with a real driver at its other end |
//! | `relay` | the engine that this driver runs |
//!
//! What does not live here: who makes the turns, and what transport a program
//! chooses: that is `landfall`'s.

mod far;
mod relay;
mod wire;

pub use far::{Far, FarEnd};
pub use relay::Relay;
pub use wire::{Cable, Frame, Port, Wire, WireConfig};

use core::cell::RefCell;
use std::{fmt, io};

use clan_dsm::HostId;
use clan_dsm::offload::Secret;
use landfall_placement::{
    Duration, Engine, Instant, PathId, PathLimits, Random, Refusals, Span, Spans, Ticket, Transmit,
    WordOp,
};
use landfall_transport::driver::Interests;
use landfall_transport::memory::{Pins, Regions, Rights};
use landfall_transport::{Capabilities, Counters, Feature, Progress};

use qpip::offload::HashSecret;

use crate::clan::Clan;
use crate::firmware::{Arrival, Firmware, HostMemory};
use crate::hamachi::{Hamachi, WhenOut};
use crate::lanai::{Helps, Lanai, LanaiSizes, LanaiTables, StageCosts};
use crate::machine::{Adapter, BusCosts, Coalescing, Costs, Parts, Send, Sizes, Upcall};
use crate::node::Offloaded;
use crate::node::software::{CopyOutcome, ProcessorMemory, take_deposit, take_frame};
use crate::tigon::{Cycles, Reports, Tables, Tigon};
use crate::{clan, hamachi, tigon};

/// This many units move in one turn at most, each way.
const UNITS_PER_TURN: u32 = 64;
/// So much can be given to and taken from a card in one turn.
const ROUNDS_PER_TURN: u32 = 256;

/// Moves units between an engine in adapter mode and a card.
///
/// It has the calls of [`landfall_transport::Driver`], for engines that are
/// [`Offloaded`] to a card that runs `F`.
pub struct NicDriver<F: Firmware> {
    path: PathId,
    /// Which of the engine's adapters it is.
    number: u8,
    card: Adapter<'static, F>,
    cable: Box<dyn Cable>,
    limits: PathLimits,
    capabilities: Capabilities,
    counters: Counters,
    refusals: Refusals,
    pins: Pins,
    head: Box<[u8]>,
    spans: Spans,
    /// Given out by the engine, not yet taken by the card.
    waiting: Option<Transmit>,
    /// The cable is out.
    is_cut: bool,
}

impl<F: Firmware> NicDriver<F> {
    /// A driver of this card, which is the engine's adapter with this number, for
    /// units of at most this many bytes.
    #[must_use]
    pub fn new(
        path: PathId,
        number: u8,
        card: Adapter<'static, F>,
        cable: Box<dyn Cable>,
        regions: &Regions,
        unit: u32,
    ) -> Self {
        let mut limits = PathLimits::plain(unit);
        limits.offloads.sum_send = true;
        let mut capabilities = Capabilities::of("nic");
        capabilities.add(Feature::ChecksumOffload);
        capabilities.add(Feature::DirectPlacement);
        capabilities.add(Feature::Ecn);
        if cable.carries_frames() {
            capabilities.add(Feature::RawFrames);
        }
        Self {
            path,
            number,
            card,
            cable,
            limits,
            capabilities,
            counters: Counters::default(),
            refusals: Refusals::new(),
            pins: Pins::new(regions),
            head: vec![0; usize::from(limits.head)].into_boxed_slice(),
            spans: Spans::new(),
            waiting: None,
            is_cut: false,
        }
    }

    /// The path that this driver serves, as the engine knows it.
    #[must_use]
    pub const fn path(&self) -> PathId {
        self.path
    }

    /// What the path carries.
    #[must_use]
    pub const fn limits(&self) -> PathLimits {
        self.limits
    }

    /// What the card does by itself.
    #[must_use]
    pub const fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// What was done so far: copies are those of the host's processor, and a payload
    /// that the card put in its place is none.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The same, for those that count on the driver's behalf.
    pub const fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// The card.
    #[must_use]
    pub const fn card(&self) -> &Adapter<'static, F> {
        &self.card
    }

    /// What the card is plugged into.
    #[must_use]
    pub fn cable(&self) -> &dyn Cable {
        self.cable.as_ref()
    }

    /// The descriptors that wake anyone who waits for frames, or for room on the cable.
    #[must_use]
    pub fn interests(&self) -> Interests {
        self.cable.interests(self.card.departure().is_some())
    }

    /// When the card, or its cable, has something to do of its own.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        [self.card.poll_timeout(), self.cable.poll_timeout()].into_iter().flatten().min()
    }

    /// Receives what came, writes what the engine had kept to its place, lets timers
    /// fire, and sends what the engine has to send, as far as there is room.
    ///
    /// # Errors
    /// The cable is broken for good. A [`Wire`] never is.
    pub fn turn<E>(&mut self, engine: &mut E, now: Instant) -> io::Result<Progress>
    where
        E: Offloaded<Command = F::Command, Report = F::Report>,
    {
        if self.is_cut {
            self.is_cut = false;
            self.cable.set_cut(false);
        }
        self.cable.begin_turn(now)?;
        let mut received = self.receive(engine, now);
        received += self.deposit(engine, now);
        if engine.poll_timeout().is_some_and(|timeout| timeout.at <= now) {
            engine.handle_timeout(now);
        }
        let sent = self.send(engine, now);
        // What an order was answered with, and what the timer of the card brought.
        received += self.hear(engine, now);
        self.pins.release();
        received += self.cable.end_turn(now)?;
        Ok(Progress { received, sent })
    }

    /// The path went down: the cable is out until the next [`turn`](Self::turn). Frames that
    /// were under way are lost, here and there, and hold no memory any more.
    pub fn cut<E>(&mut self, engine: &mut E, now: Instant)
    where
        E: Offloaded<Command = F::Command, Report = F::Report>,
    {
        self.is_cut = true;
        self.cable.set_cut(true);
        if let Some(unit) = self.waiting.take() {
            self.counters.send_failed += 1;
            engine.handle_sent(now, unit.ticket);
        }
        // With the cable out, each that leaves makes room for one that was given before.
        for _ in 0..ROUNDS_PER_TURN {
            self.run(now);
            while self.card.departure().is_some() {
                self.card.departed();
                self.counters.send_failed += 1;
            }
            self.hear(engine, now);
            if self.card.departure().is_none() {
                break;
            }
        }
        self.pins.release();
    }

    fn receive<E>(&mut self, engine: &mut E, now: Instant) -> u32
    where
        E: Offloaded<Command = F::Command, Report = F::Report>,
    {
        let (mut came, mut heard) = (0, self.hear(engine, now));
        while came < UNITS_PER_TURN {
            let Some(frame) = self.cable.take() else { break };
            came += 1;
            let (path, from, ecn) = (self.path, frame.from, frame.ecn);
            // The card counts what it loses.
            let _ = self.card.arrive(now, &Arrival { bytes: &frame.bytes, path, from, ecn });
            self.cable.give_back(frame);
            heard += self.hear(engine, now);
        }
        self.counters.units_received += u64::from(came);
        if came > 0 {
            self.counters.receive_calls += 1;
        } else {
            self.counters.empty_calls += 1;
        }
        came + heard
    }

    /// Commands go down and reports come up, until nothing changes any more. Returns how
    /// many things the host heard of.
    fn hear<E>(&mut self, engine: &mut E, now: Instant) -> u32
    where
        E: Offloaded<Command = F::Command, Report = F::Report>,
    {
        let mut heard = 0;
        for _ in 0..ROUNDS_PER_TURN {
            let is_busy = self.command(engine);
            self.run(now);
            self.report_sent(engine, now);
            let before = heard;
            if self.card.poll_interrupt(now) {
                heard += self.take_upcalls(engine, now);
            }
            if !is_busy && heard == before {
                break;
            }
        }
        heard
    }

    fn run(&mut self, now: Instant) {
        let placed = self.card.counters().placed;
        let mut memory = Lent::new(&mut self.pins);
        self.card.run(now, &mut memory);
        self.counters.payload_bytes += memory.written;
        self.counters.guessed_right += self.card.counters().placed - placed;
    }

    fn command<E>(&mut self, engine: &mut E) -> bool
    where
        E: Offloaded<Command = F::Command, Report = F::Report>,
    {
        let mut is_busy = false;
        while self.card.has_room_for_orders() {
            let Some(command) = engine.poll_command(self.number) else { break };
            // There is room.
            let _ = self.card.command(command);
            is_busy = true;
        }
        is_busy
    }

    fn take_upcalls<E>(&mut self, engine: &mut E, now: Instant) -> u32
    where
        E: Offloaded<Command = F::Command, Report = F::Report>,
    {
        let mut heard = 0;
        while let Some(upcall) = self.card.poll_upcall() {
            heard += 1;
            let buffer = match upcall {
                Upcall::Report(report) => {
                    engine.handle_report(now, self.number, &report);
                    continue;
                }
                Upcall::Frame(buffer) => buffer,
            };
            let Some(frame) = self.card.frame(buffer) else { continue };
            let mut memory = Lent::new(&mut self.pins);
            match take_frame(engine, &mut memory, now, &frame, &mut self.refusals) {
                CopyOutcome::Copied(bytes) => {
                    self.counters.payload_bytes += bytes;
                    self.counters.bytes_copied += bytes;
                }
                CopyOutcome::Corrupt => self.counters.corrupt += 1,
                CopyOutcome::Failed | CopyOutcome::Word { is_done: false } => {
                    self.counters.misplaced += 1;
                }
                CopyOutcome::Refused => self.counters.refused += 1,
                CopyOutcome::Consumed | CopyOutcome::Word { is_done: true } => {}
            }
            self.card.give_back(buffer);
        }
        heard
    }

    fn deposit<E: Engine>(&mut self, engine: &mut E, now: Instant) -> u32 {
        let mut deposits = 0;
        while deposits < UNITS_PER_TURN {
            let mut memory = Lent::new(&mut self.pins);
            let Some((bytes, is_there)) = take_deposit(engine, &mut memory, now) else { break };
            deposits += 1;
            if is_there {
                self.counters.deposits += 1;
                self.counters.payload_bytes += bytes;
                self.counters.bytes_copied += bytes;
            } else {
                self.counters.misplaced += 1;
            }
        }
        deposits
    }

    fn send<E>(&mut self, engine: &mut E, now: Instant) -> u32
    where
        E: Offloaded<Command = F::Command, Report = F::Report>,
    {
        let mut sent = self.depart();
        for _ in 0..UNITS_PER_TURN {
            if self.waiting.is_none() && self.card.has_room_for_frames() {
                self.spans.clear();
                let unit = engine.poll_transmit(now, self.path, &mut self.head, &mut self.spans);
                self.waiting = unit.map(|unit| self.sum_up(unit));
            }
            // What the engine gave out relies on the commands that it gave before.
            let is_busy = self.command(engine);
            self.run(now);
            let is_taken = self.push_down(engine, now);
            self.run(now);
            sent += self.depart();
            self.report_sent(engine, now);
            if !is_busy && !is_taken {
                break;
            }
        }
        if self.waiting.is_some() || self.card.departure().is_some() {
            self.counters.send_blocked += 1;
        }
        if sent > 0 {
            self.counters.send_calls += 1;
            self.counters.units_sent += u64::from(sent);
        }
        sent
    }

    /// A checksum over bytes that are not in the unit is no device's: the processor computes
    /// it, or the card would need room for all of a datagram that crosses in fragments.
    fn sum_up(&mut self, unit: Transmit) -> Transmit {
        let Transmit { checksum: Some(slot), sum_only: 1.., .. } = unit else { return unit };
        // What cannot be read cannot be sent: the card finds that, too.
        let Ok(payload) = self.pins.sum(&self.spans) else { return unit };
        let head = self.head.get_mut(..usize::from(unit.head_len));
        if head.and_then(|head| slot.fill(head, payload)).is_none() {
            return unit;
        }
        self.counters.bytes_summed += self.spans.total_len();
        self.spans.truncate(self.spans.total_len().saturating_sub(unit.sum_only.into()));
        Transmit { checksum: None, sum_only: 0, ..unit }
    }

    /// What waits goes to the card. Returns whether it is out of the driver's hands.
    fn push_down<E: Engine>(&mut self, engine: &mut E, now: Instant) -> bool {
        let Some(unit) = self.waiting else { return false };
        let from: &[Span] = &self.spans;
        let send = Send {
            path: self.path,
            to: unit.to,
            ecn: unit.ecn,
            head: self.head.get(..usize::from(unit.head_len)).unwrap_or(&self.head),
            from,
            checksum: unit.checksum,
            sum_only: unit.sum_only,
            ticket: unit.ticket.raw(),
        };
        if self.card.send(&send).is_ok() {
            self.waiting = None;
            return true;
        }
        if !self.card.has_room_for_frames() {
            return false;
        }
        // It is too long for any slot: what cannot be sent is lost on the way.
        self.waiting = None;
        self.counters.send_failed += 1;
        engine.handle_sent(now, unit.ticket);
        true
    }

    /// What the card has fetched leaves, for as long as the wire has room.
    fn depart(&mut self) -> u32 {
        let mut sent = 0;
        while let Some(frame) = self.card.departure() {
            if !self.cable.send(frame.to, frame.ecn, frame.bytes) {
                break;
            }
            self.card.departed();
            sent += 1;
        }
        sent
    }

    fn report_sent<E: Engine>(&mut self, engine: &mut E, now: Instant) {
        while let Some(ticket) = self.card.poll_sent() {
            engine.handle_sent(now, Ticket::from_raw(ticket));
        }
    }
}

impl<F: Firmware> fmt::Debug for NicDriver<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NicDriver")
            .field("path", &self.path)
            .field("cable", &self.cable)
            .field("card", self.card.counters())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

/// The memory that was lent, during one turn: what is used is pinned until its end.
pub(super) struct Lent<'a> {
    pins: RefCell<&'a mut Pins>,
    /// So much was written.
    pub(super) written: u64,
}

impl<'a> Lent<'a> {
    pub(super) const fn new(pins: &'a mut Pins) -> Self {
        Self { pins: RefCell::new(pins), written: 0 }
    }
}

impl HostMemory for Lent<'_> {
    fn is_writable(&self, span: Span) -> bool {
        self.pins.borrow_mut().resolve(&span, Rights::WRITE).is_ok()
    }

    fn write(&mut self, span: Span, bytes: &[u8]) -> bool {
        let is_there = self.pins.get_mut().copy_in(&span, bytes).is_ok();
        self.written += if is_there { bytes.len() as u64 } else { 0 };
        is_there
    }

    fn read(&self, span: Span, into: &mut [u8]) -> bool {
        self.pins.borrow_mut().copy_out(&span, into).is_ok()
    }
}

impl ProcessorMemory for Lent<'_> {
    fn word(&mut self, op: WordOp) -> Option<u64> {
        self.pins.get_mut().word(&op).ok()
    }
}

// A card for each engine, as the driver needs it.

/// How fast a card is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// What it does costs nothing but the time of this machine.
    #[default]
    Free,
    /// What it does takes as long as it took on the adapter of the paper.
    Period,
}

/// Slots and rings for frames of at most this many bytes.
const fn sizes(unit: u32) -> Sizes {
    Sizes { arrivals: 64, departures: 32, frame: unit, orders: 256, reports: 512, buffers: 256 }
}

/// A Tigon-II for an engine of STP: for this many Blocks of at most this many STUs, and
/// for units of at most this many bytes.
#[must_use]
pub fn tigon(config: &stp_core::Config, unit: u32, pace: Pace) -> Adapter<'static, Tigon<'static>> {
    let (cycles, costs) = match pace {
        Pace::Free => (Cycles::default(), Costs::OFF),
        Pace::Period => (Cycles::TIGON, tigon::COSTS),
    };
    // It tells of each STU: the engine need not know how long a Block takes.
    let habits = tigon::Config { checksum: config.checksum, reports: Reports::Each, cycles };
    let blocks = config.blocks.min(1 << 16);
    let firmware = Tigon::new(Tables::owned(blocks, 1 << config.block_stus.min(12)), habits);
    Adapter::new(firmware, Parts::owned(&sizes(unit)), costs)
}

/// A LANai 9 for an engine of QPIP, for frames of at most this many bytes. The secret
/// determines where a connection is found in its index: strangers must not know it.
#[must_use]
pub fn lanai(secret: HashSecret, unit: u32, pace: Pace) -> Adapter<'static, Lanai<'static>> {
    let tables = LanaiTables::owned(LanaiSizes::default(), secret);
    let (stages, helps, costs) = match pace {
        Pace::Free => (StageCosts::default(), Helps::default(), Costs::OFF),
        Pace::Period => {
            let interrupts = Coalescing::After { time: Duration::ZERO, reports: 1 };
            let (clock, bus) = (StageCosts::CLOCK, BusCosts::PCI_64_33);
            let helps = Helps { checksum: true, ..Helps::default() };
            (StageCosts::PAPER, helps, Costs { clock, bus, interrupts, ..Costs::OFF })
        }
    };
    Adapter::new(Lanai::new(tables, stages, helps), Parts::owned(&sizes(unit)), costs)
}

/// A CLAN adapter for an engine of CLAN's on a network that loses, for frames of at most so
/// many bytes. It takes nothing off the engine: its tables stay empty, and need no secret.
#[must_use]
pub fn clan(host: HostId, unit: u32, pace: Pace) -> Adapter<'static, Clan<'static>> {
    let (cycles, costs) = match pace {
        Pace::Free => (clan::Cycles::NONE, Costs::OFF),
        Pace::Period => (clan::Cycles::CLAN, clan::COSTS),
    };
    let entries = clan::Entries { apertures: 1, groups: 8, tripwires: 1, cam: 1 };
    let tables = clan::Tables::owned(&entries, Secret::new(&mut Random::new([0; 32])));
    let firmware = Clan::new(tables, clan::Config { cycles, ..clan::Config::network(host) });
    Adapter::new(firmware, Parts::owned(&sizes(unit)), costs)
}

/// A Hamachi whose lists have this many descriptors, for frames of at most this many bytes. It
/// loses what finds no descriptor, as the chip of the paper does.
#[must_use]
pub fn hamachi(entries: u16, frame: u32, pace: Pace) -> Adapter<'static, Hamachi<'static>> {
    let costs = match pace {
        Pace::Free => Costs::OFF,
        Pace::Period => hamachi::COSTS,
    };
    let tables = hamachi::Tables { entries: entries.into(), opens: 0 };
    // The list and its reports fit; nothing is sent, and nothing goes whole to the host.
    let sizes = Sizes { departures: 1, reports: 1024, buffers: 0, ..sizes(frame) };
    Adapter::new(tables.chip(WhenOut::Lose), Parts::owned(&sizes), costs)
}
