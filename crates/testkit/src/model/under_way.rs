//! What is under way at one end: on the wire, and in the driver's hands.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use landfall_placement::{
    Duration, Engine, Instant, Landing, PathId, Placement, Refusal, Span, Spans, Ticket,
};

use super::checked::Checked;
use super::memory::Memory;
use super::packet::Packet;

/// How much may be under way. What is beyond it on the wire is lost; anyone who drives an end
/// sees to the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Packets on the wire.
    pub inbox: usize,
    /// Packets that came and may come again.
    pub past: usize,
    /// Placements of which the engine was not told yet.
    pub landings: usize,
    /// Transmissions that the driver holds.
    pub held: usize,
    /// Tickets of each kind that mean nothing any more.
    pub old: usize,
    /// Whether a ticket that comes again means something once more, and is old no longer.
    pub reuses_tickets: bool,
}

/// The packets and the tickets of one end, for anyone who drives its engine by hand.
#[derive(Clone, Debug)]
pub struct UnderWay {
    bounds: Bounds,
    inbox: VecDeque<Packet>,
    past: VecDeque<Packet>,
    landings: VecDeque<(Packet, Placement, Spans)>,
    held: VecDeque<Ticket>,
    old_placed: VecDeque<Ticket>,
    old_sent: VecDeque<Ticket>,
}

impl UnderWay {
    /// Nothing yet.
    #[must_use]
    pub const fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            inbox: VecDeque::new(),
            past: VecDeque::new(),
            landings: VecDeque::new(),
            held: VecDeque::new(),
            old_placed: VecDeque::new(),
            old_sent: VecDeque::new(),
        }
    }

    // ---- The wire to this end ------------------------------------------------------

    /// How many packets are on the wire.
    #[must_use]
    pub fn packets(&self) -> usize {
        self.inbox.len()
    }

    /// The packets on the wire, and those that came and may come again.
    pub fn known(&self) -> impl Iterator<Item = &Packet> {
        self.inbox.iter().chain(&self.past)
    }

    /// The packets on the wire, from this one on.
    pub fn packets_from(&self, at: usize) -> impl Iterator<Item = &Packet> {
        self.inbox.iter().skip(at)
    }

    /// A packet is on the wire before all others.
    pub fn enqueue_first(&mut self, packet: Packet) {
        self.inbox.push_front(packet);
    }

    /// A packet is on the wire from here on, unless that is full.
    pub fn enqueue(&mut self, packet: Packet) {
        if self.inbox.len() < self.bounds.inbox {
            self.inbox.push_back(packet);
        }
    }

    /// Takes a packet off the wire.
    pub fn pick(&mut self, which: usize) -> Option<Packet> {
        let at = which % self.inbox.len().max(1);
        self.inbox.remove(at)
    }

    /// A packet comes twice.
    pub fn double(&mut self, which: usize) {
        if let Some(packet) = self.pick(which) {
            self.enqueue(packet.clone());
            self.enqueue(packet);
        }
    }

    /// A packet that came long ago comes again.
    pub fn replay(&mut self, which: usize) {
        if let Some(packet) = self.past.get(which % self.past.len().max(1)).cloned() {
            self.enqueue(packet);
        }
    }

    /// A packet is changed, and comes later than others.
    pub fn change(&mut self, which: usize, change: impl FnOnce(&mut Packet)) {
        if let Some(mut packet) = self.pick(which) {
            change(&mut packet);
            self.enqueue(packet);
        }
    }

    // ---- The driver's hands --------------------------------------------------------

    /// Takes a packet off the wire and asks for its place. What has one waits to land.
    pub fn receive<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        which: usize,
    ) -> Option<(Packet, Result<Placement, Refusal>, Spans)> {
        let packet = self.pick(which)?;
        self.remember(&packet);
        let mut into = Spans::new();
        let placement = packet.place(engine, now, &mut into);
        Some((packet, placement, into))
    }

    /// Takes this many packets off the wire, from this one on.
    ///
    /// # Panics
    ///
    /// If there are not this many.
    pub fn receive_run(&mut self, at: usize, count: usize) -> Vec<Packet> {
        let packets: Vec<_> = self.inbox.drain(at..at + count).collect();
        packets.iter().for_each(|packet| self.remember(packet));
        packets
    }

    /// What came may come again later.
    fn remember(&mut self, packet: &Packet) {
        if packet.is_changed || self.bounds.past == 0 {
            return;
        }
        if self.past.len() >= self.bounds.past {
            self.past.pop_front();
        }
        self.past.push_back(packet.clone());
    }

    /// Keeps a placement until it is landed; what needs none is done with.
    pub fn keep(&mut self, packet: Packet, placement: Placement, into: Spans) {
        if !matches!(placement, Placement::Consumed | Placement::NeedHead(_)) {
            self.landings.push_back((packet, placement, into));
        }
    }

    /// How many placements wait to be landed.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.landings.len()
    }

    /// Whether no more may wait.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.landings.len() >= self.bounds.landings
    }

    /// Lands the oldest placement and tells of it. Returns what it named.
    pub fn land<E: Engine>(
        &mut self,
        engine: &mut E,
        memory: &mut Memory,
        now: Instant,
        fails: bool,
    ) -> Option<Spans> {
        let (packet, placement, into) = self.landings.pop_front()?;
        if let Some((ticket, landing)) = packet.land(memory, &placement, &into, fails) {
            self.tell(engine, now, ticket, landing);
        }
        Some(into)
    }

    /// Tells of a landing.
    pub fn tell<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        ticket: Ticket,
        landing: Landing,
    ) {
        engine.handle_placed(now, ticket, landing);
        self.bounds.keep_old(&mut self.old_placed, ticket);
    }

    /// The driver holds a transmission.
    pub fn hold(&mut self, ticket: Ticket) {
        self.held.push_back(ticket);
    }

    /// Whether the driver may hold no more.
    #[must_use]
    pub fn holds_most(&self) -> bool {
        self.held.len() >= self.bounds.held
    }

    /// The driver holds nothing any more; it tells of the oldest or of the newest first.
    pub fn release<E: Engine>(&mut self, engine: &mut E, now: Instant, newest_first: bool) {
        loop {
            let held = &mut self.held;
            let ticket = if newest_first { held.pop_back() } else { held.pop_front() };
            let Some(ticket) = ticket else { return };
            engine.handle_sent(now, ticket);
            self.bounds.keep_old(&mut self.old_sent, ticket);
        }
    }

    /// An old ticket of a placement comes back that means nothing now (invariant 7). It
    /// passes by the checker, which would blame the driver.
    pub fn bring_back_placed<E: Engine>(&mut self, checked: &mut Checked<E>, now: Instant) {
        if let Some(ticket) = self.old_placed.pop_front() {
            checked.engine.handle_placed(now, ticket, Landing::Verified);
        }
    }

    /// The same for one of a transmission.
    pub fn bring_back_sent<E: Engine>(&mut self, checked: &mut Checked<E>, now: Instant) {
        if let Some(ticket) = self.old_sent.pop_front()
            && !self.held.contains(&ticket)
        {
            checked.engine.handle_sent(now, ticket);
        }
    }
}

/// A receive that was guessed wrong: junk wherever the engine allows it, which must be
/// memory that `may_fall` allows.
///
/// # Errors
///
/// A guess that names no memory, or memory where nothing may fall.
pub fn scatter<E: Engine>(
    engine: &E,
    memory: &mut Memory,
    path: PathId,
    mut may_fall: impl FnMut(&Span) -> bool,
) -> Result<(), Span> {
    for nth in 0..4 {
        let Some(guess) = engine.guess(path, nth) else { break };
        let place = memory.get_mut(&guess.span).filter(|_| may_fall(&guess.span));
        place.ok_or(guess.span)?.fill(0xee);
    }
    Ok(())
}

/// Time passes for all engines: so much, or up to the next timeout of any.
pub fn pass_time<'e, E: Engine + 'e>(
    now: &mut Instant,
    time: Option<Duration>,
    engines: impl IntoIterator<Item = &'e mut E>,
) {
    let engines: Vec<_> = engines.into_iter().collect();
    let next = engines.iter().filter_map(|engine| engine.poll_timeout()).map(|t| t.at).min();
    *now = match time {
        Some(time) => *now + time,
        None => (*now).max(next.unwrap_or(*now)),
    };
    engines.into_iter().for_each(|engine| engine.handle_timeout(*now));
}

impl Bounds {
    fn keep_old(&self, old: &mut VecDeque<Ticket>, ticket: Ticket) {
        if self.reuses_tickets {
            old.retain(|known| *known != ticket);
        }
        old.push_back(ticket);
        if old.len() > self.old {
            old.pop_front();
        }
    }
}
