//! What was asked of the engine: as data, so that it can wait for room, and be
//! cancelled in whatever state it is.

use landfall_placement::{Area, Instant, WordFunction, WordWidth};
use stp_core::{
    ConnectionId, Endpoint, Error, OperationId, ReadId, ReceiveId, RemoteRegion, RequestId, Rights,
    SendId,
};

/// What was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request {
    /// Send a Transfer.
    Send {
        memory: Area,
        opaque: u32,
    },
    /// Send what the other side wants to read.
    AnswerRead {
        read: ReadId,
        memory: Area,
        opaque: u32,
    },
    /// Take the next Transfer that is offered: it waits here, not in the engine.
    Receive {
        memory: Area,
        takes_part: bool,
    },
    /// Take this one.
    Accept {
        receive: ReceiveId,
        memory: Area,
        takes_part: bool,
    },
    /// Ask the other side to send.
    Read {
        memory: Area,
        opaque: u32,
    },
    Get {
        region: RemoteRegion,
        at: u64,
        memory: Area,
    },
    Put {
        region: RemoteRegion,
        at: u64,
        memory: Area,
        wants_notice: bool,
    },
    Fetch {
        region: RemoteRegion,
        at: u64,
        width: WordWidth,
        function: WordFunction,
    },
    Region {
        name: u32,
        len: u64,
        rights: Rights,
    },
}

/// What the engine calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Begun {
    Send(SendId),
    Receive(ReceiveId),
    Operation(OperationId),
    Region(RequestId),
}

impl Request {
    pub(super) fn begin(
        &self,
        engine: &mut Endpoint,
        now: Instant,
        id: ConnectionId,
    ) -> Result<Begun, Error> {
        match *self {
            Self::Send { memory, opaque } => engine.send(now, id, memory, opaque).map(Begun::Send),
            Self::AnswerRead { read, memory, opaque } => {
                engine.answer_read(now, read, memory, opaque).map(Begun::Send)
            }
            Self::Accept { receive, memory, takes_part } => {
                engine.accept(now, receive, memory, takes_part).map(|()| Begun::Receive(receive))
            }
            Self::Read { memory, opaque } => {
                engine.read(now, id, memory, opaque).map(Begun::Receive)
            }
            Self::Get { region, at, memory } => {
                engine.get(now, id, &region, at, memory).map(Begun::Receive)
            }
            Self::Put { region, at, memory, wants_notice } => {
                engine.put(now, id, &region, at, memory, wants_notice).map(Begun::Operation)
            }
            Self::Fetch { region, at, width, function } => {
                engine.fetch_op(now, id, &region, at, width, function).map(Begun::Operation)
            }
            Self::Region { name, len, rights } => {
                engine.request_region(now, id, name, len, rights).map(Begun::Region)
            }
            // It becomes an `Accept` when something is offered.
            Self::Receive { .. } => Err(Error::Busy),
        }
    }
}

impl Begun {
    /// Nobody waits for it any more. Its memory is free when the engine's last
    /// event about it has come. A Put or FetchOp cannot be taken back.
    pub(super) fn cancel(self, engine: &mut Endpoint, now: Instant) {
        // What is over already needs no end.
        let _ = match self {
            Self::Send(id) => engine.cancel_send(now, id),
            Self::Receive(id) => engine.cancel_receive(now, id),
            Self::Operation(_) | Self::Region(_) => Ok(()),
        };
    }
}
