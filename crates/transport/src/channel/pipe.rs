//! One direction of a channel: a bounded queue of frames that are used again.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use landfall_placement::{Ecn, Peer};

/// One unit on its way.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) bytes: Vec<u8>,
    pub(super) from: Peer,
    pub(super) ecn: Ecn,
}

#[derive(Debug)]
struct Queue {
    full: VecDeque<Frame>,
    empty: Vec<Frame>,
    closed: bool,
}

#[derive(Debug)]
pub(super) struct Pipe(Mutex<Queue>);

impl Pipe {
    pub(super) fn new(frames: usize) -> Self {
        let empty = std::iter::repeat_with(Frame::default).take(frames.max(1)).collect();
        Self(Mutex::new(Queue { full: VecDeque::new(), empty, closed: false }))
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // No code that can panic runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A frame to fill; none if all are on their way.
    pub(super) fn take_empty(&self) -> Option<Frame> {
        self.queue().empty.pop()
    }

    pub(super) fn push(&self, frame: Frame) {
        self.queue().full.push_back(frame);
    }

    pub(super) fn pop(&self) -> Option<Frame> {
        self.queue().full.pop_front()
    }

    pub(super) fn give_back(&self, frame: Frame) {
        self.queue().empty.push(frame);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue().full.is_empty()
    }

    pub(super) fn has_room(&self) -> bool {
        !self.queue().empty.is_empty()
    }

    pub(super) fn close(&self) {
        self.queue().closed = true;
    }

    /// Closed, and all that was sent before has been taken.
    pub(super) fn is_closed(&self) -> bool {
        let queue = self.queue();
        queue.closed && queue.full.is_empty()
    }
}
