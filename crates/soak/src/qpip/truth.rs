//! What users of queue pairs began, and what must come of it.

use std::collections::VecDeque;

use qpip::{ListenerId, Mapping, QueuePairId};

use super::calls::stream;
use super::disk::Conversation;

/// A datagram. Its first bytes are its number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Datagram {
    pub(super) to: u8,
    pub(super) speculates: bool,
    pub(super) len: u16,
    pub(super) came: u32,
}

/// What goes one way over a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Direction {
    /// The lengths of messages that were posted, in order.
    pub(super) messages: Vec<u32>,
    /// Names of the requests that were posted and did not complete.
    pub(super) posted: VecDeque<u64>,
    /// How many were acknowledged.
    pub(super) acknowledged: usize,
    /// How many bytes of the stream were posted.
    pub(super) sent: u64,
    /// How many messages came, and how many bytes.
    pub(super) received: usize,
    pub(super) received_bytes: u64,
    /// The sender has said that nothing more comes.
    pub(super) is_shut: bool,
    /// The receiver was told so.
    pub(super) is_finished: bool,
}

/// A connection of two queue pairs, from the call that asked for it on.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) from: u8,
    pub(super) to: u8,
    pub(super) kind: u8,
    /// Of the side that asked, and of the other.
    pub(super) pairs: [Option<QueuePairId>; 2],
    pub(super) listener: Option<ListenerId>,
    pub(super) is_up: [bool; 2],
    pub(super) is_closed: [bool; 2],
    /// A side was started anew, or the connection failed, or a user ended it at once.
    pub(super) is_gone: bool,
    /// From the side that asked, and to it.
    pub(super) directions: [Direction; 2],
    /// What is said of a disk over it.
    pub(super) talk: Option<Box<Conversation>>,
}

/// The mapping that a kind of connection has.
pub(super) const fn mapping(kind: u8) -> Mapping {
    match kind % 3 {
        0 => Mapping::Message,
        1 => Mapping::Stream,
        _ => Mapping::Segment,
    }
}

impl Connection {
    pub(super) fn new(from: u8, to: u8, kind: u8, pairs: [QueuePairId; 2], at: ListenerId) -> Self {
        Self {
            from,
            to,
            kind,
            pairs: pairs.map(Some),
            listener: Some(at),
            is_up: [false; 2],
            is_closed: [false; 2],
            is_gone: false,
            directions: Default::default(),
            talk: None,
        }
    }

    /// What a side sent, from a position of its stream on.
    pub(super) fn bytes(&self, name: usize, side: usize, from: u64, len: usize) -> Vec<u8> {
        match &self.talk {
            Some(talk) => talk.said[side].iter().skip(from as usize).take(len).copied().collect(),
            None => stream(name, side, from, len),
        }
    }

    pub(super) fn joins(&self, host: u8) -> bool {
        self.from == host || self.to == host
    }

    pub(super) fn side(&self, host: u8) -> usize {
        usize::from(host != self.from)
    }

    pub(super) fn host(&self, side: usize) -> u8 {
        [self.from, self.to][side]
    }

    pub(super) fn is_there(&self, side: usize) -> bool {
        self.pairs[side].is_some() && !self.is_closed[side]
    }

    /// May something be sent from this side?
    pub(super) fn takes(&self, side: usize) -> bool {
        !self.is_gone && self.is_there(side) && !self.directions[side].is_shut
    }

    /// A host was started anew.
    pub(super) fn forget(&mut self, host: u8) {
        let side = self.side(host);
        self.pairs[side] = None;
        self.is_closed[side] = true;
        self.is_gone = true;
        self.listener = self.listener.filter(|_| side == 0);
        self.directions[side].posted.clear();
    }

    /// What was begun on it and is not over.
    pub(super) fn left(&self) -> Option<String> {
        if (0..2).any(|side| self.is_there(side) && !self.is_up[side]) {
            return Some("it neither opened nor failed".into());
        }
        for (side, one) in self.directions.iter().enumerate() {
            if !one.posted.is_empty() {
                return Some(format!("{} sends of side {side} did not end", one.posted.len()));
            }
            if !self.is_gone && one.received_bytes < one.sent {
                let (have, sent) = (one.received_bytes, one.sent);
                return Some(format!("{have} of {sent} bytes of side {side} came"));
            }
        }
        self.talk.as_ref().filter(|_| !self.is_gone).and_then(|talk| talk.left())
    }
}
