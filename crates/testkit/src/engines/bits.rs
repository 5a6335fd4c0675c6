//! A window of bits over numbers that only grow.

use alloc::boxed::Box;
use alloc::vec;

/// One bit for each number of a sliding window; the storage is made once.
///
/// The bit of number `n` is found at `n` modulo the capacity. Who uses it sees
/// to it that only numbers of one window are in use at a time.
#[derive(Clone, Debug)]
pub(crate) struct BitRing {
    words: Box<[u64]>,
    mask: u32,
}

impl BitRing {
    /// Room for at least `numbers` numbers; the capacity is a power of two.
    pub(crate) fn new(numbers: u32) -> Self {
        let capacity = numbers.clamp(64, 1 << 30).next_power_of_two();
        Self { words: vec![0; (capacity / 64) as usize].into_boxed_slice(), mask: capacity - 1 }
    }

    fn locate(&self, number: u32) -> (usize, u32) {
        let at = number & self.mask;
        ((at / 64) as usize, at % 64)
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> bool {
        let (word, bit) = self.locate(number);
        self.words[word] >> bit & 1 == 1
    }

    #[inline]
    pub(crate) fn set(&mut self, number: u32) {
        let (word, bit) = self.locate(number);
        self.words[word] |= 1 << bit;
    }

    #[inline]
    pub(crate) fn clear(&mut self, number: u32) {
        let (word, bit) = self.locate(number);
        self.words[word] &= !(1 << bit);
    }

    /// Clears every bit.
    pub(crate) fn reset(&mut self) {
        self.words.fill(0);
    }

    /// The first number from `from` on, before `to`, whose bit is `wanted`.
    pub(crate) fn next(&self, wanted: bool, from: u32, to: u32) -> Option<u32> {
        let mut at = from;
        while at < to {
            let (word, bit) = self.locate(at);
            let bits = if wanted { self.words[word] } else { !self.words[word] } >> bit;
            if bits != 0 {
                let found = at.saturating_add(bits.trailing_zeros());
                return (found < to).then_some(found);
            }
            at = at.saturating_add(64 - bit);
        }
        None
    }

    /// Clears the bits from `from` on, before `to`.
    pub(crate) fn clear_range(&mut self, from: u32, to: u32) {
        let mut at = from;
        while at < to {
            let (word, bit) = self.locate(at);
            let count = (64 - bit).min(to - at);
            let ones = if count == 64 { u64::MAX } else { (1 << count) - 1 };
            self.words[word] &= !(ones << bit);
            at = at.saturating_add(count);
        }
    }

    /// The bits of 64 numbers from `from` on; numbers from `to` on count as zero.
    pub(crate) fn window(&self, from: u32, to: u32) -> u64 {
        let mut bits = 0;
        let count = to.saturating_sub(from).min(64);
        for i in 0..count {
            bits |= u64::from(self.get(from + i)) << i;
        }
        bits
    }
}

/// Which of the ids that a peer counts up were met: all before `base`, and
/// those of the 64 from there on whose bit is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IdWindow {
    pub(crate) base: u32,
    pub(crate) bits: u64,
}

impl IdWindow {
    /// Ids that count up from zero; none met.
    pub(crate) const fn new() -> Self {
        Self { base: 0, bits: 0 }
    }

    /// Was it met? Ids wrap, so "before" is the shorter way round.
    pub(crate) const fn contains(&self, id: u32) -> bool {
        let ahead = id.wrapping_sub(self.base);
        (ahead as i32) < 0 || (ahead < 64 && self.bits >> ahead & 1 == 1)
    }

    /// May it be met next, or is it too far ahead?
    pub(crate) const fn has_room_for(&self, id: u32) -> bool {
        id.wrapping_sub(self.base) < 64
    }

    /// It was met now. Ids without room are left out.
    pub(crate) fn insert(&mut self, id: u32) {
        if self.has_room_for(id) {
            self.bits |= 1 << id.wrapping_sub(self.base);
            let passed = self.bits.trailing_ones();
            self.base = self.base.wrapping_add(passed);
            self.bits = self.bits.checked_shr(passed).unwrap_or(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn next_finds_what_a_walk_finds(
            start in 0..1000u32,
            set in prop::collection::vec(0..256u32, 0..40),
            from in 0..256u32,
            len in 0..256u32,
        ) {
            let mut ring = BitRing::new(256);
            for n in &set {
                ring.set(start + n);
            }
            let to = start + (from + len).min(256);
            let from = start + from;
            for wanted in [false, true] {
                let walked = (from..to).find(|n| ring.get(*n) == wanted);
                prop_assert_eq!(ring.next(wanted, from, to), walked);
            }
            let window = (0..64).fold(0, |w, i| {
                w | u64::from(from + i < to && ring.get(from + i)) << i
            });
            prop_assert_eq!(ring.window(from, to), window);
            ring.clear_range(from, to);
            for n in 0..256 {
                let n = start + n;
                let kept = set.contains(&(n - start)) && !(from..to).contains(&n);
                prop_assert_eq!(ring.get(n), kept);
            }
        }

        #[test]
        fn ids_are_met_once(first: u32, ids in prop::collection::vec(0..100u32, 0..200)) {
            let mut window = IdWindow { base: first, bits: 0 };
            let mut met = std::collections::BTreeSet::new();
            for id in ids {
                let wire = first.wrapping_add(id);
                prop_assert_eq!(window.contains(wire), met.contains(&id));
                if window.has_room_for(wire) {
                    window.insert(wire);
                    met.insert(id);
                }
            }
        }
    }
}
