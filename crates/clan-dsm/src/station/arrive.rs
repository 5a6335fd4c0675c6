//! Where packets belong, and what happens once they are there.

use alloc::collections::VecDeque;

use landfall_placement::{
    Check, Instant, Landing, Placement, Refusal, Serial32, Spans, Ticket, Unit,
};

use super::Station;
use super::news::Event;
use crate::access::{Access, Rights};
use crate::address::{Address, Kind, WHOLE, WORD};
use crate::burst::{Admitted, Burst, MOST_INDIVISIBLE, admit};
use crate::error::Reason;
use crate::ids::ApertureId;
use crate::native::Arrival;
use crate::nic::line::Lands;
use crate::nic::note::Note;
use crate::offload::Landed;
use crate::transfer::reads::Asked;
use crate::tripwire::Place;
use crate::wire::{Command, ReplyTo};

/// As much of a unit as must be seen to know what it is: the longest command.
const HEAD: u32 = Address::LEN as u32 + MOST_INDIVISIBLE * WORD;

/// A packet on its way to its place: all of it takes room, also what of it was refused.
#[derive(Clone, Copy, Debug)]
struct Placed {
    burst: Burst,
    lands: Lands,
}

/// Packets on their way to their places, oldest first.
#[derive(Debug, Default)]
pub(super) struct Arriving {
    queue: VecDeque<Placed>,
    oldest: Serial32,
    /// Which beginning of the link it is.
    pub(super) session: u32,
}

impl Arriving {
    fn push(&mut self, placed: Placed) -> Ticket {
        let number = self.next();
        self.queue.push_back(placed);
        Ticket::from_raw(u64::from(number.0))
    }

    fn pop(&mut self, ticket: Ticket) -> Option<Placed> {
        if ticket.raw() != u64::from(self.oldest.0) {
            return None;
        }
        let placed = self.queue.pop_front()?;
        self.oldest = self.oldest.plus(1);
        Some(placed)
    }

    /// The number of the next one.
    pub(super) fn next(&self) -> Serial32 {
        self.oldest.plus(self.queue.len() as u32)
    }

    /// Are all before this number in their places?
    pub(super) fn has_settled(&self, before: Serial32) -> bool {
        !self.oldest.precedes(before)
    }

    /// How much of the link's room they take.
    pub(super) fn cost(&self) -> u32 {
        self.queue.iter().map(|placed| placed.burst.cost()).fold(0, u32::saturating_add)
    }
}

impl Station {
    /// A unit came. What the adapter gave counts as seen here, unless its payload is
    /// still on its way.
    pub(super) fn arrive(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        if unit.head.len() < unit.len.min(HEAD) as usize {
            return Ok(Placement::NeedHead(unit.len.min(HEAD) as u16));
        }
        let placed = self.look_at(now, unit, into);
        if !matches!(placed, Ok(Placement::Into { .. })) {
            self.seen();
        }
        placed
    }

    fn look_at(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        if unit.path != self.config.path {
            return Err(Refusal::WrongAddress);
        }
        let burst = match self.link.handle_unit(now, unit.head, unit.len)? {
            Arrival::Packet(burst) => burst,
            Arrival::Symbol | Arrival::Stale => return Ok(Placement::Consumed),
        };
        let lands = match burst.address().kind {
            Kind::Command => {
                let result = self.command(&burst, unit.head);
                self.link.handle_taken(&burst);
                return result.map(|()| Placement::Consumed);
            }
            Kind::Reply => self.reply(&burst, into),
            Kind::Burst | Kind::Multicast => self.burst(&burst, into),
        };
        match lands {
            Ok(lands) => {
                let ticket = self.arriving.push(Placed { burst, lands });
                let at = Address::LEN as u16 + burst.address().enabled().0 as u16;
                Ok(Placement::Into { at, check: Check::None, ticket })
            }
            Err(refusal) => {
                self.link.handle_taken(&burst);
                Err(refusal)
            }
        }
    }

    /// What the adapter gave was dealt with.
    fn seen(&mut self) {
        if let Some(mirror) = &mut self.mirror {
            mirror.seen();
        }
    }

    /// Words for memory of this host: as many as belong there.
    fn burst(&mut self, burst: &Burst, into: &mut Spans) -> Result<Lands, Refusal> {
        let address = burst.address();
        if address.kind == Kind::Burst && address.host != self.host {
            return Err(Refusal::WrongAddress);
        }
        let from = self.link.peer().flatten();
        if address.kind == Kind::Multicast && !self.memory.takes_from(&address, from) {
            return Err(self.complain(address, Refusal::Forbidden));
        }
        let Admitted { taken, refused } = admit(&self.memory.apertures(), *burst);
        let refused = refused.map(|(rest, refusal)| self.complain(rest.address(), refusal));
        let Some((_, spot)) = taken else { return Err(refused.unwrap_or(Refusal::Malformed)) };
        if let Some(refusal) = refused {
            self.refusals.count(refusal);
        }
        let aperture = self.memory.id_of(spot.slot).ok_or(Refusal::UnknownId)?;
        // The list comes empty.
        let _ = into.push(spot.span);
        Ok(Lands::Aperture { address, aperture, at: spot.at, len: spot.span.len })
    }

    /// Words that this host asked for.
    fn reply(&mut self, burst: &Burst, into: &mut Spans) -> Result<Lands, Refusal> {
        let address = burst.address();
        if address.host != self.host {
            return Err(Refusal::WrongAddress);
        }
        let len = burst.words().checked_mul(WORD).ok_or(Refusal::OutOfBounds)?;
        if address.mask != WHOLE {
            return Err(Refusal::Malformed);
        }
        let (read, span) = self.reads.check(0, &address, len, 0)?;
        self.reads.placed(read, len);
        let _ = into.push(span);
        Ok(Lands::Read { read, len })
    }

    /// The sender hears that a packet was refused, where there is a way to tell it.
    fn complain(&mut self, address: Address, refusal: Refusal) -> Refusal {
        self.answer(Command::Exception { address, reason: Reason::from(refusal) });
        self.stats.complaints += 1;
        refusal
    }

    fn answer(&mut self, answer: Command) {
        // Behind a switch nobody knows who sent it.
        if self.link.peer().flatten().is_some() && !self.outgoing.answer(answer) {
            self.stats.answers_lost += 1;
        }
    }

    fn command(&mut self, burst: &Burst, head: &[u8]) -> Result<(), Refusal> {
        let address = burst.address();
        let parameters = head.get(Address::LEN..).unwrap_or_default();
        let parameters = parameters.get(..address.word as usize).ok_or(Refusal::Truncated)?;
        if address.host != self.host {
            return Err(Refusal::WrongAddress);
        }
        match Command::parse(&address, parameters)? {
            Command::Read { from, len, reply } => self.serve(&from, len, reply),
            Command::ReadRefused { reply, reason } => {
                let over = self.reads.refused(0, reply.slot, reply.nonce, reason)?;
                self.news.push(Event::Read { read: over.read, result: over.result });
                Ok(())
            }
            Command::Exception { address, reason } => {
                self.news.push_news(Event::Exception { address, reason });
                Ok(())
            }
            _ => Err(Refusal::Unsupported),
        }
    }

    /// Somebody reads memory of this host: whole words.
    fn serve(&mut self, from: &Address, len: u32, reply: ReplyTo) -> Result<(), Refusal> {
        if self.link.peer().flatten().is_none() {
            return Err(Refusal::Unexpected);
        }
        let checked = if from.kind != Kind::Burst || from.host != self.host {
            Err(Refusal::WrongAddress)
        } else if from.mask != WHOLE || !len.is_multiple_of(WORD) {
            Err(Refusal::Malformed)
        } else {
            self.memory.check_bytes(from, 0, len, Rights::Read)
        };
        let ReplyTo { slot, nonce } = reply;
        let asked = Asked { address: *from, len: u64::from(len), slot, nonce };
        let served = checked
            .and_then(|_| self.outgoing.serve(&self.memory, asked).map_err(|_| Refusal::NoRoom));
        if let Err(refusal) = served {
            self.answer(Command::ReadRefused { reply, reason: Reason::from(refusal) });
        }
        served
    }

    /// A driver has let a packet go.
    pub(super) fn sent(&mut self, number: Serial32) {
        match self.outgoing.sent(number) {
            Some(Note::From(write, _, bytes)) => {
                self.outgoing.written(write, u64::from(bytes.len), Ok(()), &mut self.news);
            }
            Some(Note::Served(aperture, at, len)) => self.touch(aperture, at, len, Access::Read),
            Some(Note::Written(..) | Note::Dma(..)) | None => {}
        }
    }

    /// A payload is in its place, or could not be put there.
    pub(super) fn land(&mut self, ticket: Ticket, landing: Landing) {
        let Some(Placed { burst, lands }) = self.arriving.pop(ticket) else { return };
        self.link.handle_taken(&burst);
        self.seen();
        let is_there = matches!(landing, Landing::Verified | Landing::Unchecked);
        match lands {
            Lands::Read { read, len } => {
                if let Some(over) = self.reads.landed(read, len, is_there) {
                    self.news.push(Event::Read { read: over.read, result: over.result });
                }
            }
            Lands::Aperture { address, aperture, at, len } => {
                self.written(address, aperture, at, len, is_there);
            }
        }
    }

    /// Memory of this host was written, or could not be.
    fn written(
        &mut self,
        address: Address,
        aperture: ApertureId,
        at: u64,
        len: u32,
        is_there: bool,
    ) {
        if !is_there {
            self.stats.complaints += 1;
            return self.answer(Command::Exception { address, reason: Reason::MemoryFailed });
        }
        self.stats.bursts += 1;
        self.touch(aperture, at, len, Access::Write);
    }

    /// The adapter has put a burst into its place. It was checked there, and is booked
    /// here as if it had been checked here.
    pub(super) fn landed_there(&mut self, landed: &Landed) {
        let Landed { burst, session, slot, generation, at, len, is_there, is_hit, told } = *landed;
        if session == self.arriving.session {
            self.link.handle_landed(&burst, told);
        }
        self.stats.offloaded += u64::from(is_there);
        let is_blind = self.mirror.as_ref().is_some_and(super::mirror::Mirror::is_blind);
        if is_there && !is_hit && !is_blind {
            self.stats.bursts += 1;
            return;
        }
        let aperture = ApertureId::new((u32::from(slot), generation));
        self.written(burst.address(), aperture, at, len, is_there);
    }

    /// Memory was touched: fires what watches it, and tells of it.
    fn touch(&mut self, aperture: ApertureId, at: u64, len: u32, how: Access) {
        // It may have been revoked meanwhile, and its slot be another's.
        let slot = aperture.index as u16;
        if self.memory.id_of(slot) != Some(aperture) {
            return;
        }
        let Self { tripwires, fired, .. } = self;
        let bytes = at..at + u64::from(len);
        tripwires.touch(Place::Local(slot), bytes, how, &mut |firing| {
            fired.push((firing.tripwire, firing.tells));
        });
        for nth in 0..self.fired.len() {
            let (tripwire, tells) = self.fired[nth];
            if tells {
                self.news.push(Event::Tripwire { tripwire });
            }
            let Some(mirror) = &mut self.mirror else { continue };
            if self.tripwires.watched_words(tripwire.index).is_none() {
                mirror.wire_changed(tripwire.index);
            }
        }
        self.fired.clear();
    }
}
