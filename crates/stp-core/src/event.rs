//! What an endpoint tells its user.

use landfall_placement::{Area, PathId, Peer};

use crate::error::Ended;
use crate::ids::{
    ConnectionId, ExposedId, OperationId, PeerRequestId, ReadId, ReceiveId, RemoteRegion,
    RequestId, Rights, SendId,
};

/// What happened. Each thing that was begun ends with exactly one event, and
/// with it its memory is the user's again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields are named after what they hold")]
pub enum Event {
    /// A connection that was asked for is open.
    Connected { connection: ConnectionId, hello: u64 },
    /// A connection came in. Where its listener asks first, it waits for
    /// [`Endpoint::admit`](crate::Endpoint::admit) or
    /// [`Endpoint::turn_away`](crate::Endpoint::turn_away).
    Incoming { connection: ConnectionId, port: u16, path: PathId, peer: Peer, hello: u64 },
    /// The other side has heard that its connection is admitted.
    Accepted { connection: ConnectionId, port: u16, path: PathId, peer: Peer, hello: u64 },
    /// The other side wants to close; what is under way goes on to its end.
    Closing { connection: ConnectionId },
    /// The connection is no more. `why` is nothing after a graceful close.
    Closed { connection: ConnectionId, why: Option<Ended> },
    /// A link of the connection can be used.
    LinkUp { connection: ConnectionId, path: PathId, peer: Peer },
    /// A link of the connection does not answer; what it had goes over others.
    LinkDown { connection: ConnectionId, path: PathId, peer: Peer },

    /// All of a Transfer is in place at the other side, which took `len` bytes.
    Sent { send: SendId, connection: ConnectionId, len: u64 },
    /// A Transfer ended early; the other side has at least `len` bytes of it.
    SendEnded { send: SendId, connection: ConnectionId, len: u64, why: Ended },
    /// The first `len` bytes are in place at the other side and will not be
    /// needed again.
    SendProgress { send: SendId, connection: ConnectionId, len: u64 },

    /// The other side has a Transfer of `len` bytes, and no memory waits for it:
    /// [`Endpoint::accept`](crate::Endpoint::accept) or
    /// [`Endpoint::refuse`](crate::Endpoint::refuse).
    Offered { receive: ReceiveId, connection: ConnectionId, len: u64, opaque: u32 },
    /// A Transfer (or what a read asked for) is complete in its memory.
    /// `offered` is longer than `len` where the receiver took less.
    Received {
        receive: ReceiveId,
        connection: ConnectionId,
        memory: Area,
        len: u64,
        offered: u64,
        opaque: u32,
    },
    /// A Transfer ended early; the first `len` bytes are in place.
    ReceiveEnded {
        receive: ReceiveId,
        connection: ConnectionId,
        memory: Option<Area>,
        len: u64,
        why: Ended,
    },
    /// Memory that was posted is the user's again, unused.
    Unposted { connection: ConnectionId, memory: Area, why: Ended },
    /// The first `len` bytes are in place and final.
    ReceiveProgress { receive: ReceiveId, connection: ConnectionId, len: u64 },
    /// The other side wants to be sent at most `len` bytes:
    /// [`Endpoint::answer_read`](crate::Endpoint::answer_read) or
    /// [`Endpoint::refuse_read`](crate::Endpoint::refuse_read).
    ReadRequested { read: ReadId, connection: ConnectionId, len: u64, opaque: u32 },

    /// The other side wants a region: [`Endpoint::expose`](crate::Endpoint::expose)
    /// or [`Endpoint::refuse_region`](crate::Endpoint::refuse_region).
    RegionRequested {
        request: PeerRequestId,
        connection: ConnectionId,
        name: u32,
        len: u64,
        rights: Rights,
    },
    /// The other side made a region available.
    RegionAvailable { request: RequestId, connection: ConnectionId, region: RemoteRegion },
    /// It did not.
    RegionRefused { request: RequestId, connection: ConnectionId, why: Ended },
    /// A region is the user's again.
    Revoked { exposed: ExposedId, memory: Area },
    /// The other side wrote to a region, and wants this to be known.
    Written { exposed: ExposedId, connection: ConnectionId, at: u64, len: u64 },

    /// A Put has taken effect, once.
    PutDone { operation: OperationId, connection: ConnectionId },
    /// The bytes that were asked for are in place.
    GetDone { receive: ReceiveId, connection: ConnectionId, memory: Area },
    /// A FetchOp has taken effect, once; the word held `old` before.
    Fetched { operation: OperationId, connection: ConnectionId, old: u64 },
    /// A Put or FetchOp was refused and has had no effect, or its connection
    /// failed, and then it is not known whether it had.
    OperationEnded { operation: OperationId, connection: ConnectionId, why: Ended },
}
