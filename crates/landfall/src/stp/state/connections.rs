//! What the front door knows of a connection: who waits for what.

use std::collections::VecDeque;
use std::task::Waker;

use landfall_placement::{PathId, Peer};
use stp_core::{ConnectionId, Ended, PeerRequestId, ReadId, ReceiveId, Rights};

use super::slots::Key;

/// Where a connection stands, for its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Opening,
    Open,
    /// One of the sides closes it: nothing new begins.
    Closing,
    Closed(Option<Ended>),
}

/// A Transfer that the other side has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfferMade {
    pub(crate) receive: ReceiveId,
    pub(crate) len: u64,
    pub(crate) opaque: u32,
}

/// What the other side wants to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadMade {
    pub(crate) read: ReadId,
    pub(crate) len: u64,
    pub(crate) opaque: u32,
}

/// A region that the other side wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegionMade {
    pub(crate) request: PeerRequestId,
    pub(crate) name: u32,
    pub(crate) len: u64,
    pub(crate) rights: Rights,
}

#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) status: Status,
    pub(crate) path: PathId,
    pub(crate) peer: Peer,
    /// What the engine calls the peer.
    pub(crate) name: Peer,
    /// The name that it was called by, if it has one.
    pub(crate) host: Option<Box<str>>,
    pub(crate) hello: u64,
    /// No handle is left: it is forgotten when it is closed.
    pub(crate) is_released: bool,
    /// Asked for, and not begun for lack of room, in the order of the calls.
    pub(crate) queue: VecDeque<Key>,
    /// Memory that waits for a Transfer.
    pub(crate) receivers: VecDeque<Key>,
    pub(crate) offers: VecDeque<OfferMade>,
    pub(crate) reads: VecDeque<ReadMade>,
    pub(crate) regions: VecDeque<RegionMade>,
    /// Anyone who watches any of these.
    pub(crate) watchers: Vec<Waker>,
}

impl Known {
    /// A connection to a peer, and what the engine calls that.
    pub(crate) fn new(
        status: Status,
        path: PathId,
        (peer, name): (Peer, Peer),
        hello: u64,
    ) -> Self {
        Self {
            status,
            path,
            peer,
            name,
            host: None,
            hello,
            is_released: false,
            queue: VecDeque::new(),
            receivers: VecDeque::new(),
            offers: VecDeque::new(),
            reads: VecDeque::new(),
            regions: VecDeque::new(),
            watchers: Vec::new(),
        }
    }

    /// Why nothing begins any more, if so.
    pub(crate) const fn over(&self) -> Option<Option<Ended>> {
        match self.status {
            Status::Closed(why) => Some(why),
            Status::Closing => Some(None),
            Status::Opening | Status::Open => None,
        }
    }
}

/// A port where connections come in.
#[derive(Debug)]
pub(crate) struct Listening {
    /// Those that nobody has accepted.
    pub(crate) backlog: VecDeque<ConnectionId>,
    pub(crate) watchers: Vec<Waker>,
}

/// A write of the other side that it wants to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Where in the region, from its start.
    pub at: u64,
    /// How many bytes.
    pub len: u64,
}

/// A region that the other side may use.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) held: Option<crate::stp::memory::Held>,
    pub(crate) notices: VecDeque<Notice>,
    /// This many were forgotten, for nobody took them.
    pub(crate) missed: u64,
    /// The engine gave it back.
    pub(crate) is_over: bool,
    pub(crate) is_orphan: bool,
    pub(crate) watchers: Vec<Waker>,
}
