//! Memory laid end to end along the stream.

use alloc::collections::VecDeque;

use landfall_placement::Spans;

use landfall_placement::Area;

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
