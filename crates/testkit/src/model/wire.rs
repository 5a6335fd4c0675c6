//! A wire between two engines, in memory: the simplest possible driver.

use alloc::vec;
use alloc::vec::Vec;

use landfall_placement::{
    Area, Engine, Instant, Landing, PathId, PathLimits, PathState, Peer, Placement, Random,
    Segment, Span, Spans,
};

use super::checked::Checked;
use super::memory::Memory;
use super::packet::{Packet, cut, gather, open_run, place_opened_run, put};
use super::subjects::digest;

/// What goes wrong on the wire, each in parts per million of units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Units that vanish.
    pub loss: u32,
    /// Units that come twice.
    pub duplication: u32,
    /// Units that change places with another one under way.
    pub reordering: u32,
    /// Units in which one bit is flipped.
    pub corruption: u32,
    /// Long units that are cut into their segments before they arrive.
    pub cutting: u32,
    /// Payloads that do not reach their place.
    pub failing: u32,
}

/// One end: an engine, its memory, and what is under way to it.
#[derive(Debug)]
pub struct End<E> {
    /// The engine.
    pub engine: E,
    /// Its memory.
    pub memory: Memory,
    inbox: Vec<Packet>,
}

/// Two engines joined by a wire that is as bad as the faults say. One path,
/// [`NaiveWire::PATH`]; the ends are [`Peer::Node`] 0 and 1, until one is
/// [renamed](NaiveWire::rename).
///
/// It receives as a real driver does: into guessed spans first, so that a guess
/// that names accepted memory is found out, then every unit is placed, what lies
/// in the wrong place is moved, and the landings are told.
#[derive(Debug)]
pub struct NaiveWire<E> {
    /// The two ends.
    pub sides: [End<E>; 2],
    /// The time.
    pub now: Instant,
    /// What goes wrong.
    pub faults: Faults,
    /// How many units one turn receives at most.
    pub batch: usize,
    /// What is sealed is opened where it came to lie, in runs, before it is placed; otherwise
    /// it is placed first.
    pub opens_runs: bool,
    /// A digest of all that was sent, in order: equal runs have equal ones.
    pub digest: u64,
    limits: PathLimits,
    random: Random,
    names: [u32; 2],
}

impl<E: Engine> NaiveWire<E> {
    /// The only path.
    pub const PATH: PathId = PathId(0);
    /// The bound of units under way in one direction; more are lost.
    const QUEUE: usize = 4096;

    /// Joins two engines; the seed decides the faults.
    pub fn new(engines: [E; 2], limits: PathLimits, faults: Faults, seed: u64) -> Self {
        let sides = engines.map(|engine| End { engine, memory: Memory::new(), inbox: Vec::new() });
        let random = Random::from_number(seed);
        let mut wire = Self {
            sides,
            now: Instant::ZERO,
            faults,
            batch: 8,
            opens_runs: true,
            digest: 0,
            limits,
            random,
            names: [0, 1],
        };
        for side in &mut wire.sides {
            side.engine.handle_path(Instant::ZERO, Self::PATH, PathState::Up(limits));
        }
        wire
    }

    /// One turn of each side: receive, send. True if anything moved.
    pub fn turn(&mut self) -> bool {
        let mut moved = false;
        for side in 0..2 {
            moved |= self.receive(side);
            moved |= self.deposit(side);
            moved |= self.send(side);
        }
        moved
    }

    /// Turns until nothing moves, at most `most` times.
    pub fn settle(&mut self, most: usize) {
        for _ in 0..most {
            if !self.turn() {
                return;
            }
        }
    }

    /// Lets time pass to the next timeout and fires it. False if there is none.
    pub fn pass_time(&mut self) -> bool {
        let timeouts = self.sides.iter().filter_map(|side| side.engine.poll_timeout());
        let Some(at) = timeouts.map(|timeout| timeout.at).min() else { return false };
        self.now = self.now.max(at);
        for side in &mut self.sides {
            side.engine.handle_timeout(self.now);
        }
        true
    }

    /// Turns and lets time pass until `is_over`, within `most` steps. True if it was reached.
    pub fn run(&mut self, most: usize, mut is_over: impl FnMut(&mut [End<E>; 2]) -> bool) -> bool {
        for _ in 0..most {
            if is_over(&mut self.sides) {
                return true;
            }
            if !self.turn() && !self.pass_time() {
                return is_over(&mut self.sides);
            }
        }
        false
    }

    /// Puts bytes on the wire to `side` as if they came from the other one.
    pub fn inject(&mut self, side: usize, bytes: Vec<u8>) {
        let from = Peer::Node(self.names[1 - side]);
        self.enqueue(side, Packet::new(Self::PATH, from, bytes));
    }

    /// A side has another address from now on, as behind a translator that forgot it: what
    /// is sent to the old one is lost.
    pub fn rename(&mut self, side: usize, name: u32) {
        self.names[side] = name;
    }

    /// Takes the path down or up at both ends.
    pub fn set_path(&mut self, state: PathState) {
        for side in &mut self.sides {
            side.engine.handle_path(self.now, Self::PATH, state);
        }
    }

    /// The limits that the path was made with.
    pub const fn limits(&self) -> PathLimits {
        self.limits
    }

    /// Takes all units that are under way to `side` off the wire.
    pub fn take(&mut self, side: usize) -> Vec<Vec<u8>> {
        self.sides[side].inbox.drain(..).map(|packet| packet.bytes).collect()
    }

    /// What the engine of `side` says now, taken off the wire.
    pub fn said(&mut self, side: usize) -> Vec<Vec<u8>> {
        self.send(side);
        self.take(1 - side)
    }

    /// These bytes arrive at `side`, and all else that is under way to it.
    pub fn hand_in(&mut self, side: usize, packets: &[Vec<u8>]) {
        for packet in packets {
            self.inject(side, packet.clone());
        }
        while self.receive(side) {}
        self.deposit(side);
    }

    /// Sends what the engine of `side` has, at most a queue full. True if that
    /// was anything.
    pub fn send(&mut self, side: usize) -> bool {
        let mut head = vec![0; usize::from(self.limits.head)];
        let mut from = Spans::new();
        let mut moved = false;
        for _ in 0..Self::QUEUE {
            from.clear();
            let End { engine, memory, .. } = &mut self.sides[side];
            let transmit = engine.poll_transmit(self.now, Self::PATH, &mut head, &mut from);
            let Some(transmit) = transmit else { break };
            moved = true;
            let bytes = gather(memory, &transmit, &head, &from);
            let bytes = bytes.and_then(|mut bytes| {
                let (head, payload) = bytes.split_at_mut(transmit.head_len.into());
                let leaves = !engine.seals() || engine.seal(head, payload);
                leaves.then_some(bytes)
            });
            engine.handle_sent(self.now, transmit.ticket);
            let most =
                if transmit.segment.is_some() { self.limits.super_unit } else { self.limits.unit };
            let is_for_other = matches!(transmit.to, Peer::Unaddressed)
                || transmit.to == Peer::Node(self.names[1 - side]);
            self.digest = digest(self.digest, bytes.as_deref().unwrap_or_default());
            if let Some(bytes) = bytes
                && is_for_other
                && bytes.len() <= most as usize
            {
                self.impair(1 - side, bytes, transmit.segment);
            }
        }
        moved
    }

    fn impair(&mut self, to: usize, bytes: Vec<u8>, segment: Option<Segment>) {
        let is_cut = self.random.chance(self.faults.cutting);
        let pieces = match segment {
            Some(segment) if is_cut => cut(&bytes, segment),
            _ => vec![bytes],
        };
        let segment = segment.filter(|_| !is_cut).map(|segment| segment.size);
        for bytes in pieces {
            let from = Peer::Node(self.names[1 - to]);
            let mut packet = Packet::new(Self::PATH, from, bytes).segmented(segment);
            if self.random.chance(self.faults.loss) {
                continue;
            }
            if self.random.chance(self.faults.duplication) {
                self.enqueue(to, packet.clone());
            }
            if self.random.chance(self.faults.corruption) && !packet.bytes.is_empty() {
                let at = self.random.below(packet.bytes.len() as u64) as usize;
                packet.bytes[at] ^= 1 << self.random.below(8);
            }
            self.enqueue(to, packet);
        }
    }

    fn enqueue(&mut self, to: usize, packet: Packet) {
        let inbox = &mut self.sides[to].inbox;
        if inbox.len() >= Self::QUEUE {
            return;
        }
        inbox.push(packet);
        if self.random.chance(self.faults.reordering) {
            let last = inbox.len() - 1;
            let other = self.random.below(inbox.len() as u64) as usize;
            inbox.swap(last, other);
        }
    }

    /// One receive of a driver, as the contract describes it. True if anything came.
    pub fn receive(&mut self, side: usize) -> bool {
        let now = self.now;
        let count = self.sides[side].inbox.len().min(self.batch.max(1));
        let mut batch: Vec<Packet> = self.sides[side].inbox.drain(..count).collect();
        let End { engine, memory, .. } = &mut self.sides[side];
        scatter(engine, memory, &batch);
        let mut landings = Vec::new();
        let mut land = |packet: &Packet, placement: &Placement, into: &Spans| {
            let fails = self.random.chance(self.faults.failing);
            landings.extend(packet.land(memory, placement, into, fails));
        };
        let mut rest = &mut batch[..];
        while !rest.is_empty() {
            let opens = self.opens_runs && engine.seals();
            if let Some(unsealed) = opens.then(|| open_run(engine, now, rest)).flatten() {
                let (opened, refused) = (unsealed.opened.into(), unsealed.refused.into());
                let (open, behind) = rest.split_at_mut(opened);
                place_opened(engine, now, open, &mut land);
                rest = behind.get_mut(refused..).unwrap_or_default();
                continue;
            }
            let Some((packet, behind)) = rest.split_first_mut() else { break };
            rest = behind;
            let mut into = Spans::new();
            let Ok(placement) = packet.place(engine, now, &mut into) else { continue };
            let placement = packet.open(engine, placement);
            land(packet, &placement, &into);
        }
        for (ticket, landing) in landings {
            engine.handle_placed(now, ticket, landing);
        }
        count > 0
    }

    /// Writes what the engine of `side` kept to its place, at most a queue full.
    /// True if there was anything.
    pub fn deposit(&mut self, side: usize) -> bool {
        let End { engine, memory, .. } = &mut self.sides[side];
        let mut into = Spans::new();
        for nth in 0..Self::QUEUE {
            into.clear();
            let Some(deposit) = engine.poll_deposit(self.now, &mut into) else { return nth > 0 };
            let (ticket, fails) = (deposit.ticket, self.random.chance(self.faults.failing));
            let fits = into.total_len() == deposit.bytes.len() as u64;
            let landing = if !fails && fits && put(memory, deposit.bytes, &into) {
                Landing::Verified
            } else {
                Landing::Failed
            };
            engine.handle_placed(self.now, ticket, landing);
        }
        true
    }
}

impl<E> End<E> {
    /// The bytes of memory.
    ///
    /// # Panics
    ///
    /// If there is no such memory.
    #[track_caller]
    pub fn bytes(&self, area: Area) -> &[u8] {
        self.memory.area(&area).unwrap_or_else(|| panic!("{area} is not there"))
    }
}

impl<E: Engine> NaiveWire<Checked<E>> {
    /// Both engines kept the contract so far.
    ///
    /// # Panics
    ///
    /// With what broke it.
    #[track_caller]
    pub fn check_contract(&self) {
        assert_eq!(self.sides.each_ref().map(|side| side.engine.violations()), [[], []]);
    }
}

/// Places what was opened: in runs where the engine answers for them.
fn place_opened<E: Engine>(
    engine: &mut E,
    now: Instant,
    mut packets: &[Packet],
    land: &mut impl FnMut(&Packet, &Placement, &Spans),
) {
    while let [packet, behind @ ..] = packets {
        if let Some((units, run, placement, into)) = place_opened_run(engine, now, packets) {
            land(&run, &placement, &into);
            packets = packets.get(units..).unwrap_or_default();
            continue;
        }
        packets = behind;
        let mut into = Spans::new();
        if let Ok(placement) = packet.place_opened(engine, now, &mut into) {
            land(packet, &placement, &into);
        }
    }
}

/// Lets payloads fall where the engine guessed, right or wrong.
fn scatter<E: Engine>(engine: &E, memory: &mut Memory, batch: &[Packet]) {
    let mut nth = 0;
    let mut run = engine.guess(NaiveWire::<E>::PATH, nth);
    for packet in batch {
        let Some(guess) = &mut run else { return };
        let (slot, rest): (Span, Span) = guess.span.split_at(guess.payload_len);
        let payload = packet.bytes.get(usize::from(guess.head_len)..).unwrap_or(&[]);
        if let Some(place) = memory.get_mut(&slot) {
            let len = payload.len().min(place.len());
            place[..len].copy_from_slice(&payload[..len]);
        }
        guess.span = rest;
        if rest.len == 0 {
            nth += 1;
            run = engine.guess(NaiveWire::<E>::PATH, nth);
        }
    }
}
