//! The filter: one bit for each word that is watched, and a summary of it.
//!
//! A writer looks at it after each store, so it is made for the answer "no": a word
//! costs one load, a long write one load for each 32 KiB and its two ends. Of the
//! memory a filter takes 1/64, and its summary 1/64 of that. There are two of them, for writes
//! and for reads, one after the other in memory that only the owner can write.
//!
//! Why nothing is missed: see [`watched`](super).

use std::ops::Range;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::report::Touch;
use crate::shm::Word;

/// Bits of a word of the filter.
const BITS: u64 = 64;

/// How many words a filter takes for memory of this many: bits, then summary.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) bits: u64,
    pub(super) summary: u64,
}

impl Shape {
    /// For memory of `len` bytes. Each part fills whole lines of the cache.
    pub(super) const fn of(len: u64) -> Self {
        let bits = len.div_ceil(8 * BITS).next_multiple_of(8);
        Self { bits, summary: bits.div_ceil(BITS).next_multiple_of(8) }
    }

    /// Words of one filter.
    pub(super) const fn words(self) -> u64 {
        self.bits + self.summary
    }

    /// Where the filter for writes lies, or that for reads behind it.
    pub(super) const fn parts(self, touch: Touch) -> Parts {
        let start = match touch {
            Touch::Write => 0,
            Touch::Read => self.words(),
        };
        let middle = start + self.bits;
        Parts { bits: start..middle, summary: middle..start + self.words() }
    }
}

/// The words of a filter within the memory of both.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) bits: Range<u64>,
    pub(super) summary: Range<u64>,
}

/// The words from the first to the last that a write of `len` bytes touches. `len` is
/// not zero.
#[inline]
pub(super) const fn words_of(offset: u64, len: u64) -> Range<u64> {
    offset / 8..offset.saturating_add(len).div_ceil(8)
}

/// Which bits of a word of 64 are within the range, which is not empty.
#[inline]
const fn mask(range: &Range<u64>, word: u64) -> u64 {
    let low = if range.start > word * BITS { u64::MAX << (range.start % BITS) } else { u64::MAX };
    let end = (word + 1) * BITS;
    let high = if range.end < end { u64::MAX >> (end - range.end) } else { u64::MAX };
    low & high
}

/// One filter, as words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filter<'a, W> {
    bits: &'a [W],
    summary: &'a [W],
}

impl<'a, W: Word> Filter<'a, W> {
    pub(crate) const fn new(bits: &'a [W], summary: &'a [W]) -> Self {
        Self { bits, summary }
    }

    /// Is one of these words watched? The writer's full fence is before this. Words
    /// beyond the filter are not watched.
    #[inline]
    pub(crate) fn hears(&self, words: &Range<u64>) -> bool {
        let first = words.start / BITS;
        let last = (words.end - 1) / BITS;
        if first == last {
            return self.bits_of(words, first);
        }
        self.hears_long(words, first, last)
    }

    /// A write that ends in another word of the filter than it began in.
    fn hears_long(&self, words: &Range<u64>, first: u64, last: u64) -> bool {
        if self.bits_of(words, first) || self.bits_of(words, last) {
            return true;
        }
        let middle = first + 1..last;
        if middle.is_empty() {
            return false;
        }
        for at in middle.start / BITS..=(middle.end - 1) / BITS {
            let Some(summary) = self.summary.get(at as usize) else { return false };
            if summary.load(Relaxed) & mask(&middle, at) == 0 {
                continue;
            }
            let parts = at * BITS..(at + 1) * BITS;
            if parts.filter(|part| middle.contains(part)).any(|part| {
                self.bits.get(part as usize).is_some_and(|bits| bits.load(Relaxed) != 0)
            }) {
                return true;
            }
        }
        false
    }

    #[inline]
    fn bits_of(&self, words: &Range<u64>, at: u64) -> bool {
        self.bits.get(at as usize).is_some_and(|bits| bits.load(Relaxed) & mask(words, at) != 0)
    }

    /// From now on these words are watched. The fence of [`settle`](Self::settle)
    /// follows.
    pub(crate) fn set(&self, words: &Range<u64>) {
        for at in words.start / BITS..words.end.div_ceil(BITS) {
            let Some(bits) = self.bits.get(at as usize) else { return };
            bits.fetch_or(mask(words, at), Relaxed);
            if let Some(summary) = self.summary.get((at / BITS) as usize) {
                summary.fetch_or(1 << (at % BITS), Relaxed);
            }
        }
    }

    /// These words are watched no more. Only one thread at a time sets and clears.
    pub(crate) fn clear(&self, words: &Range<u64>) {
        for at in words.start / BITS..words.end.div_ceil(BITS) {
            let Some(bits) = self.bits.get(at as usize) else { return };
            let mask = mask(words, at);
            if bits.fetch_and(!mask, Relaxed) & !mask != 0 {
                continue;
            }
            if let Some(summary) = self.summary.get((at / BITS) as usize) {
                summary.fetch_and(!(1 << (at % BITS)), Relaxed);
            }
        }
    }

    /// The fence of either side: between the store and the look at the filter, or
    /// between the bit and the look at the memory.
    #[inline]
    pub(crate) fn settle() {
        W::fence(SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use proptest::prelude::*;

    use super::*;

    const WORDS: u64 = 64 * 64 * 3;

    fn zeroed(count: u64) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    fn range() -> impl Strategy<Value = Range<u64>> {
        let len = prop_oneof![1..4u64, 1..200u64, 1..WORDS / 2];
        (0..WORDS - 1, len).prop_map(|(start, len)| start..(start + len).min(WORDS))
    }

    proptest! {
        /// Setting, clearing and looking agree with a list of words.
        #[test]
        fn it_hears_just_what_was_set(
            changes in prop::collection::vec((range(), any::<bool>(), range()), 1..20),
        ) {
            let shape = Shape::of(WORDS * 8);
            let (bits, summary) = (zeroed(shape.bits), zeroed(shape.summary));
            let filter = Filter::new(&bits, &summary);
            let mut naive = vec![false; WORDS as usize];
            for (changed, set, asked) in changes {
                if set { filter.set(&changed) } else { filter.clear(&changed) }
                naive[changed.start as usize..changed.end as usize].fill(set);
                let hears = naive[asked.start as usize..asked.end as usize].contains(&true);
                prop_assert_eq!(filter.hears(&asked), hears);
            }
        }
    }

    #[test]
    fn bytes_touch_the_words_they_lie_in() {
        assert_eq!(words_of(0, 1), 0..1);
        assert_eq!(words_of(7, 2), 0..2);
        assert_eq!(words_of(8, 8), 1..2);
        assert_eq!(words_of(15, 1), 1..2);
    }

    #[test]
    fn beyond_the_filter_nothing_is_heard_and_nothing_breaks() {
        let (bits, summary) = (zeroed(8), zeroed(8));
        let filter = Filter::new(&bits, &summary);
        filter.set(&(0..1 << 40));
        assert!(filter.hears(&(0..1)) && !filter.hears(&(1 << 30..1 << 31)));
    }
}
