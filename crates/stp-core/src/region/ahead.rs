//! Which packets were accepted behind some that have not come.

use alloc::collections::VecDeque;

use landfall_placement::Serial32;

/// A set of serial numbers: a bit for each, from those that matter on.
#[derive(Debug, Default)]
pub(crate) struct Accepted {
    /// The serial number of the first bit: a multiple of 64.
    base: u32,
    words: VecDeque<u64>,
}

impl Accepted {
    /// Is none in it?
    pub(crate) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    pub(crate) fn has(&self, serial: u32) -> bool {
        self.bits_from(serial) & 1 == 1
    }

    /// Enters one. Those below `least` do not matter any more.
    pub(crate) fn insert(&mut self, least: u32, serial: u32) {
        self.forget_below(least);
        let place = serial.wrapping_sub(self.base) as usize;
        while self.words.len() <= place / 64 {
            self.words.push_back(0);
        }
        self.words[place / 64] |= 1 << (place % 64);
    }

    pub(crate) fn remove(&mut self, serial: u32) {
        let place = serial.wrapping_sub(self.base) as usize;
        if let Some(word) = self.words.get_mut(place / 64) {
            *word &= !(1 << (place % 64));
        }
        self.trim();
    }

    /// The first from `serial` on that is not in it.
    pub(crate) fn first_without(&self, mut serial: u32) -> u32 {
        loop {
            let run = self.bits_from(serial).trailing_ones();
            serial = serial.wrapping_add(run);
            if run < 64 {
                return serial;
            }
        }
    }

    /// Bit `n` says whether `serial + n` is in it.
    pub(crate) fn bits_from(&self, serial: u32) -> u64 {
        let place = serial.wrapping_sub(self.base) as i32;
        if place <= -64 {
            return 0;
        }
        if place < 0 {
            return self.words.front().map_or(0, |word| word << -place);
        }
        let (nth, shift) = (place as usize / 64, place as u32 % 64);
        let low = self.words.get(nth).map_or(0, |word| word >> shift);
        let high = self.words.get(nth + 1).copied().unwrap_or(0);
        low | high.checked_shl(64 - shift).unwrap_or(0)
    }

    pub(crate) fn forget_below(&mut self, least: u32) {
        while Serial32(self.base.wrapping_add(63)).precedes(Serial32(least))
            && self.words.pop_front().is_some()
        {
            self.base = self.base.wrapping_add(64);
        }
        let below = Serial32(least).offset_from(Serial32(self.base));
        if let (Some(first), 1..=63) = (self.words.front_mut(), below) {
            *first &= u64::MAX << below;
        }
        self.trim();
        if self.words.is_empty() {
            self.base = least & !63;
        }
    }

    fn trim(&mut self) {
        while self.words.back() == Some(&0) {
            self.words.pop_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use landfall_placement::Random;

    use super::*;

    /// Against a set, over the end of the numbers.
    #[test]
    fn it_is_the_set_of_what_was_entered() {
        let start = u32::MAX - 500;
        let (mut accepted, mut naive) = (Accepted::default(), BTreeSet::new());
        let mut random = Random::new([7; 32]);
        let mut least = 0;
        for _ in 0..5_000 {
            let at = least + random.next_u32() % 300;
            match random.next_u32() % 8 {
                0 => {
                    accepted.remove(start.wrapping_add(at));
                    naive.remove(&at);
                }
                1 => {
                    least = (accepted.first_without(start.wrapping_add(least))).wrapping_sub(start);
                    accepted.forget_below(start.wrapping_add(least));
                    naive.retain(|known| *known >= least);
                }
                _ => {
                    accepted.insert(start.wrapping_add(least), start.wrapping_add(at));
                    naive.insert(at);
                }
            }
            assert_eq!(accepted.has(start.wrapping_add(at)), naive.contains(&at));
            let bits = accepted.bits_from(start.wrapping_add(at));
            for n in 0..64 {
                assert_eq!(bits >> n & 1 == 1, naive.contains(&(at + n)), "{at} + {n}");
            }
            let first = (at..).find(|n| !naive.contains(n)).unwrap();
            assert_eq!(accepted.first_without(start.wrapping_add(at)), start.wrapping_add(first));
            if random.next_u32().is_multiple_of(40) {
                least += 1;
                naive.retain(|known| *known >= least);
            }
        }
    }
}
