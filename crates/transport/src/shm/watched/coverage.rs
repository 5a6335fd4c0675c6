//! [`Coverage`]: how many armed ranges cover each word.
//!
//! A step function in few pieces: what neighbours agree on is one entry. So a bit of
//! the filter is cleared only when the last range over its word is disarmed.

use std::collections::BTreeMap;
use std::ops::Range;

/// How many ranges cover each word.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    /// From this word on this many ranges cover each, up to the next entry. Before the
    /// first and behind the last, which is zero, there are none.
    steps: BTreeMap<u64, u32>,
}

impl Coverage {
    /// One more range covers these words; tells which are covered for the first time.
    pub(super) fn add(&mut self, words: Range<u64>, mut first: impl FnMut(Range<u64>)) {
        self.change(
            words,
            |count| count.saturating_add(1),
            |before, part| {
                if before == 0 {
                    first(part);
                }
            },
        );
    }

    /// One range less covers these words; tells which are covered no more.
    pub(super) fn remove(&mut self, words: Range<u64>, mut last: impl FnMut(Range<u64>)) {
        self.change(
            words,
            |count| count.saturating_sub(1),
            |before, part| {
                if before == 1 {
                    last(part);
                }
            },
        );
    }

    fn change(
        &mut self,
        words: Range<u64>,
        to: impl Fn(u32) -> u32,
        mut told: impl FnMut(u32, Range<u64>),
    ) {
        if words.is_empty() {
            return;
        }
        self.split(words.start);
        self.split(words.end);
        let mut from: Option<(u64, u32)> = None;
        for (&at, count) in self.steps.range_mut(words.clone()) {
            if let Some((start, before)) = from.replace((at, *count)) {
                told(before, start..at);
            }
            *count = to(*count);
        }
        if let Some((start, before)) = from {
            told(before, start..words.end);
        }
        self.join(words.start);
        self.join(words.end);
    }

    /// How many ranges cover a word.
    fn at(&self, word: u64) -> u32 {
        self.steps.range(..=word).next_back().map_or(0, |(_, count)| *count)
    }

    /// Lets an entry begin at this word.
    fn split(&mut self, word: u64) {
        let count = self.at(word);
        self.steps.entry(word).or_insert(count);
    }

    /// Takes the entry at this word away if it says what the one before says. Within
    /// a range every step moved alike, so only its ends can have become equal.
    fn join(&mut self, word: u64) {
        let before = self.steps.range(..word).next_back().map_or(0, |(_, count)| *count);
        if self.steps.get(&word) == Some(&before) {
            self.steps.remove(&word);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a count for each word.
        #[test]
        fn ranges_are_counted_word_by_word(
            changes in prop::collection::vec((0..60u64, 0..20u64, any::<bool>()), 1..60),
        ) {
            let mut coverage = Coverage::default();
            let mut naive = [0u32; 80];
            let mut armed = Vec::new();
            for (start, len, remove) in changes {
                let mut told = Vec::new();
                let range = if remove && !armed.is_empty() {
                    armed.swap_remove(start as usize % armed.len())
                } else {
                    start..start + len
                };
                let mut expected = Vec::new();
                if remove && naive[range.start as usize..range.end as usize].iter().all(|n| *n > 0) {
                    coverage.remove(range.clone(), |part| told.extend(part));
                    for word in range.clone() {
                        naive[word as usize] -= 1;
                        if naive[word as usize] == 0 { expected.push(word); }
                    }
                } else {
                    coverage.add(range.clone(), |part| told.extend(part));
                    armed.push(range.clone());
                    for word in range.clone() {
                        naive[word as usize] += 1;
                        if naive[word as usize] == 1 { expected.push(word); }
                    }
                }
                prop_assert_eq!(told, expected);
                for (word, count) in naive.iter().enumerate() {
                    prop_assert_eq!(coverage.at(word as u64), *count);
                }
            }
        }
    }

    #[test]
    fn it_is_empty_when_everything_was_disarmed() {
        let mut coverage = Coverage::default();
        coverage.add(3..9, |_| ());
        coverage.add(5..20, |_| ());
        coverage.remove(3..9, |_| ());
        coverage.remove(5..20, |_| ());
        assert!(coverage.steps.is_empty());
    }
}
