//! Persistent memory: regions that the other side may write, read and modify
//! without asking each time.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `expose` | Request_Memory_Region and Memory_Region_Available, revocation |
//! | `ask` | what this side wants to be done: Put and FetchOp, and how they end |
//! | `stream` | their packets: which goes next, and over which link |
//! | `acks` | what was answered, what is repeated |
//! | `runs` | packets of one Put that leave together, or come together |
//! | `packets` | which goes next, and what it is; what was said of them |
//! | `flight` | which of them are under way, and which are lost |
//! | `answer` | what the other side wants to be done here, in order and exactly once |
//! | `order` | what of it was accepted, and what took effect |
//! | `ahead` | what came behind something that has not come |
//! | `get` | Get, at the side that has the region |

mod acks;
mod ahead;
mod answer;
mod ask;
mod expose;
mod flight;
mod get;
mod order;
mod packets;
mod runs;
mod stream;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use ahead::Accepted;
use flight::Flight;
use landfall_placement::{Area, Instant, WordFunction, WordWidth, assumed};
use landfall_tables::{IndexedHeap, Table};

use crate::config::Config;
use crate::error::Ended;
use crate::ids::{ExposedId, Rights};
use crate::seen::Seen;

pub(crate) use acks::{Applied, TimedOut};
pub(crate) use answer::OrderBroken;
pub(crate) use ask::Place;
pub use ask::PutOptions;

/// How many packets of a stream everybody takes in beyond those that took effect, and how
/// many answers to FetchOps are remembered. Part of the protocol.
pub(crate) const STREAM_WINDOW: u32 = 32;

/// The most that anybody takes in: tickets tell as many apart, and half of 16 bits do.
pub(crate) const MOST_AHEAD: u16 = 1 << 15;

/// Memory of this side that others use, and what was asked for of either side.
#[derive(Debug)]
pub(crate) struct Regions {
    pub(crate) exposed: Table<Exposed>,
    /// Regions that the other side asked for, waiting for the user.
    pub(crate) asks: Table<Ask>,
    /// Regions that this side asked for, and when it asks again.
    pub(crate) requests: Table<Request>,
    pub(crate) timers: IndexedHeap<Instant>,
}

impl Regions {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            exposed: Table::new(config.exposed),
            asks: Table::new(config.exposed),
            requests: Table::new(config.exposed),
            timers: IndexedHeap::new(),
        }
    }

    /// May Data of a region leave?
    #[inline]
    pub(crate) fn may_leave(&self, index: u32, generation: u32) -> bool {
        self.exposed.named(index, generation).is_some_and(|exposed| !exposed.is_revoked)
    }

    /// A driver holds one transmission of a region more.
    #[inline]
    pub(crate) fn hold(&mut self, index: u32) {
        if let Some(exposed) =
            assumed(self.exposed.get_mut(index), "what leaves is of a region that there is")
        {
            exposed.sending += 1;
        }
    }
}

/// The Puts and FetchOps of this side. What is under way lies with its connection:
/// [`Remote::outgoing`].
#[derive(Debug, Default)]
pub(crate) struct Streams {
    /// By connection: when it is asked what took effect.
    pub(crate) timers: IndexedHeap<Instant>,
}

/// The Puts and FetchOps of a connection, in both directions.
#[derive(Debug, Default)]
pub(crate) struct Remote {
    pub(crate) outgoing: OutgoingOperations,
    pub(crate) incoming: IncomingOperations,
    pub(crate) next_request: u32,
    /// Requests for regions from the other side that are over.
    pub(crate) requests_seen: Seen,
}

/// What we ask the other side to do.
#[derive(Debug, Default)]
pub(crate) struct OutgoingOperations {
    pub(crate) operations: VecDeque<Operation>,
    /// The serial number of the next operation, and its number among all.
    pub(crate) next: u32,
    pub(crate) next_number: u16,
    /// All packets below took effect.
    pub(crate) acked: u32,
    /// What was sent from there on.
    pub(crate) flight: Flight,
    pub(crate) retries: u8,
    /// When packets were taken for lost last because nothing new took effect.
    pub(crate) back_at: Instant,
    /// A bit for each path that it is in the queue of.
    pub(crate) queued: u64,
    /// How many packets beyond those that took effect the other side takes in; 0 where it
    /// takes in none but the next one.
    pub(crate) peer_window: u16,
    /// How many Puts of ours the network marked, as the other side said last.
    pub(crate) marked: u16,
    /// What was sent since the last packet that wants an answer.
    pub(crate) unasked: Unasked,
    /// What the other side was asked to answer.
    pub(crate) asked: AnswerRequest,
    /// What the last operations write, which do not lie in each other's way.
    pub(crate) apart: DisjointPuts,
}

/// What was sent since the last packet that wants an answer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unasked {
    pub(crate) packets: u32,
    pub(crate) bytes: u64,
}

/// What the other side was asked to answer, by a packet that says so or by a question.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AnswerRequest {
    /// One past the last packet that an answer was asked for.
    pub(crate) end: u32,
    /// Since when some of it has not been answered.
    pub(crate) at: Instant,
}

/// Puts that follow each other, write to one region, and share no byte.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DisjointPuts {
    handle: u32,
    /// They lie between these places.
    from: u64,
    to: u64,
    /// The serial number of the first.
    first: u32,
    is_put: bool,
}

impl DisjointPuts {
    /// Adds a Put; gives the first of those that it may overtake.
    fn add(&mut self, handle: u32, at: u64, len: u64, serial: u32) -> u32 {
        let end = at + len;
        let is_apart = self.is_put && self.handle == handle && (at >= self.to || end <= self.from);
        if is_apart {
            (self.from, self.to) = (self.from.min(at), self.to.max(end));
        } else {
            *self = Self { handle, from: at, to: end, first: serial, is_put: true };
        }
        self.first
    }
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Put { memory: Area, options: PutOptions },
    Fetch { width: WordWidth, function: WordFunction },
}

impl Work {
    /// Does nobody wait for its end?
    pub(crate) const fn may_be_answered_later(&self) -> bool {
        matches!(self, Self::Put { options: PutOptions { answered_later: true, .. }, .. })
    }
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
    /// Its packets may come to lie in place before those from this one on.
    pub(crate) overtakes: u32,
    /// Transmissions whose memory a driver holds.
    pub(crate) held: u32,
    pub(crate) old: Option<u64>,
    pub(crate) ended: Option<Ended>,
}

/// What became of a FetchOp that the other side asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replay {
    pub(crate) serial: u32,
    pub(crate) old: u64,
}

/// What the other side asks us to do.
#[derive(Debug, Default)]
pub(crate) struct IncomingOperations {
    /// All below were accepted.
    pub(crate) expected: u32,
    /// All below took effect.
    pub(crate) applied: u32,
    /// Those that were accepted beyond.
    pub(crate) ahead: Accepted,
    /// Those that the driver is at, in its order, and how many of them may fail their check.
    pub(crate) under_way: VecDeque<UnderWay>,
    pub(crate) doubtful: u32,
    /// The driver may be at some in another order than that of their numbers.
    pub(crate) is_mixed: bool,
    /// What the user is to be told once all before it took effect, by serial numbers.
    pub(crate) notices: VecDeque<Notice>,
    /// How many Puts came that the network had marked.
    pub(crate) marked: u16,
    /// The sender was told that something before what came is missing, when
    /// all below this had taken effect.
    pub(crate) gap_told: Option<u32>,
    /// The answers to FetchOps that may have to be given again.
    pub(crate) replays: Vec<Replay>,
}

/// A Put or FetchOp that the driver is at, or the packets of a run of Puts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnderWay {
    pub(crate) serial: u32,
    /// How many packets there are, of serial numbers that follow each other.
    pub(crate) count: u16,
    pub(crate) exposed: u32,
    pub(crate) wants_answer: bool,
    /// It may fail its check.
    pub(crate) is_doubtful: bool,
    pub(crate) is_fetch: bool,
    pub(crate) notice: Option<Notice>,
}

/// What the user is told of a Put.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notice {
    pub(crate) serial: u32,
    pub(crate) exposed: ExposedId,
    pub(crate) at: u64,
    pub(crate) len: u64,
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
