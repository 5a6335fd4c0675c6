//! The window: which of the posted memory is offered, in what steps, and when the
//! other side has to hear of it.

use super::{Claim, Receiver};
use crate::offload::{self, Places};
use crate::queue::ReceiveQueue;
use crate::tcp::Mapping;

/// No longer than the segments of a usual sender, in IPv6 over links of the least MTU
/// and with timestamps: what is shorter than that does not hold one of them.
const USUAL_SEGMENT: u16 = 1_280 - 40 - 32;

impl Receiver {
    /// The window of our own opening, which is not shifted (RFC 7323, 2.2).
    pub(crate) fn first_window(queue: &ReceiveQueue) -> u16 {
        u16::try_from(queue.bytes()).unwrap_or(u16::MAX)
    }

    /// Where the posted memory ends, as far as it is offered.
    ///
    /// A message that ends early gives back the rest of its request. Of those
    /// behind the first only as much is offered as messages usually have.
    #[inline]
    fn offer(&self, queue: &ReceiveQueue) -> u64 {
        let all = queue.bytes();
        let offered = match queue.first_len() {
            Some(first) if self.has_messages() => {
                let first = u64::from(first).min(all);
                let usual = u64::from(self.usual_message) * (queue.prospects() - 1);
                first + usual.min(all - first)
            }
            _ => all,
        };
        self.layout.front() + offered
    }

    /// What the edge has to move by to be worth telling (RFC 9293, 3.8.6.2.2).
    #[inline]
    fn step(&self, offer: u64, queue: &ReceiveQueue) -> u64 {
        // A message that comes whole waits until all of it fits, and is never
        // cut to fill a small window: whatever there is has to be told. So it has
        // where less is open than a segment, for a sender may wait for room for
        // all of the next one (3.8.6.2.1). That rule is made for a buffer that is
        // read and used again: here what is posted may be all that ever is.
        let open = self.edge.saturating_sub(self.next);
        if matches!(self.mapping, Mapping::Segment) || open < u64::from(self.segment) {
            return 1;
        }
        // Of messages less is offered than there is: a step that is longer than
        // all that can be offered would never be taken.
        let most = queue.bytes().min(offer.saturating_sub(self.next));
        u64::from(self.segment).min(most / 2).max(1)
    }

    /// The window field of a header, and with it a promise.
    #[inline]
    pub(crate) fn window(&mut self, queue: &ReceiveQueue) -> u16 {
        if self.is_finished() {
            return 0;
        }
        let offer = self.offer(queue);
        if offer >= self.edge + self.step(offer, queue) {
            self.edge = offer;
        }
        // Down: rounded up, each acknowledgement would offer a little more that
        // nobody posted. That the edge which the other side sees moves left by
        // less than one unit is foreseen (RFC 7323, 2.4 and appendix F). A unit
        // is offered where there is less, for that has to come, too.
        let unit = 1u64 << self.scale;
        let open = self.edge.saturating_sub(self.next);
        // A message that has to come whole must fit: there rounding down could
        // keep it away for ever. And a kernel keeps the last bytes of a stream back
        // until all of them fit; where less is open than a segment they may be meant.
        let is_tail = open.next_multiple_of(unit) <= u64::from(self.segment.min(USUAL_SEGMENT));
        let units = match self.mapping {
            Mapping::Segment => open.div_ceil(unit),
            Mapping::Stream if is_tail => open.div_ceil(unit),
            // Its sender knows that the unit may be missing.
            Mapping::Message | Mapping::Stream => (open / unit).max(u64::from(open > 0)),
        };
        let field = units.min(u64::from(u16::MAX));
        let told = self.next + field * unit;
        if field == u64::from(u16::MAX) {
            self.edge = told;
        }
        self.told_edge = self.told_edge.max(told);
        // Less than a unit, of at most 2^14 bytes.
        self.said_less = u16::try_from(self.told_edge - told).unwrap_or(u16::MAX);
        field as u16
    }

    /// What was ever offered is taken, as far as there is memory for it.
    #[inline]
    pub(super) fn honoured(&self) -> u64 {
        self.edge.max(self.told_edge)
    }

    /// Is less open than the other side may need for its next segment, though more
    /// could be offered? Then it hears of that with no delay.
    #[inline]
    pub(super) fn is_kept_waiting(&self, queue: &ReceiveQueue) -> bool {
        let said = self.told_edge.saturating_sub(u64::from(self.said_less));
        let open = said.saturating_sub(self.next);
        open < u64::from(self.segment) && self.offer(queue) > said.max(self.next)
    }

    /// Is less open than another segment may need, or was something dropped for want of
    /// memory?
    pub(crate) fn is_short(&self) -> bool {
        let open = self.edge.saturating_sub(self.next);
        !self.is_finished() && (self.lacked_memory || open < u64::from(self.segment))
    }

    /// Has so much memory been posted that the other side should hear of it?
    #[inline]
    pub(crate) fn is_update_due(&self, queue: &ReceiveQueue) -> bool {
        if self.is_finished() {
            return false;
        }
        let most = u64::from(u16::MAX) << self.scale;
        let offer = self.offer(queue).min(self.next + most);
        let open = self.edge.saturating_sub(self.next);
        let room = offer.saturating_sub(self.next);
        // The next message may be as long as its request, and may have to fit; so may
        // the next segment.
        let next = queue.first_len().map_or(0, u64::from);
        let is_short = match self.mapping {
            Mapping::Segment => open < next,
            Mapping::Message | Mapping::Stream => {
                let segment = u64::from(self.segment);
                open < segment && segment <= room
            }
        };
        offer >= self.edge + self.step(offer, queue) && (is_short || room >= 2 * open)
    }
}

// What comes next, for the offload seam; and what it took, booked as if the
// receiver had placed it itself.

impl Receiver {
    /// Where the next byte belongs that is neither there nor claimed, where all
    /// in front of it is, and nothing behind it.
    #[inline]
    fn front(&self) -> Option<u64> {
        if self.fin != super::NEVER || !self.placed().is_empty() {
            return None;
        }
        let mut claims = self.claims.iter();
        match (claims.next(), claims.next()) {
            (None, _) => Some(self.next),
            (Some((start, end)), None) if start == self.next => Some(end),
            _ => None,
        }
    }

    /// Has something come, after which more is likely?
    pub(crate) const fn has_begun(&self) -> bool {
        self.next > 1
    }

    /// Is this still the number that comes next, and does it belong where it did
    /// when the course was this?
    #[inline]
    pub(crate) fn is_on_course(&self, expected: u32, course: u16) -> bool {
        course == self.course && self.front().map(|at| self.number_of(at)) == Some(expected)
    }

    /// The number that comes next, the course, and the memory that its bytes and
    /// those behind them belong into.
    pub(crate) fn predict(&self, queue: &ReceiveQueue) -> Option<(u32, u16, Places)> {
        let at = self.front()?;
        let places = self.layout.predict(at, queue)?;
        Some((self.number_of(at), self.course, places))
    }

    /// What may come, as a number.
    #[inline]
    pub(crate) fn edge_number(&self) -> u32 {
        self.number_of(self.honoured())
    }

    /// Claims the place of what came as predicted, from the front on. Nothing, where something
    /// came meanwhile after which that is not what comes next.
    #[inline]
    pub(crate) fn claim_predicted(
        &mut self,
        hit: &offload::Segment,
        queue: &ReceiveQueue,
    ) -> Option<Claim> {
        let start = self.front().filter(|at| self.number_of(*at) == hit.seq)?;
        if hit.course != self.course {
            return None;
        }
        let (end, is_pushed) = (start + u64::from(hit.len), hit.is_pushed);
        self.claims.insert(start, end);
        let noted_end = is_pushed && self.has_messages();
        if noted_end {
            self.layout.add_end(end);
        }
        if hit.is_spent {
            self.layout.seek(end, queue);
        }
        Some(Claim { start, end, is_whole: true, noted_end, layout: self.layout_version })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{Gather, Piece};
    use crate::tcp::Mapping;
    use crate::tcp::receiver::Payload;
    use landfall_placement::{Duration, Instant, RegionId, Spans};

    /// The first copy ended no message, its repetition does: what follows belongs
    /// into the next request, although nothing else has moved.
    #[test]
    fn an_end_that_a_repetition_brings_changes_the_course() {
        let mut queue = ReceiveQueue::new(4);
        for n in 0..2 {
            let span = RegionId::new(1, 0).span(n * 1_000, 100);
            queue.push(n, Gather::new(&[Piece { key: 0, span }]).unwrap());
        }
        let mut receiver = Receiver::new(7, Mapping::Message, 500, 0);
        let mut come = |receiver: &mut Receiver, is_pushed| {
            let mut into = Spans::new();
            let (_, claim) = receiver.claim(1, 10, is_pushed, &queue, &mut into);
            let (now, delay) = (Instant::from_millis(1), Duration::from_millis(20));
            let payload = Payload { at: 1, len: 10, longest: 10, last: 10 };
            receiver.accept(now, payload, is_pushed, claim, &mut queue, delay);
            receiver.predict(&queue).unwrap()
        };
        let (expected, course, places) = come(&mut receiver, false);
        assert_eq!(places.iter().next().unwrap().0.offset, 10);
        assert!(receiver.is_on_course(expected, course));
        let (again, _, places) = come(&mut receiver, true);
        assert_eq!((again, places.iter().next().unwrap().0.offset), (expected, 1_000));
        assert!(!receiver.is_on_course(expected, course));
    }
}
