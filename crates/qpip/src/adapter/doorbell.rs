//! The doorbell state machine: work requests are posted.
//!
//! A request is checked here and never again: its memory, its rights, its place
//! in its queue and that of its completion.

use core::net::SocketAddr;

use landfall_placement::Instant;

use super::Adapter;
use super::demux::plain;
use super::domain::Access;
use super::error::PostError;
use super::interface::is_remote;
use super::queue_pair::{Phase, QueuePair, Role, Stream};
use crate::queue::Gather;
use crate::work::{QueuePairId, ReceiveWork, SendWork};

/// The headers of IPv4 and UDP.
const HEADERS_V4: u32 = 28;
/// The header of UDP: that of IPv6 is not counted.
const HEADERS_V6: u32 = 8;
/// The longest message of a queue pair that is not connected yet and sends each
/// in one segment: who connects will say how much that other side takes.
const LONGEST_SEGMENT: u32 = 65_535 - 20 - 32;

impl Adapter {
    /// Posts a message to be sent. On TCP it may be posted before the connection
    /// is open, and leaves once it is.
    ///
    /// # Errors
    /// See [`PostError`]; nothing is posted then.
    #[inline]
    pub fn post_send(
        &mut self,
        _now: Instant,
        id: QueuePairId,
        work: &SendWork<'_>,
    ) -> Result<(), PostError> {
        let pair = self.known(id).ok_or(PostError::UnknownQueuePair)?;
        let (domain, completions) = (pair.domain, pair.send_completions);
        let longest = match &pair.role {
            Role::Stream(stream) => stream_takes(stream, work.to)?,
            Role::Datagrams(datagrams) => {
                let local = datagrams.local.ok_or(PostError::NotBound)?;
                if !datagrams.outbound.has_room() {
                    return Err(PostError::QueueFull);
                }
                self.datagram_limit(local, work.to)?
            }
        };
        if !self.completion_queues.has_room(completions) {
            return Err(PostError::CompletionQueueFull);
        }
        let gather = self.domains.claim(domain, work.from, Access::Read)?;
        if gather.len() > longest {
            self.domains.release(&gather);
            return Err(PostError::TooLong);
        }
        self.completion_queues.reserve(completions);
        let Some(pair) = self.known_mut(id) else { return Ok(()) };
        match (&mut pair.role, work.to) {
            (Role::Stream(stream), _) => stream.queues.send.push(work.id, gather),
            (Role::Datagrams(datagrams), Some(to)) => {
                datagrams.outbound.push(work.id, gather, plain(to));
            }
            (Role::Datagrams(_), None) => {}
        }
        self.mark_ready(id);
        Ok(())
    }

    /// Posts room for what comes. On a byte stream requests are filled one after
    /// another; else each takes one message.
    ///
    /// # Errors
    /// See [`PostError`]; nothing is posted then.
    #[inline]
    pub fn post_receive(
        &mut self,
        _now: Instant,
        id: QueuePairId,
        work: &ReceiveWork<'_>,
    ) -> Result<(), PostError> {
        let pair = self.known(id).ok_or(PostError::UnknownQueuePair)?;
        let (domain, completions) = (pair.domain, pair.receive_completions);
        let has_room = match &pair.role {
            Role::Stream(stream) => {
                if !can_receive(pair) {
                    return Err(PostError::Ended);
                }
                stream.queues.receive.has_room()
            }
            Role::Datagrams(datagrams) => datagrams.inbound.has_room(),
        };
        if !has_room {
            return Err(PostError::QueueFull);
        }
        if !self.completion_queues.has_room(completions) {
            return Err(PostError::CompletionQueueFull);
        }
        let gather = self.domains.claim(domain, work.into, Access::Write)?;
        self.completion_queues.reserve(completions);
        self.take_receive(id, work.id, gather);
        Ok(())
    }

    fn take_receive(&mut self, id: QueuePairId, name: u64, gather: Gather) {
        let Some(pair) = self.known_mut(id) else { return };
        match &mut pair.role {
            Role::Stream(stream) => stream.queues.receive.push(name, gather),
            Role::Datagrams(datagrams) => {
                datagrams.inbound.push(name, gather);
                return self.predict(id);
            }
        }
        // More memory opens the window.
        if let Some((connection, queues)) = pair.connection_mut() {
            connection.tcb.handle_posted_receive(queues);
            self.mark_ready(id);
            self.predict(id);
        }
    }

    /// The longest datagram from here to there.
    fn datagram_limit(&self, local: SocketAddr, to: Option<SocketAddr>) -> Result<u32, PostError> {
        let to = to.filter(|to| to.port() != 0).ok_or(PostError::NoDestination)?;
        let from = Some(local.ip()).filter(|ip| !ip.is_unspecified());
        if to.is_ipv4() != local.is_ipv4() || !is_remote(to.ip()) {
            return Err(PostError::NoDestination);
        }
        self.links.route(from, to.ip()).ok_or(PostError::NoRoute)?;
        Ok(65_535 - if to.is_ipv4() { HEADERS_V4 } else { HEADERS_V6 })
    }

    /// A queue pair may have something to send: it takes its turn on its link.
    #[inline]
    pub(super) fn mark_ready(&mut self, id: QueuePairId) {
        let Some(pair) = self.pairs.named_mut(id.index, id.generation) else { return };
        let waits = pair.is_parked && matches!(pair.role, Role::Stream(_));
        if pair.is_ready || waits {
            return;
        }
        let link = match &pair.role {
            Role::Stream(_) => pair.connection().map(|connection| connection.link),
            Role::Datagrams(datagrams) => {
                let from = datagrams.local.map(|local| local.ip());
                let from = from.filter(|ip| !ip.is_unspecified());
                let to = datagrams.outbound.next().map(|next| next.to.ip());
                // Where no way leads there any more, any link finds that out.
                to.map(|to| self.links.route(from, to).map_or(0, |route| route.link))
            }
        };
        let Some(link) = link.and_then(|link| self.links.get_mut(link)) else { return };
        pair.is_ready = true;
        link.ready.push_back(id);
        // Those that were destroyed while nothing left may still be in the list.
        if link.ready.len() > self.context.config.queue_pairs {
            let pairs = &self.pairs;
            link.ready.retain(|id| pairs.named(id.index, id.generation).is_some());
        }
    }
}

/// The longest message that this stream takes now.
fn stream_takes(stream: &Stream, to: Option<SocketAddr>) -> Result<u32, PostError> {
    if to.is_some() {
        return Err(PostError::NotADatagram);
    }
    if !stream.queues.send.has_room() {
        return Err(PostError::QueueFull);
    }
    let is_one_segment = stream.mapping == crate::tcp::Mapping::Segment;
    let most = if is_one_segment { LONGEST_SEGMENT } else { u32::MAX };
    match &stream.phase {
        Phase::Open(connection) if !connection.tcb.can_send() => Err(PostError::Ended),
        Phase::Open(connection) => Ok(connection.tcb.longest_message().unwrap_or(most)),
        Phase::Idle | Phase::Offered(_) => Ok(most),
    }
}

fn can_receive(pair: &QueuePair) -> bool {
    pair.connection().is_none_or(|connection| connection.tcb.can_receive())
}
