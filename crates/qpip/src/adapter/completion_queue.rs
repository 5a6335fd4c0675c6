//! Completion queues: what is done, in the order in which it was.
//!
//! A queue never overflows: each work request that is posted reserves the place
//! of its completion, and is refused when there is none.

use alloc::collections::VecDeque;
use core::net::SocketAddr;

use landfall_tables::Table;

use super::config::Config;
use super::error::{Error, Object};
use crate::tcp::tcb::CloseReason;
use crate::work::{Completion, CompletionQueueId, ListenerId, QueuePairId};

/// What a queue that was armed tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arm {
    /// The next completion.
    Next,
    /// The next one that is [solicited](Completion::is_solicited): the end of a
    /// message that came, or anything that went wrong.
    Solicited,
}

#[derive(Debug)]
struct CompletionQueue {
    completions: VecDeque<Completion>,
    capacity: u32,
    /// Places that requests under way will need.
    reserved: u32,
    /// How many of the completions are solicited.
    solicited: u32,
    armed: Option<Arm>,
    /// The user was told, and has not heard it yet: once is enough.
    is_told: bool,
    /// Queue pairs that complete here, counted for each of their queues.
    users: u32,
}

impl CompletionQueue {
    fn has_room(&self, places: u32) -> bool {
        let used = self.completions.len() as u64 + u64::from(self.reserved);
        used + u64::from(places) <= u64::from(self.capacity)
    }
}

/// All completion queues of an adapter.
#[derive(Debug)]
pub(super) struct CompletionQueues {
    table: Table<CompletionQueue>,
    most: u32,
}

impl CompletionQueues {
    pub(super) const fn new(config: &Config) -> Self {
        Self { table: Table::new(config.completion_queues), most: config.completion_queue_capacity }
    }

    pub(super) fn create(&mut self, capacity: u32) -> Result<CompletionQueueId, Error> {
        if capacity == 0 || capacity > self.most {
            return Err(Error::BadDepth);
        }
        let name = self.table.insert(CompletionQueue {
            completions: VecDeque::new(),
            capacity,
            reserved: 0,
            solicited: 0,
            armed: None,
            is_told: false,
            users: 0,
        });
        let (index, generation) = name.ok_or(Error::Full(Object::CompletionQueue))?;
        Ok(CompletionQueueId::new(index, generation))
    }

    /// Ends a queue, and with it what nobody polled. No queue pair may use it.
    pub(super) fn destroy(&mut self, id: CompletionQueueId) -> Result<(), Error> {
        match self.table.named(id.index, id.generation) {
            None => Err(Error::Unknown(Object::CompletionQueue)),
            Some(queue) if queue.users > 0 => Err(Error::Busy(Object::CompletionQueue)),
            Some(_) => {
                self.table.remove(id.index);
                Ok(())
            }
        }
    }

    fn named_mut(&mut self, id: CompletionQueueId) -> Option<&mut CompletionQueue> {
        self.table.named_mut(id.index, id.generation)
    }

    pub(super) fn check(&self, id: CompletionQueueId) -> Result<(), Error> {
        let known = self.table.named(id.index, id.generation);
        known.map(|_| ()).ok_or(Error::Unknown(Object::CompletionQueue))
    }

    /// A queue of a queue pair completes here. It must exist.
    pub(super) fn join(&mut self, id: CompletionQueueId) {
        if let Some(queue) = self.named_mut(id) {
            queue.users += 1;
        }
    }

    /// It is gone.
    pub(super) fn leave(&mut self, id: CompletionQueueId) {
        if let Some(queue) = self.named_mut(id) {
            queue.users = queue.users.saturating_sub(1);
        }
    }

    pub(super) fn has_room(&self, id: CompletionQueueId) -> bool {
        self.table.named(id.index, id.generation).is_some_and(|queue| queue.has_room(1))
    }

    /// Reserves the place of a completion; says whether there is one.
    #[inline]
    pub(super) fn reserve(&mut self, id: CompletionQueueId) -> bool {
        match self.named_mut(id) {
            Some(queue) if queue.has_room(1) => {
                queue.reserved += 1;
                true
            }
            _ => false,
        }
    }

    /// Gives up a place that was reserved.
    pub(super) fn give_up(&mut self, id: CompletionQueueId) {
        if let Some(queue) = self.named_mut(id) {
            queue.reserved = queue.reserved.saturating_sub(1);
        }
    }

    /// Enters a completion into the place that was reserved for it. Says
    /// whether somebody waits to be told.
    #[inline]
    pub(super) fn complete(&mut self, id: CompletionQueueId, completion: Completion) -> bool {
        let Some(queue) = self.named_mut(id) else { return false };
        queue.reserved = queue.reserved.saturating_sub(1);
        let is_solicited = completion.is_solicited();
        queue.solicited += u32::from(is_solicited);
        queue.completions.push_back(completion);
        let wakes = match queue.armed {
            None => false,
            Some(Arm::Next) => true,
            Some(Arm::Solicited) => is_solicited,
        };
        if wakes {
            queue.armed = None;
        }
        let tells = wakes && !queue.is_told;
        queue.is_told |= tells;
        tells
    }

    /// The user has heard that there is something.
    pub(super) fn was_heard(&mut self, id: CompletionQueueId) {
        if let Some(queue) = self.named_mut(id) {
            queue.is_told = false;
        }
    }

    /// Takes the next completion. A part of a request that goes on keeps the
    /// place of the next part reserved.
    #[inline]
    pub(super) fn poll(&mut self, id: CompletionQueueId) -> Option<Completion> {
        let queue = self.named_mut(id)?;
        let completion = queue.completions.pop_front()?;
        queue.solicited -= u32::from(completion.is_solicited());
        if !completion.ends_request {
            queue.reserved += 1;
        }
        Some(completion)
    }

    /// Asks to be told once. `false` where what was asked for is there already:
    /// then there is nothing to wait for, and nobody will be told.
    pub(super) fn arm(&mut self, id: CompletionQueueId, arm: Arm) -> bool {
        let Some(queue) = self.named_mut(id) else { return false };
        let is_there = match arm {
            Arm::Next => !queue.completions.is_empty(),
            Arm::Solicited => queue.solicited > 0,
        };
        queue.armed = if is_there { None } else { Some(arm) };
        !is_there
    }

    /// How many completions wait to be polled.
    pub(super) fn len(&self, id: CompletionQueueId) -> usize {
        self.table.named(id.index, id.generation).map_or(0, |queue| queue.completions.len())
    }
}

// What an adapter tells its user, beside completions, and what it counts.

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

landfall_placement::counters! {
    /// Counters of an [`Adapter`](super::Adapter); they only grow. What was refused
    /// on arrival is in its refusals.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct Stats {
        /// Segments of TCP that came for a connection.
        pub segments_received: u64,
        /// Segments of TCP that came as predicted, whatever became of them.
        pub segments_predicted: u64,
        /// Segments of TCP that were given to drivers: of those that a device cuts,
        /// one for all.
        pub segments_sent: u64,
        /// Datagrams that came for a queue pair.
        pub datagrams_received: u64,
        /// Datagrams for which a request was predicted, whatever became of them.
        pub datagrams_predicted: u64,
        /// Datagrams that left.
        pub datagrams_sent: u64,
        /// Datagrams for which no request was posted.
        pub datagrams_unexpected: u64,
        /// Datagrams that were longer than their request.
        pub datagrams_too_long: u64,
        /// Packets that were put together from fragments.
        pub reassembled: u64,
        /// Packets that left in fragments.
        pub fragmented: u64,
        /// Packets without a queue pair (ARP, neighbour discovery, ICMP, resets)
        /// that were queued.
        pub control_queued: u64,
        /// Those that found no room, or too many of which were asked for.
        pub control_dropped: u64,
        /// Echoes that were answered.
        pub echoes: u64,
        /// Resets that were sent for segments that nobody waited for.
        pub resets_sent: u64,
        /// Connections that came in and were mated with a queue pair.
        pub accepted: u64,
        /// Openings that were not proved, and forgotten to make room for some that were.
        pub half_open_dropped: u64,
        /// Openings that were answered without keeping anything, for as many as may were kept
        /// (SYN cookies).
        pub cookies_sent: u64,
        /// Connections that were proved by such an answer.
        pub cookies_accepted: u64,
        /// Connections that were ready, and for which no queue pair was offered.
        pub unmated: u64,
        /// Errors of ICMP that were believed.
        pub icmp_believed: u64,
        /// Errors of ICMP that named nothing of ours.
        pub icmp_ignored: u64,
    }
}

/// How a connection is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionStats {
    /// How far it is.
    pub state: crate::ConnectionState,
    /// The smoothed round trip, once one was measured.
    pub round_trip: Option<landfall_placement::Duration>,
    /// How many bytes may be under way at the moment.
    pub congestion_window: u64,
    /// Segments that were sent again.
    pub segments_again: u64,
    /// How often nothing was acknowledged in time.
    pub timeouts: u64,
    /// Bytes inside the offered window for which no memory was left: a message
    /// that ended early gave it back. Their sender repeats them.
    pub bytes_without_memory: u64,
    /// Bytes that were placed behind a hole, and were forgotten when the hole
    /// turned out to end a message. Their sender repeats them.
    pub bytes_forgotten: u64,
}
