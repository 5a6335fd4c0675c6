//! What comes next, for the offload seam; and what it took, booked as if the
//! receiver had placed it itself.

use super::{Claim, Receiver};
use crate::offload::Places;
use crate::queue::ReceiveQueue;

impl Receiver {
    /// Where the next byte belongs that is neither there nor claimed, where all
    /// in front of it is, and nothing behind it.
    #[inline]
    fn front(&self) -> Option<u64> {
        if self.fin.is_some() || !self.placed.is_empty() {
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

    /// Claims the place of what came as predicted: `len` bytes from the front on.
    #[inline]
    pub(crate) fn claim_predicted(&mut self, len: u32, is_pushed: bool) -> Claim {
        let start = self.claims.end().max(self.next);
        let end = start + u64::from(len);
        self.claims.insert(start, end);
        let noted_end = is_pushed && self.has_messages();
        if noted_end {
            self.layout.add_end(end);
        }
        Claim { start, end, is_whole: true, noted_end, layout: self.layout_version }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{Gather, Piece};
    use crate::tcp::Mapping;
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
            receiver.accept(now, (1, 10), is_pushed, claim, &mut queue, delay);
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
