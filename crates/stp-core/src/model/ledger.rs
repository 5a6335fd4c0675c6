//! What the users of connected endpoints know and did: the reference model.
//!
//! It has no packets, no Blocks and no time: a Transfer is a list of bytes that
//! is delivered once or not at all, an operation takes effect once and in its
//! order, and memory belongs to the engine from a call to exactly one event.

use alloc::vec::Vec;

use landfall_placement::{Area, RegionId};

use crate::ids::{
    ConnectionId, ExposedId, OperationId, PeerRequestId, ReadId, ReceiveId, RemoteRegion,
    RequestId, Rights, SendId,
};

/// What is true of all ends together. Things are named by their place in these
/// lists, and by that name on the wire: `hello`, `opaque`, and a region's `name`.
#[derive(Debug, Default)]
pub(super) struct Truth {
    pub(super) connects: Vec<Connecting>,
    pub(super) transfers: Vec<Transfer>,
    pub(super) reads: Vec<Reading>,
    pub(super) regions: Vec<Region>,
}

/// One call of `connect`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connecting {
    pub(super) from: usize,
    pub(super) to: usize,
    /// Somebody has ended it, or nobody had to take it.
    pub(super) is_excused: bool,
    /// It was made to meet one of the other side. A request of an earlier time
    /// may be what it meets.
    pub(super) meets: bool,
    /// The other side was told that it is open.
    pub(super) is_accepted: bool,
    /// A receiver had too little memory for a Transfer.
    pub(super) was_too_long: bool,
}

/// Bytes that were sent.
#[derive(Clone, Debug)]
pub(super) struct Transfer {
    pub(super) connect: usize,
    pub(super) to: usize,
    pub(super) bytes: Vec<u8>,
    /// The call of `read` that it answers.
    pub(super) answers: Option<usize>,
    pub(super) is_offered: bool,
    /// How much of it was taken, once it was.
    pub(super) delivered: Option<u64>,
    /// A user ended or refused it.
    pub(super) is_excused: bool,
}

/// One call of `read`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) connect: usize,
    pub(super) to: usize,
    pub(super) len: u64,
    pub(super) is_asked: bool,
    /// Somebody refused or ended it.
    pub(super) is_excused: bool,
}

/// A region that was asked for.
#[derive(Clone, Debug)]
pub(super) struct Region {
    pub(super) connect: usize,
    pub(super) owner: usize,
    pub(super) asked_rights: Rights,
    pub(super) is_asked: bool,
    pub(super) is_refused: bool,
    pub(super) exposed: Option<Exposure>,
}

/// What was exposed for it.
#[derive(Clone, Debug)]
pub(super) struct Exposure {
    pub(super) area: Area,
    pub(super) rights: Rights,
    /// What the memory holds once all operations that were begun are done.
    pub(super) expected: Vec<u8>,
    /// An operation failed, or its effect is not known: the bytes may be any.
    pub(super) is_uncertain: bool,
    pub(super) is_revoked: bool,
    /// Puts that want to be known of, and those that were told of.
    pub(super) notices: Vec<(u64, u64)>,
    pub(super) written: usize,
    /// Operations that were not told to be over.
    pub(super) open: u32,
    /// Counts those that were begun.
    pub(super) begun: u32,
    /// For each byte, the last operation that writes it.
    pub(super) writers: Vec<u32>,
}

/// A connection at one end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connection {
    pub(super) id: ConnectionId,
    pub(super) connect: usize,
    pub(super) stage: Stage,
    /// This user closed it.
    pub(super) is_closing: bool,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It was asked for.
    Opening,
    /// It came in and waits for an answer.
    Asked,
    /// It was admitted; the other side has not confirmed.
    Admitted,
    /// It can be used.
    Open,
}

/// What is received at one end, with a name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Receive {
    pub(super) id: ReceiveId,
    pub(super) connect: usize,
    pub(super) memory: Option<Area>,
    pub(super) what: ReceivePurpose,
}

/// What a receive is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReceivePurpose {
    /// A Transfer that was offered, by its name.
    Offer { transfer: usize },
    /// What this side asked for.
    Read { read: usize },
    /// Bytes of a region, as of this many operations begun.
    Get { region: usize, at: u64, after: u32, may_fail: bool },
}

/// A Put or FetchOp that was begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    pub(super) id: OperationId,
    pub(super) connect: usize,
    pub(super) region: usize,
    pub(super) memory: Option<Area>,
    /// What a FetchOp will find.
    pub(super) old: Option<u64>,
    /// It asks for what it may not have.
    pub(super) is_refused: bool,
}

/// A region of the other side, as this one knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remote {
    pub(super) connection: ConnectionId,
    pub(super) connect: usize,
    pub(super) region: usize,
    pub(super) remote: RemoteRegion,
}

/// What the user of one end knows.
#[derive(Debug, Default)]
pub(super) struct User {
    pub(super) connections: Vec<Connection>,
    pub(super) sends: Vec<(SendId, usize, Area)>,
    pub(super) receives: Vec<Receive>,
    pub(super) posts: Vec<(ConnectionId, Area)>,
    pub(super) reads_asked: Vec<(ReadId, ConnectionId, usize)>,
    pub(super) asks: Vec<(PeerRequestId, ConnectionId, usize, u64)>,
    pub(super) requests: Vec<(RequestId, ConnectionId, usize)>,
    pub(super) remotes: Vec<Remote>,
    pub(super) exposed: Vec<(ExposedId, usize)>,
    pub(super) operations: Vec<Begun>,
    /// Memory that came back, with what its region held then.
    pub(super) returned: Vec<(RegionId, Vec<u8>)>,
}

impl User {
    /// The connection of this name.
    pub(super) fn connection(&self, id: ConnectionId) -> Option<&Connection> {
        self.connections.iter().find(|known| known.id == id)
    }

    /// Has everything that was begun ended, and every question an answer?
    pub(super) fn is_idle(&self) -> bool {
        self.sends.is_empty()
            && self.receives.is_empty()
            && self.reads_asked.is_empty()
            && self.asks.is_empty()
            && self.requests.is_empty()
            && self.operations.is_empty()
            && self.connections.iter().all(|known| known.stage == Stage::Open)
    }

    /// Is there nothing at all?
    pub(super) fn is_empty(&self) -> bool {
        self.is_idle()
            && self.connections.is_empty()
            && self.posts.is_empty()
            && self.exposed.is_empty()
    }
}

impl Truth {
    /// Somebody has ended this connection.
    pub(super) fn excuse(&mut self, connect: usize) {
        if let Some(known) = self.connects.get_mut(connect) {
            known.is_excused = true;
        }
    }

    pub(super) fn is_excused(&self, connect: usize) -> bool {
        self.connects.get(connect).is_none_or(|known| known.is_excused)
    }

    /// May the two be names of one connection?
    pub(super) fn is_same(&self, a: usize, b: usize) -> bool {
        let meets = |name: usize| self.connects.get(name).is_some_and(|known| known.meets);
        a == b || meets(a) && meets(b)
    }

    /// The end at the other side.
    pub(super) fn other(&self, connect: usize, side: usize) -> usize {
        let Some(known) = self.connects.get(connect) else { return side };
        if known.from == side { known.to } else { known.from }
    }
}
