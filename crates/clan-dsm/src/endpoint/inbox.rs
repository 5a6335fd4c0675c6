//! The queue of an endpoint.

use super::notice::Notice;
use alloc::collections::VecDeque;

/// Notices in the order in which they came. What others can send as often as
/// they like is bounded; what a connection says of itself always fits, since
/// the next connection begins only once the last notice of this one was taken.
#[derive(Clone, Debug, Default)]
pub(super) struct Inbox {
    queue: VecDeque<Notice>,
    /// How many of them count against the bound.
    bounded: usize,
    /// How many messages of this endpoint were not delivered, beyond those that
    /// the queue tells of.
    more_undelivered: u64,
}

impl Inbox {
    /// An empty queue in memory that another endpoint has left behind.
    pub(super) fn reusing(queue: VecDeque<Notice>) -> Self {
        debug_assert!(queue.is_empty());
        Self { queue, ..Self::default() }
    }

    /// Leaves the memory behind.
    pub(super) fn into_memory(mut self) -> VecDeque<Notice> {
        self.queue.clear();
        self.queue
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.more_undelivered == 0
    }

    /// Would one more fit that counts against the bound?
    pub(super) fn has_room(&self, limit: usize) -> bool {
        self.bounded < limit
    }

    /// Puts one in, whose room the caller has asked for if it counts.
    pub(super) fn push(&mut self, notice: Notice) {
        self.bounded += usize::from(!notice.is_of_connection());
        self.queue.push_back(notice);
    }

    /// Tells of messages that were not delivered: singly while there is room,
    /// as a number where there is none.
    pub(super) fn push_undelivered(&mut self, notice: Notice, count: u32, limit: usize) {
        if self.has_room(limit) && self.more_undelivered == 0 {
            self.push(notice);
        } else {
            self.more_undelivered = self.more_undelivered.saturating_add(u64::from(count));
        }
    }

    pub(super) fn pop(&mut self) -> Option<Notice> {
        if let Some(notice) = self.queue.pop_front() {
            self.bounded -= usize::from(!notice.is_of_connection());
            return Some(notice);
        }
        let count = core::mem::take(&mut self.more_undelivered);
        (count > 0).then_some(Notice::MoreUndelivered { count })
    }
}
