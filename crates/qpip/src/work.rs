//! Work requests, as they are posted, and completions, as they are polled.

use core::fmt;
use core::net::SocketAddr;

/// A part of registered memory, as a work request names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// The registration, and with it the right.
    pub key: MemoryKey,
    /// Where in the registered memory the part starts.
    pub offset: u64,
    /// How many bytes it has.
    pub len: u32,
}

impl Buffer {
    /// The `len` bytes from `offset` on of what was registered as `key`.
    #[must_use]
    pub const fn new(key: MemoryKey, offset: u64, len: u32) -> Self {
        Self { key, offset, len }
    }
}

/// A message to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendWork<'a> {
    /// The user's own name for it: the completion brings it back.
    pub id: u64,
    /// Where its bytes are, in order.
    pub from: &'a [Buffer],
    /// To whom, of a queue pair that is not connected.
    pub to: Option<SocketAddr>,
    /// Does it complete when it is done? One that does not completes only where it fails, or
    /// when the queue pair is destroyed; that it is done shows by the next one that
    /// completes, and by
    /// [`Event::UnsignaledDone`](crate::Event::UnsignaledDone).
    pub is_signaled: bool,
    /// A word that arrives with the end of the message, in the receiver's completion
    /// ([`Completion::immediate`]): on a connection whose two ends have agreed on that
    /// ([`TcpConfig::immediates`](crate::TcpConfig::immediates)).
    pub immediate: Option<u32>,
}

/// Room for a message to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveWork<'a> {
    /// The user's own name for it: the completion brings it back.
    pub id: u64,
    /// Where its bytes go, in order.
    pub into: &'a [Buffer],
}

/// Which queue a work request was posted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// The send queue.
    Send,
    /// The receive queue.
    Receive,
}

/// What became of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// It is done. What was sent over TCP is acknowledged.
    Success,
    /// A datagram was longer than the request: nothing was written, and the
    /// length of the completion says how long it was.
    TooLong,
    /// The queue pair ended before its turn came.
    Flushed,
    /// The other side reset the connection.
    Reset,
    /// The other side stopped answering.
    TimedOut,
    /// The memory could not be read or written any more.
    MemoryGone,
    /// The other side's memory may not be used so. No request of this adapter does that: it is
    /// for carriers that reach such memory, with the words of these queue pairs.
    RemoteAccess,
    /// The network says that there is no way to the destination.
    Unreachable,
}

impl Status {
    /// Is it [`Status::Success`]?
    #[must_use]
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Success)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Success => "done",
            Self::TooLong => "the datagram was longer than the request",
            Self::Flushed => "the queue pair ended before its turn",
            Self::Reset => "the other side reset the connection",
            Self::TimedOut => "the other side stopped answering",
            Self::MemoryGone => "the memory is not registered any more",
            Self::RemoteAccess => "the other side's memory may not be used so",
            Self::Unreachable => "there is no way to the destination",
        })
    }
}

/// A work request that is done, or of a byte stream a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The name that the user gave.
    pub id: u64,
    /// The queue pair that it was posted to.
    pub queue_pair: QueuePairId,
    /// Which of its queues.
    pub operation: Operation,
    /// What became of it.
    pub status: Status,
    /// How many bytes were sent, or came with this completion.
    pub len: u32,
    /// Where in the request those that came begin: not zero only where a byte
    /// stream reported parts before.
    pub offset: u32,
    /// The last of them ends a message.
    pub ends_message: bool,
    /// The request is used up, and its memory the user's again. Only requests
    /// of a byte stream go on after a completion.
    pub ends_request: bool,
    /// Who sent a datagram.
    pub from: Option<SocketAddr>,
    /// The word that the message was sent with which ends here.
    pub immediate: Option<u32>,
}

impl Completion {
    /// Does it wake a waiter that wants solicited completions only? Ends of
    /// messages and everything that went wrong do.
    #[must_use]
    pub const fn is_solicited(&self) -> bool {
        !self.status.is_success()
            || matches!(self.operation, Operation::Receive) && self.ends_message
    }
}

// Names that the adapter gives out: an index, and a generation that makes a
// stale name harmless.

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $word:literal,)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name {
            /// The slot in its table.
            pub index: u32,
            /// How often that slot was used before.
            pub generation: u32,
        }

        impl $name {
            /// The name of slot `index` in its `generation`.
            #[must_use]
            pub const fn new(index: u32, generation: u32) -> Self {
                Self { index, generation }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($word, " {}.{}"), self.index, self.generation)
            }
        }
    )+};
}

ids! {
    /// A protection domain: queue pairs reach only memory of their own domain.
    DomainId = "domain",
    /// Registered memory, and the right to use it.
    MemoryKey = "memory key",
    /// A completion queue.
    CompletionQueueId = "completion queue",
    /// A queue pair.
    QueuePairId = "queue pair",
    /// Room that queue pairs share for what comes.
    SharedReceiveQueueId = "shared receive queue",
    /// A port that is listened on.
    ListenerId = "listener",
}
