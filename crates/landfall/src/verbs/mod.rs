//! Verbs: what a program asks of queue pairs and completion queues, whatever carries them.
//!
//! The words are those of the Virtual Interface Architecture, from which both papers' queue
//! pairs come: work requests are *posted* to a queue pair and *complete* in a completion
//! queue. A program that is written to [`QueuePair`] and [`CompletionQueue`] runs over each
//! carrier that implements them: [`qpip`], where an adapter carries messages by TCP; [`stp`],
//! which moves them by Transfers between hosts; and [`clan`], which writes them into memory that
//! processes of one host share. The last two reach memory of the other side.
//!
//! | verb | where |
//! | --- | --- |
//! | send, silent send, list of sends | [`QueuePair::post_send`], [`QueuePair::post_sends`] |
//! | send with a word beside its bytes | [`SendRequest::immediate`], [`Completion::immediate`], [`QueuePair::takes_immediates`] |
//! | send with its bytes | [`QueuePair::post_inline`] |
//! | receive, list of receives | [`QueuePair::post_receive`], [`QueuePair::post_receives`] |
//! | poll, arm, sleep at a descriptor | [`CompletionQueue`] |
//! | what happens to connections | [`CompletionQueue::poll_change`] |
//! | RDMA write and read, words changed in one step | [`RdmaQueuePair`], not over queue pairs of QPIP |
//!
//! Making them, connecting them and registering memory is each carrier's own: there they
//! differ. So are shared receive queues, of which a queue pair is made, and which it does not
//! name again.
//!
//! ```
//! use std::time::Duration;
//! use landfall::verbs::{CompletionQueue, QueuePair, ReceiveRequest, SendRequest};
//!
//! /// Sends a message and waits for the answer; gives how long it is.
//! fn ask<Q: QueuePair>(
//!     pair: &mut Q,
//!     done: &mut impl CompletionQueue,
//!     (question, answer): (Q::Part, Q::Part),
//! ) -> Result<u32, Box<dyn std::error::Error>> {
//!     pair.post_receive(&ReceiveRequest { id: 1, into: &[answer] })?;
//!     let from = [question];
//!     pair.post_send(&SendRequest { is_signaled: false, ..SendRequest::new(2, &from) })?;
//!     let came = done.wait_for(Duration::from_secs(1))?.ok_or("no answer")?;
//!     Ok(came.len)
//! }
//! ```
//!
//! # A word beside a message
//!
//! Where both ends asked for it when they opened
//! ([`TcpConfig::immediates`](crate::qpip::TcpConfig)), a message may have 32 bits that come
//! with its completion, for the number of a question or of a buffer:
//!
//! ```
//! use landfall::verbs::{Completion, PostError, QueuePair, SendRequest};
//!
//! fn answer<Q: QueuePair>(pair: &mut Q, bytes: Q::Part, question: u32) -> Result<(), PostError> {
//!     let from = [bytes];
//!     // `PostError::NoImmediates`, at once, where the other end does not take words.
//!     pair.post_send(&SendRequest { immediate: Some(question), ..SendRequest::new(1, &from) })
//! }
//!
//! fn question_of(answer: &Completion) -> Option<u32> {
//!     answer.immediate
//! }
//! ```

#[cfg(feature = "clan")]
pub mod clan;
#[cfg(any(feature = "clan", feature = "stp"))]
pub mod software;
#[cfg(feature = "stp")]
pub mod stp;

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

pub use landfall_placement::WordFunction;

use crate::qpip;
pub use crate::qpip::{
    Arm, CloseReason, Completion, Operation, PartlyPosted, Phase, PhaseChange, PostError,
    QueuePairId, ReceiveRequest, SendRequest, Status,
};

/// Two queues of work requests.
pub trait QueuePair: Send {
    /// Some registered memory, as requests name it.
    type Part: Clone;

    /// What completions call it.
    fn id(&self) -> QueuePairId;

    /// Posts a message to be sent.
    ///
    /// # Errors
    /// See [`PostError`]; nothing is posted then.
    fn post_send(&mut self, request: &SendRequest<'_, Self::Part>) -> Result<(), PostError>;

    /// Posts a list of them, and rings once.
    ///
    /// # Errors
    /// [`PartlyPosted`]: how many are posted, and why the next is not.
    fn post_sends(&mut self, list: &[SendRequest<'_, Self::Part>]) -> Result<(), PartlyPosted>;

    /// Posts a message whose bytes are copied at once.
    ///
    /// # Errors
    /// See [`PostError`]; nothing is posted then.
    fn post_inline(
        &mut self,
        id: u64,
        bytes: &[u8],
        to: Option<SocketAddr>,
    ) -> Result<(), PostError>;

    /// Posts room for what comes.
    ///
    /// # Errors
    /// See [`PostError`]; nothing is posted then.
    fn post_receive(&mut self, request: &ReceiveRequest<'_, Self::Part>) -> Result<(), PostError>;

    /// Posts a list of rooms, and rings once.
    ///
    /// # Errors
    /// [`PartlyPosted`]: how many are posted, and why the next is not.
    fn post_receives(
        &mut self,
        list: &[ReceiveRequest<'_, Self::Part>],
    ) -> Result<(), PartlyPosted>;

    /// May messages have a word beside their bytes ([`SendRequest::immediate`])? Both ends have
    /// to have agreed on that.
    fn takes_immediates(&self) -> bool;

    /// Where its connection stands.
    fn phase(&self) -> Phase;
}

/// What became of work requests. Its descriptor is for `epoll`, io_uring, or tokio's
/// `AsyncFd`: see [`arm`](Self::arm).
pub trait CompletionQueue: AsFd + Send {
    /// Why nothing completes any more.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Takes the next completion, if there is one.
    fn poll(&mut self) -> Option<Completion>;

    /// Takes at most this many, and gives how many.
    fn poll_into(&mut self, into: &mut Vec<Completion>, at_most: usize) -> usize;

    /// Takes the next thing that happened to a connection.
    fn poll_change(&mut self) -> Option<PhaseChange>;

    /// Before sleeping at the descriptor. False: there is something, do not sleep.
    #[must_use = "false: there is something, and the descriptor need not become readable"]
    fn arm(&mut self, arm: Arm) -> bool;

    /// Waits for the next completion on this thread; nothing if none came in time.
    ///
    /// # Errors
    /// Nothing completes any more.
    fn wait_for(&mut self, limit: Duration) -> Result<Option<Completion>, Self::Error>;
}

/// A write to the memory of the other side, or a read of it.
#[derive(Clone, Copy, Debug)]
pub struct RdmaRequest<'a, P, K> {
    /// Your own name for it: the completion brings it back.
    pub id: u64,
    /// Where its bytes are, or go to, in order.
    pub local: &'a [P],
    /// What memory of the other side.
    pub key: K,
    /// From which byte of that on.
    pub at: u64,
    /// Does it complete when it is done well?
    pub is_signaled: bool,
    /// Of a write: uses up a receive of the other side, and arrives with its completion, when
    /// the bytes are in place.
    pub immediate: Option<u32>,
}

/// A word of the other side's memory is changed in one step; what it held before is stored
/// here.
#[derive(Clone, Copy, Debug)]
pub struct AtomicRequest<P, K> {
    /// Your own name for it: the completion brings it back.
    pub id: u64,
    /// Eight bytes for what the word held, little-endian.
    pub into: P,
    /// What memory of the other side.
    pub key: K,
    /// Where the word is in it: at a multiple of eight.
    pub at: u64,
    /// What is done to it.
    pub function: WordFunction,
    /// Does it complete when it is done well?
    pub is_signaled: bool,
}

/// A queue pair that reaches memory of the other side. Requests to it take their turn in the
/// send queue, and [`Completion::operation`] says [`Operation::Send`] of them.
pub trait RdmaQueuePair: QueuePair {
    /// What the other side has named its memory.
    type Key: Copy;

    /// Writes to memory of the other side, whose program does not take part.
    ///
    /// # Errors
    /// See [`PostError`]; nothing is posted then.
    fn post_write(
        &mut self,
        request: &RdmaRequest<'_, Self::Part, Self::Key>,
    ) -> Result<(), PostError>;

    /// Reads from it.
    ///
    /// # Errors
    /// See [`PostError`]; nothing is posted then.
    fn post_read(
        &mut self,
        request: &RdmaRequest<'_, Self::Part, Self::Key>,
    ) -> Result<(), PostError>;

    /// Changes a word of it.
    ///
    /// # Errors
    /// See [`PostError`]; nothing is posted then.
    fn post_atomic(
        &mut self,
        request: &AtomicRequest<Self::Part, Self::Key>,
    ) -> Result<(), PostError>;
}

impl QueuePair for qpip::QueuePair {
    type Part = qpip::Part;

    fn id(&self) -> QueuePairId {
        Self::id(self)
    }

    fn post_send(&mut self, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.split().0.post_request(*request)
    }

    fn post_sends(&mut self, list: &[SendRequest<'_>]) -> Result<(), PartlyPosted> {
        self.split().0.post_all(list)
    }

    fn post_inline(
        &mut self,
        id: u64,
        bytes: &[u8],
        to: Option<SocketAddr>,
    ) -> Result<(), PostError> {
        self.split().0.post_inline(id, bytes, to)
    }

    fn post_receive(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        Self::post_receive(self, request.id, request.into)
    }

    fn post_receives(&mut self, list: &[ReceiveRequest<'_>]) -> Result<(), PartlyPosted> {
        self.split().1.post_all(list)
    }

    fn takes_immediates(&self) -> bool {
        Self::takes_immediates(self)
    }

    fn phase(&self) -> Phase {
        Self::phase(self)
    }
}

impl CompletionQueue for qpip::CompletionQueue {
    type Error = qpip::Error;

    fn poll(&mut self) -> Option<Completion> {
        Self::poll(self)
    }

    fn poll_into(&mut self, into: &mut Vec<Completion>, at_most: usize) -> usize {
        Self::poll_into(self, into, at_most)
    }

    fn poll_change(&mut self) -> Option<PhaseChange> {
        Self::poll_change(self)
    }

    fn arm(&mut self, arm: Arm) -> bool {
        Self::arm(self, arm)
    }

    fn wait_for(&mut self, limit: Duration) -> Result<Option<Completion>, qpip::Error> {
        Self::wait_for(self, limit)
    }
}
