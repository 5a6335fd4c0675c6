//! [`QueuePair`]: what it belongs to, its queues, and what it is connected to.

use core::net::IpAddr;

use landfall_placement::InternetSum;

use super::demux::Ends;
use super::routes::Route;
use super::udp::Datagrams;
use crate::queue::{Done, Queues};
use crate::tcp::{Mapping, Tcb, TcpConfig};
use crate::wire::{checksum, protocol};
use crate::work::{
    CompletionQueueId, DomainId, ListenerId, Operation, QueuePairId, SharedReceiveQueueId,
};

/// What a queue pair speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// A TCP connection, with messages that lie so in its segments.
    Tcp(Mapping),
    /// UDP datagrams, each to an address of its own.
    Udp,
}

/// What a queue pair is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePairSetup {
    /// Its memory is that of this domain.
    pub domain: DomainId,
    /// Where sends complete.
    pub send_completions: CompletionQueueId,
    /// Where receives complete; may be the same.
    pub receive_completions: CompletionQueueId,
    /// What it speaks.
    pub service: Service,
    /// How many sends can be posted at a time.
    pub send_depth: u32,
    /// How many receives.
    pub receive_depth: u32,
    /// Room for what comes is taken from this queue, and none is posted to the queue
    /// pair's own. What it takes completes where that queue says.
    pub shared_receives: Option<SharedReceiveQueueId>,
}

/// A queue pair.
#[derive(Debug)]
pub(super) struct QueuePair {
    pub(super) id: QueuePairId,
    pub(super) domain: DomainId,
    pub(super) send_completions: CompletionQueueId,
    pub(super) receive_completions: CompletionQueueId,
    pub(super) role: Role,
    /// The event that told last of sends that are done without a completion.
    pub(super) unsignaled_told: u32,
    /// It is in the ready list of its link.
    pub(super) is_ready: bool,
    /// It waits for a neighbour of its link.
    pub(super) is_parked: bool,
    /// The user has destroyed it; it goes when drivers hold its memory no longer.
    pub(super) is_destroyed: bool,
    /// A part of a request is completed, and nobody has polled it yet.
    pub(super) is_part_out: bool,
}

/// What a queue pair does.
#[derive(Debug)]
pub(super) enum Role {
    Stream(Stream),
    Datagrams(alloc::boxed::Box<Datagrams>),
}

/// A queue pair for TCP.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) mapping: Mapping,
    /// Something came for it, and what that made of it was not taken out.
    pub(super) is_unsettled: bool,
    pub(super) queues: Queues,
    pub(super) phase: Phase,
    /// What was chosen for this connection alone.
    pub(super) config: Option<alloc::boxed::Box<TcpConfig>>,
}

/// How far its connection is.
#[derive(Debug)]
pub(super) enum Phase {
    /// It has none.
    Idle,
    /// It waits for one that comes in.
    Offered(ListenerId),
    /// It has, or had, this one.
    Open(alloc::boxed::Box<Connection>),
}

/// A connection, and the way to its other end.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) tcb: Tcb,
    /// The link, by its place among all: few bits, for idle connections are many.
    link: u32,
    /// The neighbour to send to.
    pub(super) next_hop: IpAddr,
    /// The sum over the addresses and the protocol.
    pub(super) addresses: InternetSum,
    /// The label of its packets (RFC 6437): 20 bits, never zero.
    pub(super) label: u32,
    /// The listener that it came to.
    pub(super) listener: Option<ListenerId>,
}

impl Connection {
    /// A connection that goes this way.
    pub(super) fn new(tcb: Tcb, route: &Route, label: u32, listener: Option<ListenerId>) -> Self {
        let Ends { local, remote } = tcb.ends();
        Self {
            tcb,
            link: route.link as u32,
            next_hop: route.next_hop,
            addresses: checksum::pseudo_header(local.ip(), remote.ip(), protocol::TCP),
            label,
            listener,
        }
    }

    /// The link, by its place among all.
    #[inline]
    pub(super) const fn link(&self) -> usize {
        self.link as usize
    }
}

impl QueuePair {
    pub(super) fn new(id: QueuePairId, setup: &QueuePairSetup) -> Self {
        let (send, receive) = (setup.send_depth, setup.receive_depth);
        let role = match setup.service {
            Service::Tcp(mapping) => Role::Stream(Stream {
                mapping,
                is_unsettled: false,
                queues: Queues::new(send, receive),
                phase: Phase::Idle,
                config: None,
            }),
            Service::Udp => {
                let datagrams = Datagrams::new(send, receive, setup.shared_receives);
                Role::Datagrams(alloc::boxed::Box::new(datagrams))
            }
        };
        Self {
            id,
            domain: setup.domain,
            send_completions: setup.send_completions,
            receive_completions: setup.receive_completions,
            role,
            unsignaled_told: 0,
            is_ready: false,
            is_parked: false,
            is_destroyed: false,
            is_part_out: false,
        }
    }

    /// Where it takes room for what comes from, if not from its own queue.
    #[inline]
    pub(super) fn shared_receives(&self) -> Option<SharedReceiveQueueId> {
        match &self.role {
            Role::Stream(stream) => stream.queues.receive.shared(),
            Role::Datagrams(datagrams) => datagrams.inbound.shared,
        }
    }

    /// Where requests of this queue complete.
    pub(super) const fn completions(&self, operation: Operation) -> CompletionQueueId {
        match operation {
            Operation::Send => self.send_completions,
            Operation::Receive => self.receive_completions,
        }
    }

    /// Are parts of requests completed, before they are full?
    pub(super) const fn completes_parts(&self) -> bool {
        matches!(&self.role, Role::Stream(Stream { mapping: Mapping::Stream, .. }))
    }

    #[inline]
    pub(super) fn poll_done(&mut self) -> Option<Done> {
        match &mut self.role {
            Role::Stream(stream) => stream.queues.poll_done(),
            Role::Datagrams(datagrams) => datagrams.poll_done(),
        }
    }

    /// Is nothing posted any more, and nothing of it under way?
    pub(super) fn is_empty(&self) -> bool {
        match &self.role {
            Role::Stream(stream) => {
                stream.queues.send.is_empty() && stream.queues.receive.len() == 0
            }
            Role::Datagrams(datagrams) => datagrams.is_empty(),
        }
    }

    #[inline]
    pub(super) fn connection(&self) -> Option<&Connection> {
        match &self.role {
            Role::Stream(Stream { phase: Phase::Open(connection), .. }) => Some(connection),
            _ => None,
        }
    }

    /// What is chosen about its connection.
    #[inline]
    pub(super) fn tcp_config<'a>(&'a self, usual: &'a TcpConfig) -> &'a TcpConfig {
        match &self.role {
            Role::Stream(stream) => stream.config.as_deref().unwrap_or(usual),
            Role::Datagrams(_) => usual,
        }
    }

    /// The connection, the queues that it works on, and what is chosen about it.
    #[inline]
    pub(super) fn configured_mut<'pair: 'usual, 'usual>(
        &'pair mut self,
        usual: &'usual TcpConfig,
    ) -> Option<(&'pair mut Connection, &'pair mut Queues, &'usual TcpConfig)> {
        match &mut self.role {
            Role::Stream(Stream { phase: Phase::Open(connection), queues, config, .. }) => {
                Some((connection, queues, config.as_deref().unwrap_or(usual)))
            }
            _ => None,
        }
    }

    /// The connection and the queues that it works on.
    #[inline]
    pub(super) fn connection_mut(&mut self) -> Option<(&mut Connection, &mut Queues)> {
        match &mut self.role {
            Role::Stream(Stream { phase: Phase::Open(connection), queues, .. }) => {
                Some((connection, queues))
            }
            _ => None,
        }
    }

    pub(super) fn datagrams_mut(&mut self) -> Option<&mut Datagrams> {
        match &mut self.role {
            Role::Datagrams(datagrams) => Some(datagrams),
            Role::Stream(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an idle connection takes, with its places in the tables: the slot and
    /// its generation, the connection, a timer, and two places in an index that
    /// is half full.
    #[test]
    fn an_idle_connection_takes_little() {
        let slot = size_of::<QueuePair>() + 8;
        let tables = size_of::<(landfall_placement::Instant, u32)>() + 4 + 2 * 16;
        let all = slot + size_of::<Connection>() + tables;
        assert!(all <= 1_084, "{slot} + {} + {tables} = {all}", size_of::<Connection>());
    }
}
