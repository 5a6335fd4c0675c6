//! [`Loans`]: which parts of a region somebody reads as a slice just now.

use core::ops::Range;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire};

/// The parts of a region, all of one length, each on loan or not. What is on
/// loan nobody may write: a slice of it exists.
///
/// A part goes on loan only at a moment when nobody has the region pinned, and
/// each use after that asks here first; so no write can be under way.
#[derive(Debug)]
pub(crate) struct Loans {
    part: usize,
    /// A bit for each part.
    bits: Box<[AtomicU64]>,
}

impl Loans {
    /// So many parts of this length, none on loan.
    pub(crate) fn new(parts: usize, part: usize) -> Self {
        let bits = (0..parts.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { part: part.max(1), bits }
    }

    /// Puts a part on loan. False if it is already, or is no part.
    pub(crate) fn lend(&self, part: usize) -> bool {
        let (word, bit) = (self.bits.get(part / 64), 1 << (part % 64));
        word.is_some_and(|word| word.fetch_or(bit, AcqRel) & bit == 0)
    }

    /// The slice is gone: the part may be written again.
    pub(crate) fn end(&self, part: usize) {
        if let Some(word) = self.bits.get(part / 64) {
            // All reads through the slice come before the next write.
            word.fetch_and(!(1 << (part % 64)), AcqRel);
        }
    }

    /// Is the part on loan?
    pub(crate) fn is_lent(&self, part: usize) -> bool {
        self.bits.get(part / 64).is_some_and(|word| word.load(Acquire) >> (part % 64) & 1 == 1)
    }

    /// Is any of these bytes on loan?
    pub(super) fn touch(&self, bytes: &Range<usize>) -> bool {
        let parts = bytes.start / self.part..bytes.end.div_ceil(self.part);
        !bytes.is_empty() && parts.into_iter().any(|part| self.is_lent(part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_lent_once_and_its_bytes_alone_are_touched() {
        let loans = Loans::new(100, 4096);
        assert!(loans.lend(70) && !loans.lend(70) && !loans.lend(200));
        let at = 70 * 4096;
        for (bytes, touched) in [
            (at..at + 1, true),
            (at - 1..at, false),
            (at - 1..at + 1, true),
            (at + 4095..at + 9000, true),
            (at + 4096..at + 9000, false),
            (at..at, false),
            (0..1 << 30, true),
        ] {
            assert_eq!(loans.touch(&bytes), touched, "{bytes:?}");
        }
        loans.end(70);
        loans.end(999);
        assert!(!loans.is_lent(70) && loans.lend(70));
    }
}
