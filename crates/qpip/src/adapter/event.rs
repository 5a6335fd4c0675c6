//! What an adapter tells its user, beside completions.

use core::net::SocketAddr;

use crate::ids::{CompletionQueueId, ListenerId, QueuePairId};
use crate::tcp::tcb::CloseReason;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named after what they hold")]
pub enum Event {
    /// A connection that was asked for is open.
    Connected { queue_pair: QueuePairId, local: SocketAddr, remote: SocketAddr },
    /// A connection came in and was mated with a queue pair that waited.
    Accepted {
        listener: ListenerId,
        queue_pair: QueuePairId,
        local: SocketAddr,
        remote: SocketAddr,
    },
    /// The other side sends no more; what it sent before was completed.
    PeerFinished { queue_pair: QueuePairId },
    /// The connection is over; what was posted and is not done was flushed.
    Closed { queue_pair: QueuePairId, reason: CloseReason },
    /// A queue that was armed has something to be polled. It has to be armed
    /// again to be told of more.
    CompletionsReady { queue: CompletionQueueId },
}
