//! The contract with drivers.

use landfall_placement::{
    Ecn, Engine, Guess, Instant, Landing, PathId, PathState, Peer, Placement, Refusal, Refusals,
    Serial32, Spans, Ticket, Timeout, Transmit, Unit,
};

use super::Station;
use super::news::Event;
use crate::address::{Address, WORD};
use crate::burst::MOST_INDIVISIBLE;
use crate::wire::native::Symbol;

/// What a path must carry: every command.
const LEAST_UNIT: u32 = Address::LEN as u32 + MOST_INDIVISIBLE * WORD;

/// The ticket of a symbol, which holds no memory and no place.
const NOTHING: Ticket = Ticket::from_raw(u64::MAX);

impl Engine for Station {
    type Event = Event;

    fn handle_path(&mut self, now: Instant, path: PathId, state: PathState) {
        if path != self.config.path {
            return;
        }
        let unit = match state {
            PathState::Up(limits) if u32::from(limits.head) >= LEAST_UNIT => limits.unit,
            _ => 0,
        };
        let was_up = self.unit > 0;
        self.unit = if unit >= LEAST_UNIT { unit } else { 0 };
        if self.unit == 0 {
            self.link.handle_down();
        } else if !was_up {
            self.begin(now);
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
        let placed = self.arrive(now, unit, into);
        self.settle(now);
        placed.map_err(|refusal| self.refusals.count(refusal))
    }

    fn handle_placed(&mut self, now: Instant, ticket: Ticket, landing: Landing) {
        self.land(ticket, landing);
        self.settle(now);
    }

    fn poll_transmit(
        &mut self,
        now: Instant,
        path: PathId,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        if path != self.config.path || self.unit == 0 {
            return None;
        }
        let symbol = self.link.poll_symbol(now);
        let next = match symbol.and_then(|symbol| Some((symbol, head.get_mut(..Symbol::LEN)?))) {
            Some((symbol, place)) => {
                place.copy_from_slice(&symbol.to_bytes());
                from.clear();
                Some((Symbol::LEN as u16, NOTHING))
            }
            None => {
                let Self { outgoing, link, memory, unit, .. } = self;
                let next = outgoing.next(link, memory, *unit, head, from);
                self.stats.packets += u64::from(next.is_some());
                next.map(|(len, number)| (len, Ticket::from_raw(u64::from(number.0))))
            }
        };
        self.settle(now);
        let (head_len, ticket) = next?;
        Some(Transmit {
            to: Peer::Unaddressed,
            head_len,
            segment: None,
            checksum: None,
            sum_only: 0,
            ecn: Ecn::default(),
            ticket,
        })
    }

    fn handle_sent(&mut self, now: Instant, ticket: Ticket) {
        if let Ok(number) = u32::try_from(ticket.raw()) {
            self.sent(Serial32(number));
        }
        self.settle(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.link.handle_timeout(now);
        self.settle(now);
    }

    fn poll_timeout(&self) -> Option<Timeout> {
        self.link.poll_timeout().filter(|_| self.unit > 0)
    }

    fn poll_event(&mut self) -> Option<Event> {
        let event = self.news.pop()?;
        if let Event::Tripwire { tripwire } = event {
            self.tripwires.told(tripwire);
        }
        Some(event)
    }

    fn refusals(&self) -> &Refusals {
        &self.refusals
    }
}
