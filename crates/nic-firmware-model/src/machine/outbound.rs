//! From the host's send ring to the wire; and [`Route`]: what an adapter puts in front of a
//! frame, for switches that keep no tables.

use landfall_placement::{Ecn, Instant, InternetSum, PathId, Peer, Span, Spans, SumSlot};

use super::ring::Ring;
use super::ring::Store;
use super::slots::Slots;
use crate::firmware::{HostMemory, OutgoingFrame, Word};

/// A frame to be sent: its head, and where the rest lies in the host's memory.
#[derive(Clone, Copy, Debug)]
pub struct Send<'a> {
    /// Over which link.
    pub path: PathId,
    /// To whom.
    pub to: Peer,
    /// The ECN codepoint to send with.
    pub ecn: Ecn,
    /// Its first bytes.
    pub head: &'a [u8],
    /// The memory of the others.
    pub from: &'a [Span],
    /// A checksum that the adapter fills in.
    pub checksum: Option<SumSlot>,
    /// This many bytes at the end are only summed, and not sent.
    pub sum_only: u32,
    /// What the host is told once its memory is not needed any more.
    pub ticket: u64,
}

/// What is known of a frame to be sent, beside its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    path: PathId,
    to: Peer,
    ecn: Ecn,
    head: u16,
    checksum: Option<SumSlot>,
    sum_only: u32,
    /// Nothing where nobody waits to be told: the firmware's own.
    ticket: Option<u64>,
    route: Route,
}

/// How far a frame is on its way out.
#[derive(Clone, Copy, Debug)]
pub enum Leg {
    /// A DMA engine may fetch it from then on.
    Waiting(Instant),
    /// It is in SRAM at that moment.
    Moving(Instant),
    /// It waits for the wire.
    Ready,
    /// It cannot be sent: its memory is gone, or nobody knows the way.
    Void,
}

/// A frame that may leave.
#[derive(Clone, Copy, Debug)]
pub struct Departure<'a> {
    /// Over which link.
    pub path: PathId,
    /// To whom.
    pub to: Peer,
    /// The ECN codepoint.
    pub ecn: Ecn,
    /// What goes in front of it, for the switches on its way.
    pub route: Route,
    /// All of its bytes.
    pub bytes: &'a [u8],
}

/// Frames from the host, until they have left.
#[derive(Debug)]
pub struct Outbound<'s> {
    /// Frames in SRAM, from the host's request until they have left.
    pub slots: Slots<'s, Order>,
    /// For each slot, where the rest of it lies.
    pub spans: Store<'s, Spans>,
    /// What the processor has seen, in order.
    pub queue: Ring<'s, (u16, Leg)>,
    /// What was sent, and the host was not told.
    pub sent: Ring<'s, u64>,
    /// How many a DMA engine has begun with.
    begun: usize,
}

impl<'s> Outbound<'s> {
    /// Empty, in this storage.
    #[must_use]
    pub fn new(
        slots: Slots<'s, Order>,
        spans: impl Into<Store<'s, Spans>>,
        queue: Ring<'s, (u16, Leg)>,
        sent: Ring<'s, u64>,
    ) -> Self {
        Self { slots, spans: spans.into(), queue, sent, begun: 0 }
    }

    /// Enters a frame, where there is room.
    pub(super) fn take_in(&mut self, send: &Send<'_>) -> Option<u16> {
        // Each will be told of: the host must have heard of earlier ones.
        if self.sent.room() <= self.slots.used() {
            return None;
        }
        let len = send.from.iter().map(|span| u64::from(span.len)).sum::<u64>();
        let len = usize::try_from(len).ok()?.checked_add(send.head.len())?;
        let order = Order {
            path: send.path,
            to: send.to,
            ecn: send.ecn,
            head: u16::try_from(send.head.len()).ok()?,
            checksum: send.checksum,
            sum_only: send.sum_only,
            ticket: Some(send.ticket),
            route: Route::DIRECT,
        };
        let slot = self.slots.take(len, order)?;
        for (place, byte) in self.slots.bytes_mut(slot).iter_mut().zip(send.head) {
            *place = *byte;
        }
        if let Some(spans) = self.spans.get_mut(usize::from(slot)) {
            spans.clear();
            for span in send.from {
                // A list of spans never has more than fit into one.
                let _ = spans.push(*span);
            }
        }
        Some(slot)
    }

    /// Where the payload of a frame lies is not told with it.
    pub(super) fn forget_places(&mut self, slot: u16) {
        if let Some(spans) = self.spans.get_mut(usize::from(slot)) {
            spans.clear();
        }
    }

    /// It lies there. False where that is not as much as the frame has room for.
    pub(super) fn set_places(&mut self, slot: u16, from: Spans) -> bool {
        let head = self.slots.about(slot).map_or(0, |order| u64::from(order.head));
        let fits = head.checked_add(from.total_len()) == Some(self.slots.bytes(slot).len() as u64);
        if let Some(spans) = self.spans.get_mut(usize::from(slot)).filter(|_| fits) {
            *spans = from;
        }
        fits
    }

    /// A frame as the firmware sees it, before its payload is fetched.
    pub(super) fn leaving(&self, slot: u16) -> OutgoingFrame<'_> {
        let bytes = self.slots.bytes(slot);
        let order = self.slots.about(slot);
        // What is only summed is not sent.
        let (head, rest) = order.map_or((0, 0), |order| (usize::from(order.head), order.sum_only));
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX).saturating_sub(rest);
        OutgoingFrame { head: bytes.get(..head).unwrap_or(&[]), len }
    }

    /// The processor has seen a frame, which leaves this way from then on.
    pub(super) fn queue_up(&mut self, slot: u16, route: Option<Route>, from: Instant) {
        let leg = route.map_or(Leg::Void, |_| Leg::Waiting(from));
        if let Some(order) = self.slots.about_mut(slot) {
            order.route = route.unwrap_or_default();
        }
        self.queue.push((slot, leg));
    }

    /// A frame of the firmware's own, which needs no DMA.
    pub(super) fn say(&mut self, word: &Word) {
        let order = Order {
            path: word.path,
            to: Peer::Unaddressed,
            ecn: Ecn::default(),
            head: word.bytes.len() as u16,
            checksum: None,
            sum_only: 0,
            ticket: None,
            route: Route::DIRECT,
        };
        let Some(slot) = self.slots.take(word.bytes.len(), order) else { return };
        for (place, byte) in self.slots.bytes_mut(slot).iter_mut().zip(word.bytes) {
            *place = byte;
        }
        self.queue.push((slot, Leg::Ready));
    }

    /// The length of a frame that waits for a DMA engine, and in how many pieces it lies.
    pub(super) fn size_of(&self, slot: u16) -> (u64, u32) {
        let pieces = self.spans.get(usize::from(slot)).map_or(0, |spans| spans.len());
        (self.slots.bytes(slot).len() as u64, pieces as u32 + 1)
    }

    /// The first that no DMA engine has begun with.
    #[inline]
    pub(super) fn next_to_move(&self) -> Option<(u16, Instant)> {
        match *self.queue.get(self.begun)? {
            (slot, Leg::Waiting(from)) => Some((slot, from)),
            _ => None,
        }
    }

    /// A DMA engine fetches it until then.
    pub(super) fn begin(&mut self, until: Instant) {
        if let Some((_, leg)) = self.queue.get_mut(self.begun) {
            *leg = Leg::Moving(until);
            self.begun += 1;
        }
    }

    /// When the last that was begun with is there: an engine has one at a time.
    #[inline]
    pub(super) fn next_to_land(&self) -> Option<Instant> {
        match self.queue.get(self.begun.checked_sub(1)?)?.1 {
            Leg::Moving(until) => Some(until),
            _ => None,
        }
    }

    /// It is there: reads it.
    pub(super) fn land(&mut self, memory: &impl HostMemory) {
        let Some(nth) = self.begun.checked_sub(1) else { return };
        let Some((slot, _)) = self.queue.get(nth).copied() else { return };
        let is_whole = self.read(slot, memory).is_some();
        if let Some((_, leg)) = self.queue.get_mut(nth) {
            *leg = if is_whole { Leg::Ready } else { Leg::Void };
        }
    }

    fn read(&mut self, slot: u16, memory: &impl HostMemory) -> Option<()> {
        let order = self.slots.about(slot)?;
        let bytes = self.slots.bytes_mut(slot);
        let mut rest = bytes.get_mut(usize::from(order.head)..)?;
        for span in self.spans.get(usize::from(slot))?.iter() {
            let (part, behind) = rest.split_at_mut_checked(span.len as usize)?;
            if !memory.read(*span, part) {
                return None;
            }
            rest = behind;
        }
        if let Some(place) = order.checksum {
            place.fill(bytes, InternetSum::new())?;
        }
        let whole = bytes.len().checked_sub(order.sum_only as usize)?;
        self.slots.shorten(slot, whole);
        Some(())
    }

    /// The first frame, where it may leave.
    pub(super) fn departure(&self) -> Option<Departure<'_>> {
        let (slot, Leg::Ready) = *self.queue.front()? else { return None };
        let Order { path, to, ecn, route, .. } = self.slots.about(slot)?;
        Some(Departure { path, to, ecn, route, bytes: self.slots.bytes(slot) })
    }

    /// Is the first one that cannot be sent?
    pub(super) fn is_first_void(&self) -> bool {
        matches!(self.queue.front(), Some((_, Leg::Void)))
    }

    /// The first has left, or cannot: its memory is the host's again.
    pub(super) fn let_go(&mut self) {
        let Some((slot, _)) = self.queue.pop() else { return };
        self.begun = self.begun.saturating_sub(1);
        self.give_up(slot);
    }

    /// Forgets one that never came into the queue.
    pub(super) fn give_up(&mut self, slot: u16) {
        if let Some(ticket) = self.slots.about(slot).and_then(|order| order.ticket) {
            self.sent.push(ticket);
        }
        self.slots.free(slot);
    }

    /// All is forgotten; the host is told that none of it is needed any more.
    pub(super) fn clear(&mut self) {
        while !self.queue.is_empty() {
            self.let_go();
        }
        self.begun = 0;
    }
}

/// The way of a frame through a network whose switches look it up nowhere: each takes one
/// byte off the front.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Route {
    bytes: [u8; Self::MOST],
    len: u8,
}

impl Route {
    /// The most switches on a way.
    pub const MOST: usize = 8;
    /// Over a link, and through no switch.
    pub const DIRECT: Self = Self { bytes: [0; Self::MOST], len: 0 };

    /// A byte for each switch, the first one's first; nothing where these are too many.
    #[must_use]
    pub fn new(bytes: impl IntoIterator<Item = u8>) -> Option<Self> {
        let mut route = Self::DIRECT;
        for byte in bytes {
            *route.bytes.get_mut(usize::from(route.len))? = byte;
            route.len += 1;
        }
        Some(route)
    }

    /// The bytes that the frame begins with on its first link.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&[])
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;

    #[test]
    fn a_route_has_a_byte_for_each_switch_and_a_bound() {
        assert_eq!(Route::DIRECT.bytes(), []);
        assert_eq!(Route::new([7, 8, 9]).unwrap().bytes(), [7, 8, 9]);
        assert_eq!(Route::new(0..8).unwrap().bytes().len(), Route::MOST);
        assert_eq!(Route::new(0..9), None);
    }
}
