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
use crate::ids::{ApertureId, ReadId};
use crate::native::Arrival;
use crate::offload::Landed;
use crate::tripwire::Place;
use crate::wire::{Command, ReplyTo};

/// As much of a unit as must be seen to know what it is: the longest command.
const HEAD: u32 = Address::LEN as u32 + MOST_INDIVISIBLE * WORD;

/// What is on its way to its place.
#[derive(Clone, Copy, Debug)]
struct Lands {
    burst: Burst,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Aperture { aperture: ApertureId, at: u64, len: u32 },
    Read { read: ReadId, len: u32 },
}

/// Packets on their way to their places, oldest first.
#[derive(Debug, Default)]
pub(super) struct Arriving {
    queue: VecDeque<Lands>,
    oldest: Serial32,
    /// Which beginning of the link it is.
    pub(super) session: u32,
}

impl Arriving {
    fn push(&mut self, lands: Lands) -> Ticket {
        let number = self.next();
        self.queue.push_back(lands);
        Ticket::from_raw(u64::from(number.0))
    }

    fn pop(&mut self, ticket: Ticket) -> Option<Lands> {
        if ticket.raw() != u64::from(self.oldest.0) {
            return None;
        }
        let lands = self.queue.pop_front()?;
        self.oldest = self.oldest.plus(1);
        Some(lands)
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
        self.queue.iter().map(|lands| lands.burst.cost()).fold(0, u32::saturating_add)
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
            Ok(what) => {
                let ticket = self.arriving.push(Lands { burst, what });
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
    fn burst(&mut self, burst: &Burst, into: &mut Spans) -> Result<What, Refusal> {
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
        Ok(What::Aperture { aperture, at: spot.at, len: spot.span.len })
    }

    /// Words that this host asked for.
    fn reply(&mut self, burst: &Burst, into: &mut Spans) -> Result<What, Refusal> {
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
        Ok(What::Read { read, len })
    }

    /// The sender hears that a packet was refused, where there is a way to tell it.
    fn complain(&mut self, address: Address, refusal: Refusal) -> Refusal {
        self.answer(&Command::Exception { address, reason: Reason::from(refusal) });
        self.stats.complaints += 1;
        refusal
    }

    fn answer(&mut self, answer: &Command) {
        // Behind a switch nobody knows who sent it.
        let Some(Some(peer)) = self.link.peer() else { return };
        if !self.outgoing.answer(answer, peer) {
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
        let Some(Some(reader)) = self.link.peer() else { return Err(Refusal::Unexpected) };
        let checked = if from.kind != Kind::Burst || from.host != self.host {
            Err(Refusal::WrongAddress)
        } else if from.mask != WHOLE || !len.is_multiple_of(WORD) {
            Err(Refusal::Malformed)
        } else {
            self.memory.check_bytes(from, 0, len, Rights::Read)
        };
        let ReplyTo { slot, nonce: key } = reply;
        let answer = Address { kind: Kind::Reply, host: reader, slot, word: 0, mask: WHOLE, key };
        let served = checked.and_then(|spot| {
            let has_room = self.outgoing.serve(answer, spot.span);
            if has_room { Ok(spot) } else { Err(Refusal::NoRoom) }
        });
        match served {
            Ok(spot) => {
                let touched = spot.at..spot.at + u64::from(len);
                self.touch(Place::Local(spot.slot), touched, Access::Read);
                Ok(())
            }
            Err(refusal) => {
                self.answer(&Command::ReadRefused { reply, reason: Reason::from(refusal) });
                Err(refusal)
            }
        }
    }

    /// A payload is in its place, or could not be put there.
    pub(super) fn land(&mut self, ticket: Ticket, landing: Landing) {
        let Some(Lands { burst, what }) = self.arriving.pop(ticket) else { return };
        self.link.handle_taken(&burst);
        self.seen();
        let is_there = matches!(landing, Landing::Verified | Landing::Unchecked);
        match what {
            What::Read { read, len } => {
                if let Some(over) = self.reads.landed(read, len, is_there) {
                    self.news.push(Event::Read { read: over.read, result: over.result });
                }
            }
            What::Aperture { aperture, at, len } => {
                self.written(&burst, aperture, at, len, is_there);
            }
        }
    }

    /// Memory of this host was written, or could not be.
    fn written(&mut self, burst: &Burst, aperture: ApertureId, at: u64, len: u32, is_there: bool) {
        if !is_there {
            let answer =
                Command::Exception { address: burst.address(), reason: Reason::MemoryFailed };
            self.stats.complaints += 1;
            return self.answer(&answer);
        }
        self.stats.bursts += 1;
        // It may have been revoked meanwhile, and its slot be another's.
        let slot = aperture.index as u16;
        if self.memory.id_of(slot) == Some(aperture) {
            self.touch(Place::Local(slot), at..at + u64::from(len), Access::Write);
        }
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
        self.written(&burst, aperture, at, len, is_there);
    }

    /// Memory was touched: fires what watches it, and tells of it.
    fn touch(&mut self, place: Place, bytes: core::ops::Range<u64>, how: Access) {
        let Self { tripwires, fired, .. } = self;
        tripwires.touch(place, bytes, how, &mut |firing| {
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
