//! Queue pairs whose queues this library keeps, where no adapter does: what [`stp`](super::stp)
//! and [`clan`](super::clan) have in common.
//!
//! A [`Carrier`] moves bytes between the two ends of one queue pair. All else is here: the
//! queues, their bounds, who completes where, what is flushed when a queue pair ends, and
//! descriptors to sleep at. Programs name these types by the module of their carrier.

mod background;
mod queue;
mod queue_pair;
mod room;

use std::fmt;
use std::future::poll_fn;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

#[doc(hidden)]
pub use queue::Queue;
pub(super) use queue_pair::Queues;
pub use queue_pair::{QueuePair, QueuePairOptions};
pub use room::{PostedRoom, Room, SharedReceiveQueue, SharedRoom};

use super::{
    Arm, AtomicRequest, CloseReason, Completion, PhaseChange, PostError, RdmaRequest, Status,
};

/// What its completion says of a request of the send queue.
#[derive(Clone, Copy, Debug)]
pub struct Posted {
    pub(super) id: u64,
    pub(super) len: u32,
    pub(super) is_signaled: bool,
}

/// A message that is over: what its completion says.
#[derive(Debug)]
pub struct Arrived {
    pub(super) id: u64,
    pub(super) len: u32,
    pub(super) status: Status,
    pub(super) immediate: Option<u32>,
}

/// What is done to memory of the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Bytes are written.
    Write,
    /// Bytes are read.
    Read,
    /// A word is changed.
    Change,
}

/// One end of what carries the requests of a queue pair. Only the carriers of this crate are
/// some.
pub trait Carrier: Send + Sized + 'static {
    /// Some registered memory.
    type Part: Clone + Send + Sync + 'static;
    /// What the other side has named its memory.
    type Key: Copy + Send + Sync + 'static;
    /// Where threads wait for completions.
    type Node: Node;
    /// A request of the send queue.
    #[doc(hidden)]
    type Request: Send + 'static;

    /// Does the thread that finds out that it can go on go on with it? Otherwise those are
    /// woken that sleep at its completion queue.
    #[doc(hidden)]
    const ADVANCES_WHERE_WOKEN: bool;

    #[doc(hidden)]
    fn part_len(part: &Self::Part) -> u64;
    #[doc(hidden)]
    fn check_room(into: &[Self::Part]) -> Result<(), PostError>;
    #[doc(hidden)]
    fn check_key(key: &Self::Key, reach: Reach, at: u64, len: u64) -> Result<(), PostError>;
    #[doc(hidden)]
    fn message(from: &[Self::Part], word: Option<u32>) -> Result<Self::Request, PostError>;
    #[doc(hidden)]
    fn inline(bytes: &[u8], word: Option<u32>) -> Self::Request;
    #[doc(hidden)]
    fn write(request: &RdmaRequest<'_, Self::Part, Self::Key>) -> Self::Request;
    #[doc(hidden)]
    fn read(request: &RdmaRequest<'_, Self::Part, Self::Key>) -> Self::Request;
    #[doc(hidden)]
    fn atomic(request: &AtomicRequest<Self::Part, Self::Key>) -> Self::Request;

    /// A request takes its place behind the others.
    #[doc(hidden)]
    fn post(&mut self, posted: Posted, request: Self::Request);
    /// How many requests are not done.
    #[doc(hidden)]
    fn sends(&self) -> usize;
    /// How many rooms it has taken that count as posted still.
    #[doc(hidden)]
    fn rooms_taken(&self) -> usize {
        0
    }
    /// Takes what has come, into the room that there is.
    #[doc(hidden)]
    fn receive(
        &mut self,
        room: &mut Room<Self::Part>,
        cx: &mut Context<'_>,
    ) -> Result<(), CloseReason>;
    /// The next message that is over.
    #[doc(hidden)]
    fn next_received(&mut self, cx: &mut Context<'_>) -> Option<Arrived>;
    /// Begins what may begin; the next request that is done, and how.
    #[doc(hidden)]
    fn next_sent(&mut self, cx: &mut Context<'_>) -> Option<(Posted, Status)>;
    /// All that could be done is done. True: look once more. `is_watched`: somebody sleeps until
    /// something completes.
    #[doc(hidden)]
    fn settle(&mut self, is_watched: bool, cx: &mut Context<'_>) -> Result<bool, CloseReason> {
        let _ = (is_watched, cx);
        Ok(false)
    }
    /// Something failed: the other side's queue pair ends, too.
    #[doc(hidden)]
    fn abort(&mut self);
    /// The names of rooms that were taken and are not filled, and all requests that are left:
    /// their turn does not come.
    #[doc(hidden)]
    fn flush(&mut self) -> (Vec<u64>, Vec<Posted>);
}

/// Where threads wait for completions.
pub trait Node: Send + Sync {
    /// Why nothing completes any more.
    type Error: std::error::Error + Send + Sync + 'static;

    #[doc(hidden)]
    fn wait(&self, queue: &Queue, limit: Duration) -> Option<Completion>;
}

/// What became of the requests of as many queue pairs as complete here.
pub struct CompletionQueue<N> {
    queue: Arc<Queue>,
    node: N,
}

impl<N: Node> CompletionQueue<N> {
    pub(super) fn with_node(node: N, capacity: u32) -> std::io::Result<Self> {
        Ok(Self { queue: Arc::new(Queue::new(capacity)?), node })
    }

    pub(super) const fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// How many completions can be polled now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Are there none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next completion, for tasks.
    pub async fn next(&mut self) -> Completion {
        poll_fn(|cx| self.queue.poll_next(cx)).await
    }
}

impl<N: Node> fmt::Debug for CompletionQueue<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// For `epoll` and its kin, as [`arm`](super::CompletionQueue::arm) says.
impl<N: Node> AsFd for CompletionQueue<N> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.bell().as_fd()
    }
}

impl<N: Node> super::CompletionQueue for CompletionQueue<N> {
    type Error = N::Error;

    fn poll(&mut self) -> Option<Completion> {
        self.queue.poll()
    }

    fn poll_into(&mut self, into: &mut Vec<Completion>, at_most: usize) -> usize {
        self.queue.poll_into(into, at_most)
    }

    fn poll_change(&mut self) -> Option<PhaseChange> {
        self.queue.poll_change()
    }

    /// The descriptor may become readable although nothing completes: poll, and arm again.
    fn arm(&mut self, arm: Arm) -> bool {
        self.queue.arm(arm)
    }

    fn wait_for(&mut self, limit: Duration) -> Result<Option<Completion>, N::Error> {
        Ok(self.node.wait(&self.queue, limit))
    }
}
