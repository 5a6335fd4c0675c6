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
