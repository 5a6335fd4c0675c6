//! Persistent memory: regions that the other side may write, read and modify
//! without asking each time.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `expose` | Request_Memory_Region and Memory_Region_Available, revocation |
//! | `ask` | what this side wants to be done: Put, FetchOp, and their stream |
//! | `answer` | what the other side wants to be done here, in order and exactly once |
//! | `get` | Get, on both sides |

mod answer;
mod ask;
mod expose;
mod get;

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use landfall_placement::{Area, Instant, WordFunction, WordWidth};

use crate::error::Ended;
use crate::ids::Rights;
use crate::seen::Seen;

/// How many Puts and FetchOps of a connection are under way at most, and how
/// many answers to FetchOps are remembered. Part of the protocol.
pub(crate) const STREAM_WINDOW: u32 = 32;

/// The Puts and FetchOps of a connection, in both directions.
#[derive(Debug, Default)]
pub(crate) struct Remote {
    pub(crate) outgoing: Asked,
    pub(crate) incoming: Answered,
    pub(crate) next_request: u32,
    /// Requests for regions from the other side that are over.
    pub(crate) requests_seen: Seen,
}

/// What we ask the other side to do.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub(crate) operations: VecDeque<Operation>,
    /// The serial number of the next operation, and its number among all.
    pub(crate) next: u32,
    pub(crate) next_number: u16,
    /// The next packet to be sent.
    pub(crate) sent: u32,
    /// All packets below took effect.
    pub(crate) acked: u32,
    pub(crate) retries: u8,
    /// When packets that were sent began to be sent again last.
    pub(crate) back_at: Instant,
    /// It is in the queue of a path.
    pub(crate) is_queued: bool,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Put { memory: Area, wants_notice: bool },
    Fetch { width: WordWidth, function: WordFunction },
}

/// One Put, in one packet or several, or one FetchOp.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) work: Work,
    pub(crate) handle: u32,
    pub(crate) at: u64,
    /// Which of the connection's operations it is: what its tickets say.
    pub(crate) number: u16,
    /// Its first serial number, and how many it has: one for each packet.
    pub(crate) first: u32,
    pub(crate) count: u32,
    /// The payload of each packet but the last.
    pub(crate) stu: u16,
    /// Transmissions whose memory a driver holds.
    pub(crate) held: u32,
    pub(crate) old: Option<u64>,
    pub(crate) ended: Option<Ended>,
}

/// What became of a FetchOp that the other side asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Replay {
    pub(crate) serial: u32,
    pub(crate) old: Option<u64>,
    pub(crate) is_used: bool,
}

/// What the other side asks us to do.
#[derive(Debug, Default)]
pub(crate) struct Answered {
    /// The serial number to be placed next.
    pub(crate) expected: u32,
    /// All below took effect.
    pub(crate) applied: u32,
    /// Of those between, what each does.
    pub(crate) under_way: VecDeque<UnderWay>,
    /// What is under way may fail its check: nothing is placed behind it.
    pub(crate) is_alone: bool,
    /// The sender was told that something before what came is missing, when
    /// all below this had taken effect.
    pub(crate) gap_told: Option<u32>,
    pub(crate) replays: Option<Box<[Replay; STREAM_WINDOW as usize]>>,
}

/// A Put or FetchOp that the driver is at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnderWay {
    pub(crate) serial: u32,
    pub(crate) exposed: u32,
    pub(crate) at: u64,
    pub(crate) len: u32,
    pub(crate) wants_answer: bool,
    pub(crate) wants_notice: bool,
}

/// A region that the other side may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exposed {
    /// Nothing, once the connection is over.
    pub(crate) connection: u32,
    pub(crate) memory: Area,
    pub(crate) rights: Rights,
    /// The serial number of the request that it answers.
    pub(crate) request: u32,
    /// What the other side calls that request.
    pub(crate) peer_id: u16,
    /// Payloads and words under way into it.
    pub(crate) writing: u32,
    /// Transmissions out of it whose memory a driver holds. Their tickets are all alike: one
    /// that comes back twice must not count for what is written.
    pub(crate) sending: u32,
    pub(crate) is_revoked: bool,
}

/// A region that we asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) connection: u32,
    pub(crate) serial: u32,
    pub(crate) name: u32,
    pub(crate) len: u64,
    pub(crate) rights: Rights,
    pub(crate) retries: u8,
}

/// A region that the other side asked for, waiting for the user.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) connection: u32,
    pub(crate) serial: u32,
    pub(crate) peer_id: u16,
    pub(crate) rights: Rights,
}
