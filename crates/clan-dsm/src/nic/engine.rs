//! The contract with drivers.

use landfall_placement::{
    Deposit, Engine, Guess, Instant, Landing, PathId, PathLimits, PathState, Placement, Refusal,
    Refusals, Spans, Ticket, Timeout, Transmit, Unit,
};

use super::{LEAST_UNIT, Nic};
use crate::event::Event;
use crate::ids::{Purpose, pack, unpack};

impl Engine for Nic {
    type Event = Event;

    fn handle_path(&mut self, now: Instant, path: PathId, state: PathState) {
        if let Some(native) = &mut self.native {
            native.handle_path(now, path, state);
            return self.settle(now);
        }
        let known = self.paths.iter().position(|(known, _)| *known == path);
        let limits = match state {
            PathState::Up(limits) if is_of_use(&limits) => Some(limits),
            _ => None,
        };
        match (known, limits) {
            (Some(at), Some(limits)) => self.paths[at].1 = limits,
            (Some(at), None) => drop(self.paths.swap_remove(at)),
            (None, Some(limits)) if self.paths.len() < self.config.paths => {
                self.paths.push((path, limits));
            }
            (None, _) => {}
        }
        self.settle(now);
    }

    /// Never: all memory that others write is accepted memory.
    fn guess(&self, _path: PathId, _nth: usize) -> Option<Guess> {
        None
    }

    fn place(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        let placed = match self.native {
            Some(_) => self.arrive_packet(now, unit, into),
            None => self.arrive(now, unit, into),
        };
        self.settle(now);
        placed.map_err(|refusal| self.refusals.count(refusal))
    }

    fn handle_placed(&mut self, now: Instant, ticket: Ticket, landing: Landing) {
        match self.native {
            Some(_) => self.land_packet(ticket, landing),
            None => self.land(now, ticket, landing),
        }
        self.settle(now);
    }

    fn poll_deposit(&mut self, now: Instant, into: &mut Spans) -> Option<Deposit<'_>> {
        let next = self.next_deposit(now, into);
        self.settle(now);
        let (range, ticket) = next?;
        Some(Deposit { bytes: self.deposited(range)?, ticket })
    }

    fn poll_transmit(
        &mut self,
        now: Instant,
        path: PathId,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        if self.native.is_some() {
            let next = self.poll_packet(now, path, head, from);
            self.settle(now);
            return next;
        }
        let limits = self.paths.iter().find(|(known, _)| *known == path)?.1;
        let (links, mut filler) = self.filler();
        let mut load = |link, room: &_, cargo: &mut _| filler.fill(link, room, cargo);
        let next = links.poll_transmit(now, path, &limits, head, from, &mut load);
        while let Some(link) = self.marked.pop() {
            self.reach_barriers(link);
        }
        self.settle(now);
        let (link, transmit) = next?;
        let purpose = match transmit.ticket.generation() {
            0 => Purpose::Sent,
            _ => Purpose::SentBare,
        };
        Some(Transmit { ticket: pack(purpose, link, transmit.ticket.index()), ..transmit })
    }

    fn handle_sent(&mut self, now: Instant, ticket: Ticket) {
        if self.native.is_some() {
            self.sent_packet(ticket);
            return self.settle(now);
        }
        let Some(meaning) = unpack(ticket) else { return };
        if meaning.purpose != Purpose::Sent {
            return;
        }
        if let Some(link) = self.link_of_ticket(&meaning) {
            self.links.handle_sent(link, meaning.number);
        }
        self.settle(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        match &mut self.native {
            Some(native) => native.handle_timeout(now),
            None => self.links.handle_timeout(now),
        }
        self.settle(now);
    }

    fn poll_timeout(&self) -> Option<Timeout> {
        match &self.native {
            Some(native) => native.poll_timeout(),
            None => self.links.poll_timeout(),
        }
    }

    fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop()?;
        if let Event::Tripwire { tripwire } = event {
            self.tripwires.told(tripwire);
        }
        Some(event)
    }

    fn refusals(&self) -> &Refusals {
        &self.refusals
    }
}

/// Can every command cross the path, and each frame have at least a word?
fn is_of_use(limits: &PathLimits) -> bool {
    limits.unit as usize >= LEAST_UNIT && usize::from(limits.head) >= LEAST_UNIT
}
