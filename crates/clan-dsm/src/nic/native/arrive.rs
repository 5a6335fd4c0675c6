//! Where packets belong, and what happens once they are there.

use alloc::collections::VecDeque;

use landfall_placement::{
    Check, Instant, Landing, Placement, Refusal, Serial32, Spans, Ticket, Unit, assumed,
};

use crate::address::{Address, ApertureId, Kind, LinkId, WHOLE, WORD};
use crate::cookie::Rights;
use crate::error::Reason;
use crate::native::{Admitted, Arrival, Burst, admit};
use crate::nic::Nic;
use crate::nic::link_table::PacketEffect;
use crate::offload::Landed;
use crate::wire::Command;

use super::LEAST_UNIT;
use super::mirror::Mirror;

/// A packet on its way to its place: all of it takes room, also what of it was refused.
#[derive(Clone, Copy, Debug)]
struct Placed {
    burst: Burst,
    lands: PacketEffect,
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

impl Nic {
    /// A unit of the native link came. What the adapter gave counts as seen here, unless its
    /// payload is still on its way.
    #[inline(never)]
    pub(in crate::nic) fn arrive_packet(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        // The longest command must be seen to know what it is.
        if unit.head.len() < unit.len.min(LEAST_UNIT) as usize {
            return Ok(Placement::NeedHead(unit.len.min(LEAST_UNIT) as u16));
        }
        let placed = self.place_unit(now, unit, into);
        if !matches!(placed, Ok(Placement::Into { .. })) {
            self.seen();
        }
        placed
    }

    fn place_unit(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        let native = self.native.as_mut().ok_or(Refusal::WrongAddress)?;
        if unit.path != native.config.path {
            return Err(Refusal::WrongAddress);
        }
        let burst = match native.link.handle_unit(now, unit.head, unit.len)? {
            Arrival::Packet(burst) => burst,
            Arrival::Symbol | Arrival::Stale => return Ok(Placement::Consumed),
        };
        // Nothing but symbols comes before it is up.
        let link = native.up.ok_or(Refusal::Unexpected)?;
        let lands = match burst.address().kind {
            Kind::Command => {
                let result = self.packet_command(link, &burst, unit.head);
                self.taken(&burst);
                return result.map(|()| Placement::Consumed);
            }
            Kind::Reply => self.place_reply(link, &burst, into),
            Kind::Burst | Kind::Multicast => self.place_burst(link, &burst, into),
        };
        match (lands, &mut self.native) {
            (Ok(lands), Some(native)) => {
                let ticket = native.arriving.push(Placed { burst, lands });
                let at = Address::LEN as u16 + burst.address().enabled().0 as u16;
                Ok(Placement::Into { at, check: Check::None, ticket })
            }
            (lands, _) => {
                self.taken(&burst);
                lands.map(|_| Placement::Consumed)
            }
        }
    }

    /// What the adapter gave was dealt with.
    fn seen(&mut self) {
        if let Some(mirror) = self.mirror() {
            mirror.seen();
        }
    }

    /// A packet is out of the way: in its place, or refused.
    fn taken(&mut self, burst: &Burst) {
        if let Some(native) = &mut self.native {
            native.link.handle_taken(burst);
        }
    }

    /// Words for memory of this host: as many as belong there.
    fn place_burst(
        &mut self,
        link: LinkId,
        burst: &Burst,
        into: &mut Spans,
    ) -> Result<PacketEffect, Refusal> {
        let address = burst.address();
        if address.kind == Kind::Burst && address.host != self.host {
            return Err(Refusal::WrongAddress);
        }
        let from = self.links.host_of(link);
        if address.kind == Kind::Multicast && !self.memory.takes_from(&address, from) {
            self.complain(link, address, Reason::from(Refusal::Forbidden));
            return Err(Refusal::Forbidden);
        }
        let Admitted { taken, refused } = admit(&self.memory.apertures_for(from), *burst);
        if let Some((rest, refusal)) = refused {
            self.complain(link, rest.address(), Reason::from(refusal));
            if taken.is_none() {
                return Err(refusal);
            }
            self.refusals.count(refusal);
        }
        let (_, spot) = taken.ok_or(Refusal::Malformed)?;
        let aperture = self.memory.id_of(spot.slot).ok_or(Refusal::UnknownId)?;
        // The list comes empty.
        let _ = into.push(spot.span);
        Ok(PacketEffect::Aperture { address, aperture, at: spot.at, len: spot.span.len })
    }

    /// Words that this host asked for.
    fn place_reply(
        &mut self,
        link: LinkId,
        burst: &Burst,
        into: &mut Spans,
    ) -> Result<PacketEffect, Refusal> {
        let address = burst.address();
        if address.host != self.host {
            return Err(Refusal::WrongAddress);
        }
        let len = burst.words().checked_mul(WORD).ok_or(Refusal::OutOfBounds)?;
        if address.mask != WHOLE {
            return Err(Refusal::Malformed);
        }
        let (read, span) = self.reads.check(link.index, &address, len, 0)?;
        self.reads.placed(read, len);
        let _ = into.push(span);
        Ok(PacketEffect::Read { read, len })
    }

    fn packet_command(&mut self, link: LinkId, burst: &Burst, head: &[u8]) -> Result<(), Refusal> {
        let address = burst.address();
        let parameters = head.get(Address::LEN..).unwrap_or_default();
        let parameters = parameters.get(..address.word as usize).ok_or(Refusal::Truncated)?;
        if let Command::Read { from, len, reply } = Command::parse(&address, parameters)?
            && address.host == self.host
            && self.links.host_of(link).is_some()
            && let Err(refusal) = self.may_serve(link, &from, len)
        {
            self.answer(link, Command::ReadRefused { reply, reason: Reason::from(refusal) });
            return Err(refusal);
        }
        self.handle_command(link, &address, parameters)
    }

    /// May these bytes be read over a native link: whole words?
    fn may_serve(&self, link: LinkId, from: &Address, len: u32) -> Result<(), Refusal> {
        if from.kind != Kind::Burst || from.host != self.host {
            return Err(Refusal::WrongAddress);
        }
        if from.mask != WHOLE || !len.is_multiple_of(WORD) {
            return Err(Refusal::Malformed);
        }
        let reader = self.links.host_of(link);
        self.memory.apertures_for(reader).check_bytes(from, 0, len, Rights::Read).map(drop)
    }

    /// A payload is in its place, or could not be put there.
    #[inline(never)]
    pub(in crate::nic) fn land_packet(&mut self, ticket: Ticket, landing: Landing) {
        let Some(native) = assumed(self.native.as_mut(), "only native links take packets") else {
            return;
        };
        // The ticket is of a session before.
        let Some(Placed { burst, lands }) = native.arriving.pop(ticket) else { return };
        native.link.handle_taken(&burst);
        self.seen();
        let is_there = matches!(landing, Landing::Verified | Landing::Unchecked);
        self.land_here(lands, is_there);
    }

    fn land_here(&mut self, lands: PacketEffect, is_there: bool) {
        let is_burst = is_there && matches!(lands, PacketEffect::Aperture { .. });
        self.stats.bursts += u64::from(is_burst);
        // Where the link is down, there is nobody to complain to.
        let link = self.native.as_ref().and_then(|native| native.up);
        self.land_one(link.unwrap_or(LinkId::new(0, u32::MAX)), lands, is_there);
    }

    /// The adapter has put a packet into its place. It was checked there, and is booked
    /// here as if it had been checked here.
    pub(super) fn landed_there(&mut self, landed: &Landed) {
        let Landed { burst, session, slot, generation, at, len, is_there, is_hit, advertised } =
            *landed;
        let Some(native) = assumed(self.native.as_mut(), "only native links have adapters") else {
            return;
        };
        if session == native.arriving.session {
            native.link.handle_landed(&burst, advertised);
        }
        self.stats.offloaded += u64::from(is_there);
        let is_blind = native.mirror.as_ref().is_some_and(Mirror::is_blind);
        if is_there && !is_hit && !is_blind {
            self.stats.bursts += 1;
            return;
        }
        let aperture = ApertureId::new(u32::from(slot), generation);
        let address = burst.address();
        self.land_here(PacketEffect::Aperture { address, aperture, at, len }, is_there);
    }
}
