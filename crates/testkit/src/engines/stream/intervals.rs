//! A bounded, sorted list of intervals that do not touch.

use alloc::vec::Vec;

/// The bytes from `start` on, before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    pub(super) start: u64,
    pub(super) end: u64,
}

/// The storage is made once.
#[derive(Debug)]
pub(super) struct Intervals {
    list: Vec<Interval>,
    bound: usize,
}

impl Intervals {
    pub(super) fn new(bound: usize) -> Self {
        Self { list: Vec::with_capacity(bound), bound }
    }

    pub(super) fn bound(&self) -> usize {
        self.bound
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.list.clear();
    }

    pub(super) fn as_slice(&self) -> &[Interval] {
        &self.list
    }

    /// Adds bytes, joined to what they touch. False if that would be one
    /// interval too many.
    pub(super) fn insert(&mut self, start: u64, end: u64) -> bool {
        if start >= end {
            return true;
        }
        let first = self.list.partition_point(|have| have.end < start);
        let behind = self.list.partition_point(|have| have.start <= end);
        if first == behind {
            if self.list.len() >= self.bound {
                return false;
            }
            self.list.insert(first, Interval { start, end });
            return true;
        }
        let joined = Interval {
            start: start.min(self.list[first].start),
            end: end.max(self.list[behind - 1].end),
        };
        self.list[first] = joined;
        self.list.drain(first + 1..behind);
        true
    }

    /// Forgets what lies before `to`.
    pub(super) fn forget_before(&mut self, to: u64) {
        let gone = self.list.partition_point(|have| have.end <= to);
        self.list.drain(..gone);
        if let Some(first) = self.list.first_mut() {
            first.start = first.start.max(to);
        }
    }

    /// If an interval starts at or before `at` and goes beyond it: its end.
    pub(super) fn end_around(&self, at: u64) -> Option<u64> {
        let have = self.list.get(self.list.partition_point(|have| have.end <= at))?;
        (have.start <= at).then_some(have.end)
    }

    /// The first start beyond `at`.
    pub(super) fn next_start(&self, at: u64) -> Option<u64> {
        let behind = self.list.partition_point(|have| have.start <= at);
        self.list.get(behind).map(|have| have.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn they_are_a_set_of_bytes(pieces in prop::collection::vec((0..60u64, 0..9u64), 0..30)) {
            let mut intervals = Intervals::new(6);
            let mut bytes = BTreeSet::new();
            for (start, len) in pieces {
                if intervals.insert(start, start + len) {
                    bytes.extend(start..start + len);
                }
                let list = intervals.as_slice();
                prop_assert!(list.len() <= 6);
                prop_assert!(list.iter().all(|have| have.start < have.end));
                prop_assert!(list.windows(2).all(|two| two[0].end < two[1].start));
                let have: BTreeSet<_> = list.iter().flat_map(|i| i.start..i.end).collect();
                prop_assert_eq!(&have, &bytes);
                for at in 0..70 {
                    let around = intervals.end_around(at);
                    prop_assert_eq!(around.is_some(), bytes.contains(&at));
                    let next = list.iter().map(|i| i.start).find(|start| *start > at);
                    prop_assert_eq!(intervals.next_start(at), next);
                }
            }
            intervals.forget_before(30);
            let kept: BTreeSet<_> = bytes.range(30..).copied().collect();
            let have: BTreeSet<_> =
                intervals.as_slice().iter().flat_map(|i| i.start..i.end).collect();
            prop_assert_eq!(have, kept);
        }
    }
}
