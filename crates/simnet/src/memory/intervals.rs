//! A set of numbers, kept as ranges that neither touch nor overlap.

use alloc::collections::BTreeMap;
use core::ops::Range;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Intervals(BTreeMap<u64, u64>);

impl Intervals {
    /// Adds a range.
    pub(super) fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let Range { mut start, mut end } = range;
        // Everything that touches it becomes one with it. Ranges do not
        // overlap, so their ends are in the order of their starts.
        while let Some((&s, &e)) = self.0.range(..=end).next_back().filter(|(_, e)| **e >= start) {
            self.0.remove(&s);
            start = start.min(s);
            end = end.max(e);
        }
        self.0.insert(start, end);
    }

    /// Takes a range out.
    pub(super) fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some(Range { start, end }) = self.last_overlap(&range) {
            self.0.remove(&start);
            if start < range.start {
                self.0.insert(start, range.start);
            }
            if end > range.end {
                self.0.insert(range.end, end);
            }
        }
    }

    /// The part of `range` that is in the set; of several parts the last.
    pub(super) fn overlap(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let found = self.last_overlap(range)?;
        Some(found.start.max(range.start)..found.end.min(range.end))
    }

    fn last_overlap(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let (&start, &end) = self.0.range(..range.end).next_back()?;
        (end > range.start && !range.is_empty()).then_some(start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn equals_a_set_of_numbers(
            steps in prop::collection::vec((any::<bool>(), 0u64..60, 0u64..12), 0..60),
            asked in (0u64..60, 0u64..12),
        ) {
            let (mut intervals, mut model) = (Intervals::default(), [false; 80]);
            for (insert, start, len) in steps {
                let range = start..start + len;
                model[start as usize..(start + len) as usize].fill(insert);
                if insert { intervals.insert(range) } else { intervals.remove(range) }
            }
            let listed = intervals.0.iter().flat_map(|(&start, &end)| start..end);
            let expected = (0..80).filter(|n| model[*n as usize]);
            prop_assert!(listed.eq(expected));
            let asked = asked.0..asked.0 + asked.1;
            let hit = asked.clone().any(|n| model[n as usize]);
            let overlap = intervals.overlap(&asked);
            prop_assert_eq!(overlap.is_some(), hit);
            for n in overlap.into_iter().flatten() {
                prop_assert!(model[n as usize] && asked.contains(&n));
            }
        }
    }
}
