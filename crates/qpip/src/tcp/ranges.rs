//! [`Ranges`]: a few disjoint ranges of positions, in order.

use alloc::vec::Vec;

/// Disjoint ranges that do not touch, in order. There are few of them: one for each hole in
/// what came. Up to one takes no memory elsewhere, and that is the usual case.
#[derive(Debug, Default)]
pub(crate) enum Ranges {
    #[default]
    None,
    One([(u64, u64); 1]),
    Several(Vec<(u64, u64)>),
}

impl Ranges {
    #[inline]
    fn all(&self) -> &[(u64, u64)] {
        match self {
            Self::None => &[],
            Self::One(one) => one,
            Self::Several(several) => several,
        }
    }

    #[inline]
    fn all_mut(&mut self) -> &mut [(u64, u64)] {
        match self {
            Self::None => &mut [],
            Self::One(one) => one,
            Self::Several(several) => several,
        }
    }

    /// Changes which ranges there are.
    fn change(&mut self, change: impl FnOnce(&mut Vec<(u64, u64)>)) {
        let mut all = match core::mem::take(self) {
            Self::None => Vec::new(),
            Self::One(one) => Vec::from(one),
            Self::Several(several) => several,
        };
        change(&mut all);
        *self = match all[..] {
            [] => Self::None,
            [one] => Self::One([one]),
            _ => Self::Several(all),
        };
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        matches!(self, Self::None)
    }

    pub(crate) fn len(&self) -> usize {
        self.all().len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.all().iter().copied()
    }

    /// The first position behind all of them; zero if there are none.
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        self.all().last().map_or(0, |range| range.1)
    }

    /// Where the range ends that this position is in.
    #[inline]
    pub(crate) fn end_at(&self, position: u64) -> Option<u64> {
        self.around(position).map(|range| range.1)
    }

    /// The range that this position is in.
    #[inline]
    pub(crate) fn around(&self, position: u64) -> Option<(u64, u64)> {
        let all = self.all();
        let behind = all.partition_point(|range| range.0 <= position);
        let range = *all.get(behind.checked_sub(1)?)?;
        (position < range.1).then_some(range)
    }

    /// Where the first range behind this position starts.
    #[inline]
    pub(crate) fn next_start(&self, position: u64) -> Option<u64> {
        let all = self.all();
        let behind = all.partition_point(|range| range.0 <= position);
        all.get(behind).map(|range| range.0)
    }

    /// Adds a range, joined with those that it touches.
    #[inline]
    pub(crate) fn insert(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        // In order, the usual case.
        match self.all_mut().last_mut() {
            None => *self = Self::One([(start, end)]),
            Some(last) if last.1 == start => last.1 = end,
            Some(_) => self.insert_anywhere(start, end),
        }
    }

    #[cold]
    fn insert_anywhere(&mut self, start: u64, end: u64) {
        self.change(|all| {
            let from = all.partition_point(|range| range.1 < start);
            let to = all.partition_point(|range| range.0 <= end);
            if from == to {
                all.insert(from, (start, end));
                return;
            }
            let joined = (start.min(all[from].0), end.max(all[to - 1].1));
            all[from] = joined;
            all.drain(from + 1..to);
        });
    }

    /// Takes a range out.
    #[inline]
    pub(crate) fn remove(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        // All of the only one, or its first part: the usual case.
        match self {
            Self::One([(first, last)]) if *first == start && *last > end => *first = end,
            Self::One([(first, last)]) if *first == start && *last == end => *self = Self::None,
            Self::None => {}
            Self::One(_) | Self::Several(_) => self.remove_anywhere(start, end),
        }
    }

    #[cold]
    fn remove_anywhere(&mut self, start: u64, end: u64) {
        self.change(|all| {
            let from = all.partition_point(|range| range.1 <= start);
            let to = all.partition_point(|range| range.0 < end);
            if from >= to {
                return;
            }
            let (left, right) = ((all[from].0, start), (end, all[to - 1].1));
            let rest = [left, right].into_iter().filter(|range| range.0 < range.1);
            all.splice(from..to, rest);
        });
    }

    /// Takes out the first range if it starts here, and gives its end.
    #[inline]
    pub(crate) fn take_first(&mut self, start: u64) -> Option<u64> {
        let first = *self.all().first()?;
        (first.0 <= start).then(|| {
            self.remove(first.0, first.1);
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
            let mut ranges = Ranges::default();
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
