//! [`Placements`]: payloads that drivers are putting into their place.

use core::net::SocketAddr;

use landfall_placement::{Ecn, Instant, Refusal, Ticket};
use landfall_tables::{EntryKey, Table};

use super::links::Origin;
use crate::ip::reassembly::ReassembledId;
use crate::offload;
use crate::tcp::{Claim, Joined, Segment};
use crate::wire::dhcp::Reply;
use crate::work::QueuePairId;

/// A payload that a driver is putting into its place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Placing {
    /// Of a segment of a connection.
    Stream { pair: QueuePairId, segment: Segment, claim: Claim, piece: Option<ReassembledId> },
    /// Of a segment that only had to be checked.
    Checked { origin: Origin, segment: Segment },
    /// Of what a server of DHCP says on a link, which only had to be checked.
    Lease { link: usize, reply: Reply },
    /// Of a datagram, with as many bytes as it had.
    Datagram { pair: QueuePairId, from: SocketAddr, len: u32, piece: Option<ReassembledId> },
}

/// The payload of a segment that came as predicted. Nearly all are of this kind, and most of
/// what headers can say is nothing here.
#[derive(Clone, Copy, Debug)]
pub(super) struct PredictedPlacing {
    pub(super) pair: QueuePairId,
    pub(super) hit: offload::Segment,
    /// Where it was joined from several: the payload of each but the last.
    pub(super) coalesced: Option<u16>,
    pub(super) claim: Claim,
}

impl PredictedPlacing {
    /// Takes what came right behind it and says the same, as a device would have joined the two:
    /// they count as one. A mark of the network counts by itself, and so does a push of a byte
    /// stream, which tells its user at once.
    #[inline]
    fn join(&mut self, next: &Self) -> bool {
        let (mine, its) = (&mut self.hit, &next.hit);
        let says_same = mine.ack == its.ack
            && mine.window == its.window
            && mine.timestamp == its.timestamp
            && mine.ecn == its.ecn
            && mine.ecn != Ecn::CongestionExperienced;
        let is_told = mine.is_pushed && !self.claim.notes_end();
        if self.pair != next.pair || !says_same || is_told || !self.claim.join(&next.claim) {
            return false;
        }
        let first = u16::try_from(mine.len).unwrap_or(u16::MAX);
        self.coalesced = self.coalesced.or(Some(first));
        mine.len += its.len;
        mine.is_pushed = its.is_pushed;
        true
    }
}

/// Payloads of one connection that are in place, one behind another, and count together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrivals {
    all: PredictedPlacing,
    payloads: Joined,
    /// When the last one came.
    pub(super) now: Instant,
    pub(super) segments: u32,
}

impl Arrivals {
    #[inline]
    pub(super) const fn new(now: Instant, first: PredictedPlacing) -> Self {
        let payloads = Joined { longest: first.hit.len, last: first.hit.len };
        Self { all: first, payloads, now, segments: 1 }
    }

    /// Takes one more, if it is one with them.
    #[inline]
    pub(super) fn join(&mut self, now: Instant, next: &PredictedPlacing) -> bool {
        if !self.all.join(next) {
            return false;
        }
        (self.now, self.segments) = (now, self.segments + 1);
        let last = next.hit.len;
        self.payloads = Joined { longest: self.payloads.longest.max(last), last };
        true
    }

    #[inline]
    pub(super) const fn timestamp(&self) -> Option<(u32, u32)> {
        self.all.hit.timestamp
    }

    #[inline]
    pub(super) const fn pair(&self) -> QueuePairId {
        self.all.pair
    }

    /// All of them as one segment, and the place that they have.
    #[inline]
    pub(super) fn segment(&self) -> (Segment, Claim) {
        let PredictedPlacing { hit, coalesced, claim, .. } = &self.all;
        let joined = (self.segments > 1).then_some(self.payloads);
        (Segment { joined, ..Segment::predicted(hit, *coalesced) }, *claim)
    }
}

/// All of them, by the ticket that the driver gives back.
#[derive(Debug)]
pub(super) struct Placements {
    predicted: Table<PredictedPlacing>,
    others: Table<Placing>,
    /// This many in all.
    most: usize,
}

/// The tickets of what came as predicted have this bit in their index.
const PREDICTED: u32 = 1 << 31;

impl Placements {
    pub(super) const fn new(most: usize) -> Self {
        Self { predicted: Table::new(most), others: Table::new(most), most }
    }

    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.predicted.len() + self.others.len() < self.most
    }

    /// Keeps what a driver is to bring into its place, and names it.
    #[inline]
    pub(super) fn keep(&mut self, placing: Placing) -> Result<Ticket, Refusal> {
        if !self.has_room() {
            return Err(Refusal::NoRoom);
        }
        let EntryKey { index, generation } = self.others.insert(placing).ok_or(Refusal::NoRoom)?;
        Ok(Ticket::new(index, generation))
    }

    /// The same for what came as predicted.
    #[inline]
    pub(super) fn keep_predicted(&mut self, placing: PredictedPlacing) -> Result<Ticket, Refusal> {
        if !self.has_room() {
            return Err(Refusal::NoRoom);
        }
        let kept = self.predicted.insert(placing);
        let EntryKey { index, generation } = kept.ok_or(Refusal::NoRoom)?;
        Ok(Ticket::new(index | PREDICTED, generation))
    }

    /// Takes what has this name. Each ticket names something once.
    #[inline]
    pub(super) fn take(&mut self, ticket: Ticket) -> Option<Placing> {
        self.others.named(ticket.index(), ticket.generation())?;
        self.others.remove(ticket.index())
    }

    /// What came as predicted and has this name.
    #[inline]
    pub(super) fn predicted(&self, ticket: Ticket) -> Option<&PredictedPlacing> {
        let index = ticket.index() & !PREDICTED;
        if index == ticket.index() {
            return None;
        }
        self.predicted.named(index, ticket.generation())
    }

    /// It is in its place, or failed its check.
    #[inline]
    pub(super) fn remove_predicted(&mut self, ticket: Ticket) {
        self.predicted.remove(ticket.index() & !PREDICTED);
    }
}
