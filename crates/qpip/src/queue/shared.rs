//! [`SharedReceiveQueue`]: room for what comes that many queue pairs take from; and
//! [`Credit`], what they may promise of it.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use super::Gather;
use super::receive::Request;
use crate::work::SharedReceiveQueueId;

/// Requests in the order of posting, that nobody has taken yet.
#[derive(Debug)]
pub(crate) struct SharedReceiveQueue {
    requests: VecDeque<Request>,
    depth: u32,
    /// The bytes of all requests together.
    bytes: u64,
    /// The most that one queue pair is promised.
    window: u32,
    credit: Arc<Credit>,
}

/// What a shared queue has, as those see it who offer a window for it. All are promised the
/// same memory: who comes first has it.
#[derive(Debug)]
pub(crate) struct Credit {
    /// The queue that has it.
    pub(crate) of: SharedReceiveQueueId,
    requests: AtomicU32,
    bytes: AtomicU32,
    first: AtomicU32,
}

impl Credit {
    /// How many requests there are.
    #[inline]
    pub(crate) fn requests(&self) -> u32 {
        self.requests.load(Ordering::Relaxed)
    }

    /// How many of their bytes one queue pair may promise.
    #[inline]
    pub(crate) fn bytes(&self) -> u32 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The bytes of the request that is taken next.
    #[inline]
    pub(crate) fn first(&self) -> u32 {
        self.first.load(Ordering::Relaxed)
    }
}

impl SharedReceiveQueue {
    pub(crate) fn new(of: SharedReceiveQueueId, depth: u32, window: u32) -> Self {
        let nothing = AtomicU32::default;
        let (requests, bytes, first) = (nothing(), nothing(), nothing());
        let credit = Arc::new(Credit { of, requests, bytes, first });
        Self { requests: VecDeque::new(), depth, bytes: 0, window, credit }
    }

    /// For a queue pair that takes from it.
    pub(crate) fn credit(&self) -> Arc<Credit> {
        Arc::clone(&self.credit)
    }

    pub(crate) fn has_room(&self) -> bool {
        self.requests.len() < self.depth as usize
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Adds a request; there must be room.
    pub(crate) fn push(&mut self, id: u64, gather: Gather) {
        self.bytes += u64::from(gather.len());
        self.requests.push_back(Request { id, gather });
        self.tell();
    }

    /// A queue pair takes the next request.
    pub(crate) fn take(&mut self) -> Option<Request> {
        let request = self.requests.pop_front()?;
        self.bytes -= u64::from(request.gather.len());
        self.tell();
        Some(request)
    }

    fn tell(&self) {
        let first = self.requests.front().map_or(0, |request| request.gather.len());
        let most = u64::from(self.window.max(first));
        self.credit.requests.store(self.requests.len() as u32, Ordering::Relaxed);
        self.credit.bytes.store(self.bytes.min(most) as u32, Ordering::Relaxed);
        self.credit.first.store(first, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Piece;
    use landfall_placement::RegionId;

    fn gather(len: u32) -> Gather {
        Gather::new(&[Piece { key: 0, span: RegionId::new(1, 0).span(0, len) }]).unwrap()
    }

    #[test]
    fn one_queue_pair_is_promised_no_more_than_it_may_and_the_next_request_whole() {
        let mut queue = SharedReceiveQueue::new(SharedReceiveQueueId::new(0, 0), 4, 100);
        let credit = queue.credit();
        let seen = || (credit.requests(), credit.bytes(), credit.first());
        assert_eq!(seen(), (0, 0, 0));
        queue.push(1, gather(60));
        assert_eq!(seen(), (1, 60, 60));
        queue.push(2, gather(500));
        assert_eq!(seen(), (2, 100, 60));
        assert_eq!(queue.take().unwrap().id, 1);
        // One message may have to come whole.
        assert_eq!(seen(), (1, 500, 500));
        assert_eq!(queue.take().unwrap().id, 2);
        assert!(queue.take().is_none());
        assert_eq!(seen(), (0, 0, 0));
    }
}
