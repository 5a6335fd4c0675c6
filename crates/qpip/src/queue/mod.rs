//! The two queues of a queue pair: what is posted, and what is done.
//!
//! They know positions in a stream, but nothing of TCP: who sends and receives
//! says how far it is.

mod receive;
mod send;
mod shared;

use alloc::collections::VecDeque;
use core::net::SocketAddr;

pub(crate) use receive::{ReceiveQueue, Request};
pub(crate) use send::{Gather, Hold, Piece, SendQueue};
pub(crate) use shared::{Credit, SharedReceiveQueue};

use crate::work::{Operation, Status};

/// Appends to a list that in most connections holds one entry at a time: the
/// first allocation is for one and not, as usual, for four.
#[inline]
fn append<T>(list: &mut VecDeque<T>, entry: T) {
    if list.capacity() == 0 {
        list.reserve_exact(1);
    }
    list.push_back(entry);
}

/// The queues of a queue pair.
#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) send: SendQueue,
    pub(crate) receive: ReceiveQueue,
}

/// Who sent what came, and with what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageOrigin {
    /// The only one who can; of a send nobody.
    Peer,
    /// The same, with a word at the end of its message.
    WithWord(u32),
    /// A datagram of this one.
    Address(SocketAddr),
}

impl MessageOrigin {
    pub(crate) const fn address(self) -> Option<SocketAddr> {
        match self {
            Self::Address(address) => Some(address),
            Self::Peer | Self::WithWord(_) => None,
        }
    }

    pub(crate) const fn word(self) -> Option<u32> {
        match self {
            Self::WithWord(word) => Some(word),
            Self::Peer | Self::Address(_) => None,
        }
    }
}

/// A request that is done, or a part of one: a completion before it has the
/// name of its queue pair. With the request go its pieces, which are in use no
/// longer.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) id: u64,
    pub(crate) operation: Operation,
    pub(crate) status: Status,
    pub(crate) len: u32,
    pub(crate) offset: u32,
    pub(crate) ends_message: bool,
    /// The memory, where the request ended.
    pub(crate) gather: Option<Gather>,
    pub(crate) origin: MessageOrigin,
    /// Is it to be told where it is done well, too?
    pub(crate) is_signaled: bool,
}

impl Queues {
    pub(crate) const fn new(send_depth: u32, receive_depth: u32) -> Self {
        Self { send: SendQueue::new(send_depth), receive: ReceiveQueue::new(receive_depth) }
    }

    /// The next completion, in the order of each queue.
    #[inline]
    pub(crate) fn poll_done(&mut self) -> Option<Done> {
        self.receive.poll_done().or_else(|| self.send.poll_done())
    }

    /// Ends everything that is posted.
    pub(crate) fn flush(&mut self, status: Status) {
        self.send.flush(status);
        self.receive.flush(status);
    }
}
