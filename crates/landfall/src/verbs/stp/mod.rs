//! Queue pairs over STP: messages by Transfers, and memory of the other side by Puts, Gets and
//! FetchOps.
//!
//! A queue pair is made of a connection, at both ends, and has it for itself: whatever else
//! is sent or read on that connection is taken for its messages.
//!
//! ```
//! use std::time::Duration;
//! use landfall::stp::{Memory, RemoteRights, Transport, blocking::Endpoint};
//! use landfall::verbs::stp::{CompletionQueue, MemoryKey, QueuePair, QueuePairOptions};
//! use landfall::verbs::{
//!     CompletionQueue as _, QueuePair as _, RdmaQueuePair, RdmaRequest, ReceiveRequest,
//! };
//!
//! let soon = Duration::from_secs(10);
//! let (server, client) = (open()?, open()?);
//! # fn open() -> Result<Endpoint, Box<dyn std::error::Error>> {
//! #     Ok(Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?)
//! # }
//! let listener = server.listen(7)?;
//! let asks = client.connect(server.local().unwrap(), 7)?;
//! let serves = listener.accept()?;
//!
//! let options = QueuePairOptions::default();
//! let served = CompletionQueue::new(server.as_async(), 64)?;
//! let mut done = CompletionQueue::new(client.as_async(), 64)?;
//! let mut there = QueuePair::new(serves.as_async(), &served, &served, &options)?;
//! let mut here = QueuePair::new(asks.as_async(), &done, &done, &options)?;
//!
//! // The server shares memory, and tells its key by a message.
//! let shared = server.register(Memory::zeroed(4096))?;
//! let key = there.share(&shared.whole(), RemoteRights::ALL);
//! there.post_inline(1, &key.to_bytes(), None)?;
//!
//! let room = client.register(Memory::zeroed(4096))?;
//! here.post_receive(&ReceiveRequest { id: 2, into: &[room.part(0..64)?] })?;
//! let came = done.wait_for(soon)?.expect("a message in time");
//! let mut key = [0; MemoryKey::LEN];
//! assert_eq!((came.id, came.len as usize), (2, key.len()));
//! room.copy_out(0, &mut key)?;
//! let key = MemoryKey::from_bytes(&key).expect("a key");
//!
//! // What is written there is in place when it completes. The server's program takes no part.
//! room.copy_in(64, b"in its place")?;
//! let local = [room.part(64..76)?];
//! let write = RdmaRequest { id: 3, local: &local, key, at: 100, is_signaled: true, immediate: None };
//! here.post_write(&write)?;
//! let written = done.wait_for(soon)?.expect("it is done in time");
//! assert!(written.id == 3 && written.status.is_success());
//! let mut bytes = [0; 12];
//! shared.copy_out(100, &mut bytes)?;
//! assert_eq!(&bytes, b"in its place");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | | |
//! | --- | --- |
//! | a message | lands in the room that was posted for it, without a copy, where that is one part; several parts are filled from a copy, and a message of several parts is joined by one |
//! | immediate data | always; a second Transfer of four bytes carries it |
//! | order | requests of a queue pair are done in their order. Messages are under way at the same time, and so are requests to memory; between the two kinds lies a round trip |
//! | room | a message that finds none waits for it, and is not refused |
//! | memory of the other side | is shared with one queue pair, by a key. The first request to a key asks for it, in a round trip of its own |
//! | failure | what fails ends its queue pair, as in the papers: what was posted behind it is flushed, and the connection is aborted. So does a message that is longer than the room whose turn it is ([`Status::TooLong`]) |
//! | progress | by the endpoint, whatever its program does meanwhile: posted room is filled, and shared memory is given out, without it |

mod carrier;
mod keys;
mod receives;
mod sends;

use std::future::poll_fn;
use std::time::Duration;

pub use carrier::Carrier;
pub use keys::{KeyTable, MemoryKey};
use stp_core::Ended;

use super::software::{self, Queue};
use super::{CloseReason, Completion, Status};
use crate::stp::{Endpoint, EngineError, Error, Reason};

pub use super::software::QueuePairOptions;

/// Two queues of work requests over one connection of STP.
pub type QueuePair = software::QueuePair<Carrier>;

/// What became of the requests of as many queue pairs as complete here.
pub type CompletionQueue = software::CompletionQueue<Endpoint>;

/// Room for messages that come to any of many queue pairs over STP.
pub type SharedReceiveQueue = software::SharedReceiveQueue<Carrier>;

/// Of what comes with a Transfer: the next one is the immediate data of this one.
const HAS_WORD: u32 = 1 << 31;
/// Transfers have this many numbers.
const NUMBERS: u32 = HAS_WORD;

/// What became of a request that failed so.
fn status_of(error: &Error) -> Status {
    match error {
        Error::Ended { why, .. } | Error::Closed { why: Some(why) } => status_of_end(*why),
        Error::ForeignMemory
        | Error::TakenBack
        | Error::OutOfBounds { .. }
        | Error::Arena(_)
        | Error::Access(_)
        | Error::NotLent(_) => Status::MemoryGone,
        Error::Refused(
            EngineError::Forbidden | EngineError::OutOfBounds | EngineError::Unaligned,
        ) => Status::RemoteAccess,
        _ => Status::Flushed,
    }
}

fn status_of_end(why: Ended) -> Status {
    match why {
        Ended::There(Reason::TooLong) | Ended::DoesNotFit => Status::TooLong,
        Ended::There(
            Reason::Refused
            | Reason::NoRegion
            | Reason::OutOfBounds
            | Reason::Forbidden
            | Reason::Unaligned
            | Reason::MemoryFailed,
        ) => Status::RemoteAccess,
        Ended::There(_) => Status::Reset,
        Ended::Silent => Status::TimedOut,
        Ended::Unreachable => Status::Unreachable,
        Ended::MemoryFailed => Status::MemoryGone,
        Ended::Here | Ended::ConnectionGone => Status::Flushed,
    }
}

/// What the end of a connection for this reason is called.
fn reason_of(why: &Error) -> CloseReason {
    match status_of(why) {
        Status::Success | Status::Flushed => CloseReason::Finished,
        Status::TimedOut => CloseReason::TimedOut,
        Status::Unreachable => CloseReason::Unreachable,
        Status::Reset | Status::RemoteAccess | Status::TooLong => CloseReason::Reset,
        Status::MemoryGone => CloseReason::Aborted,
    }
}

impl CompletionQueue {
    /// For queue pairs over connections of this endpoint, with this many places: a request
    /// that could not complete here is refused when it is posted.
    ///
    /// # Errors
    /// [`Error::NoDescriptor`].
    pub fn new(endpoint: &Endpoint, capacity: u32) -> Result<Self, Error> {
        Self::with_node(endpoint.clone(), capacity).map_err(Error::NoDescriptor)
    }
}

impl software::Node for Endpoint {
    type Error = Error;

    fn wait(&self, queue: &Queue, limit: Duration) -> Option<Completion> {
        let runtime = self.handle();
        let until = runtime.clock.now() + limit;
        runtime.wait_until(poll_fn(|cx| queue.poll_next(cx)), until)
    }
}
