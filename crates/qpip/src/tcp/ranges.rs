//! [`Ranges`]: a few disjoint ranges of positions, in order.

use alloc::vec::Vec;

/// Disjoint ranges that do not touch, in order. There are few of them: one for
/// each hole in what came.
#[derive(Debug, Default)]
pub(crate) struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().copied()
    }

    /// The first position behind all of them; zero if there are none.
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        self.0.last().map_or(0, |range| range.1)
    }

    /// Where the range ends that this position is in.
    #[inline]
    pub(crate) fn end_at(&self, position: u64) -> Option<u64> {
        self.around(position).map(|range| range.1)
    }

    /// The range that this position is in.
    #[inline]
    pub(crate) fn around(&self, position: u64) -> Option<(u64, u64)> {
        let behind = self.0.partition_point(|range| range.0 <= position);
        let range = *self.0.get(behind.checked_sub(1)?)?;
        (position < range.1).then_some(range)
    }

    /// Where the first range behind this position starts.
    #[inline]
    pub(crate) fn next_start(&self, position: u64) -> Option<u64> {
        let behind = self.0.partition_point(|range| range.0 <= position);
        self.0.get(behind).map(|range| range.0)
    }

    /// Adds a range, joined with those that it touches.
    pub(crate) fn insert(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        // In order, the usual case.
        if let Some(last) = self.0.last_mut()
            && last.1 == start
        {
            last.1 = end;
            return;
        }
        let from = self.0.partition_point(|range| range.1 < start);
        let to = self.0.partition_point(|range| range.0 <= end);
        if from == to {
            self.0.insert(from, (start, end));
            return;
        }
        let joined = (start.min(self.0[from].0), end.max(self.0[to - 1].1));
        self.0[from] = joined;
        self.0.drain(from + 1..to);
    }

    /// Takes a range out.
    pub(crate) fn remove(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let from = self.0.partition_point(|range| range.1 <= start);
        // All ranges lie before it.
        let Some(first) = self.0.get_mut(from) else { return };
        // One range that starts here, or is just this one: the usual case.
        if first.0 == start && first.1 >= end {
            first.0 = end;
            if first.0 == first.1 {
                self.0.remove(from);
            }
            return;
        }
        let to = self.0.partition_point(|range| range.0 < end);
        if from >= to {
            return;
        }
        let (left, right) = ((self.0[from].0, start), (end, self.0[to - 1].1));
        let rest = [left, right].into_iter().filter(|range| range.0 < range.1);
        self.0.splice(from..to, rest);
    }

    /// Takes out the first range if it starts here, and gives its end.
    #[inline]
    pub(crate) fn take_first(&mut self, start: u64) -> Option<u64> {
        let first = *self.0.first()?;
        (first.0 <= start).then(|| {
            self.0.remove(0);
            first.1
        })
    }

    /// Forgets everything from this position on. Was there something?
    pub(crate) fn truncate(&mut self, position: u64) -> bool {
        let had = self.end() > position;
        if had {
            self.remove(position, u64::MAX);
        }
        had
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn they_hold_what_a_set_holds(steps in prop::collection::vec((0u64..60, 0u64..20, any::<bool>()), 0..60)) {
            let mut ranges = Ranges::new();
            let mut model = BTreeSet::new();
            for (start, len, adds) in steps {
                let end = start + len;
                if adds {
                    ranges.insert(start, end);
                    model.extend(start..end);
                } else {
                    ranges.remove(start, end);
                    model.retain(|n| !(start..end).contains(n));
                }
                let held: BTreeSet<u64> = ranges.iter().flat_map(|(a, b)| a..b).collect();
                prop_assert_eq!(&held, &model);
                let all: Vec<_> = ranges.iter().collect();
                prop_assert!(all.iter().all(|(a, b)| a < b));
                prop_assert!(all.windows(2).all(|pair| pair[0].1 < pair[1].0));
                for n in 0..90 {
                    prop_assert_eq!(ranges.around(n).is_some(), model.contains(&n));
                }
            }
        }
    }
}
