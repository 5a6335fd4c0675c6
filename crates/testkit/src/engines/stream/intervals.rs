//! A bounded, sorted list of intervals that do not touch.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use landfall_placement::{Area, Spans, Ticket};

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

// A bounded table of things that are under way with a driver.

/// Slots with generations; the storage is made once.
#[derive(Debug)]
pub(super) struct Slots<T> {
    slots: Box<[(u32, Option<T>)]>,
    free: Vec<u32>,
}

impl<T: Copy> Slots<T> {
    pub(super) fn new(bound: usize) -> Self {
        Self {
            slots: (0..bound).map(|_| (0, None)).collect(),
            free: (0..bound as u32).rev().collect(),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keeps a thing until its ticket comes back.
    #[inline]
    pub(super) fn insert(&mut self, thing: T) -> Option<Ticket> {
        let index = self.free.pop()?;
        let (generation, slot) = self.slots.get_mut(index as usize)?;
        *slot = Some(thing);
        Some(Ticket::new(index, *generation))
    }

    #[inline]
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<T> {
        let (generation, slot) = self.slots.get_mut(ticket.index() as usize)?;
        if *generation != ticket.generation() {
            return None;
        }
        let thing = slot.take()?;
        *generation = generation.wrapping_add(1);
        self.free.push(ticket.index());
        Some(thing)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|(_, slot)| slot.as_ref())
    }
}

// Memory laid end to end along the stream.

/// Memory, and which byte of the stream its first one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Posted {
    pub(super) area: Area,
    pub(super) start: u64,
}

impl Posted {
    pub(super) const fn end(&self) -> u64 {
        self.start.saturating_add(self.area.len)
    }
}

/// A bounded queue of areas; the storage is made once.
#[derive(Debug)]
pub(super) struct Areas {
    queue: VecDeque<Posted>,
    bound: usize,
    end: u64,
}

impl Areas {
    pub(super) fn new(bound: usize) -> Self {
        Self { queue: VecDeque::with_capacity(bound), bound, end: 0 }
    }

    pub(super) fn is_full(&self) -> bool {
        self.queue.len() >= self.bound
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// The first byte of the stream behind all areas.
    pub(super) const fn end(&self) -> u64 {
        self.end
    }

    /// Adds an area. False if it is full, or the stream would be longer than
    /// can be counted.
    pub(super) fn push(&mut self, area: Area) -> bool {
        let Some(end) = self.end.checked_add(area.len) else { return false };
        // The last of 2^63 bytes: offsets are compared as signed numbers.
        if self.is_full() || end > i64::MAX as u64 / 2 {
            return false;
        }
        self.queue.push_back(Posted { area, start: self.end });
        self.end = end;
        true
    }

    pub(super) fn front(&self) -> Option<&Posted> {
        self.queue.front()
    }

    pub(super) fn pop(&mut self) -> Option<Posted> {
        self.queue.pop_front()
    }

    pub(super) fn overlaps(&self, area: &Area) -> bool {
        self.queue.iter().any(|posted| posted.area.overlaps(area))
    }

    /// The index of the area that holds byte `at` of the stream.
    #[inline]
    fn index_of(&self, at: u64) -> usize {
        // Most often it is the first or the second.
        match self.queue.front() {
            Some(front) if at < front.end() => 0,
            _ => self.queue.partition_point(|posted| posted.end() <= at),
        }
    }

    /// The area that holds byte `at`, or the `nth` behind it.
    #[inline]
    pub(super) fn nth_from(&self, at: u64, nth: usize) -> Option<&Posted> {
        self.queue.get(self.index_of(at).checked_add(nth)?)
    }

    /// Fills `spans` with the bytes from `start` on, before `end`; gives how
    /// far it came.
    #[inline]
    pub(super) fn fill(&self, start: u64, end: u64, spans: &mut Spans) -> u64 {
        let mut at = start;
        let mut index = self.index_of(start);
        while at < end {
            let Some(posted) = self.queue.get(index) else { break };
            let len = (end.min(posted.end()) - at).min(u64::from(u32::MAX)) as u32;
            if spans.push(posted.area.span(at - posted.start, len)).is_err() {
                break;
            }
            at += u64::from(len);
            index += 1;
        }
        at
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
