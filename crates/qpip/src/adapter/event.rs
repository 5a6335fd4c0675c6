//! [`Event`]: what the user is told beside completions; [`Events`]: those that wait;
//! [`Stats`]: what is counted.

use alloc::collections::VecDeque;
use core::net::{IpAddr, SocketAddr};

use landfall_placement::PathId;

use crate::tcp::ecn::EcnFeedback;
use crate::tcp::tcb::CloseReason;
use crate::wire::Mac;
use crate::wire::icmp::Trouble;
use crate::work::{CompletionQueueId, ListenerId, QueuePairId};

/// Events that wait for the user.
#[derive(Debug)]
pub(super) struct Events {
    queue: VecDeque<Event>,
    most: usize,
    /// The number of the first one: each has one, and they wrap.
    taken: u32,
}

impl Events {
    pub(super) const fn new(most: usize) -> Self {
        Self { queue: VecDeque::new(), most, taken: 0 }
    }

    /// The limit is reached: no queue pair is created and no connection is taken in.
    /// Those that exist go on telling what happens to them.
    pub(super) fn is_full(&self) -> bool {
        self.queue.len() >= self.most
    }

    pub(super) fn push(&mut self, event: Event) {
        self.queue.push_back(event);
    }

    /// A send of this queue pair that was not signaled is done. `told` is the number of the
    /// event that said so last: as long as it waits, it says so of this one, too.
    pub(super) fn count_unsignaled(&mut self, id: QueuePairId, told: &mut u32) {
        let place = told.wrapping_sub(self.taken) as usize;
        match self.queue.get_mut(place) {
            Some(Event::UnsignaledDone { queue_pair, count }) if *queue_pair == id => *count += 1,
            _ => {
                *told = self.taken.wrapping_add(self.queue.len() as u32);
                self.push(Event::UnsignaledDone { queue_pair: id, count: 1 });
            }
        }
    }

    pub(super) fn pop(&mut self) -> Option<Event> {
        let event = self.queue.pop_front()?;
        self.taken = self.taken.wrapping_add(1);
        Some(event)
    }
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named after what they hold")]
pub enum Event {
    /// A connection that was asked for is open.
    Connected { queue_pair: QueuePairId, local: SocketAddr, remote: SocketAddr },
    /// A connection came in and was assigned to a queue pair that waited.
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
    /// This many sends that were not signaled are done, and there is as much room in the
    /// queue: the oldest of which no completion tells. (So who wants to know which datagrams
    /// they are polls completions first: one that could not be sent has one.) One such event
    /// of a queue pair waits at a time.
    UnsignaledDone { queue_pair: QueuePairId, count: u32 },
    /// The network says that a datagram did not arrive, which has left and is done: nobody
    /// listens there, or no way leads there. It is said once for what a queue pair has sent to one
    /// destination, until it sends there again. Anybody can forge that who knows or guesses both ends.
    Undelivered { queue_pair: QueuePairId, remote: SocketAddr, trouble: Trouble },
    /// An interface has an address from now on: it was given, or nobody else had it.
    AddressReady { path: PathId, address: IpAddr },
    /// An interface has an address no longer: its time is over, or somebody else has it.
    /// Connections from it are closed.
    AddressLost { path: PathId, address: IpAddr },
    /// Another station says that it has an address of ours, or one that we asked for.
    AddressConflict { path: PathId, address: IpAddr, station: Mac },
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
        /// Frames that an interface of a VLAN did not accept, for they had not its tag.
        pub frames_of_other_vlans: u64,
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
        /// Connections that came in and were assigned to a queue pair.
        pub accepted: u64,
        /// Those of them whose opening brought data and a cookie (TCP Fast Open), also where
        /// that was damaged and the queue pair waits again.
        pub fast_opened: u64,
        /// Openings that were not proved, and forgotten to make room for some that were.
        pub half_open_dropped: u64,
        /// Openings that were answered without keeping anything, for as many as may were kept
        /// (SYN cookies).
        pub cookies_sent: u64,
        /// Connections that were proved by such an answer.
        pub cookies_accepted: u64,
        /// Connections that were ready, and for which no queue pair was offered.
        pub unmated: u64,
        /// Times that shorter packets were sent to a peer, for long ones got lost again and again
        /// and no router said why.
        pub black_holes: u64,
        /// Segments that were longer than their path was known to carry, to find out whether
        /// longer ones arrive.
        pub mtu_probes: u64,
        /// Those of them that were lost alone.
        pub mtu_probes_lost: u64,
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
    /// How marks are told of.
    pub ecn: EcnFeedback,
    /// The smoothed round trip, once one was measured.
    pub round_trip: Option<landfall_placement::Duration>,
    /// How many bytes may be under way at the moment.
    pub congestion_window: u64,
    /// Segments that were sent again.
    pub segments_again: u64,
    /// How often nothing was acknowledged in time.
    pub timeouts: u64,
    /// How often the window was reduced, and then was what it had been: nothing had been
    /// lost, it was late.
    pub reductions_undone: u64,
    /// Bytes inside the offered window for which no memory was left: a message
    /// that ended early gave it back. Their sender repeats them.
    pub bytes_without_memory: u64,
    /// Bytes that were placed behind a hole, and were forgotten when the hole
    /// turned out to end a message. Their sender repeats them.
    pub bytes_forgotten: u64,
}
