//! The doorbell state machine: work requests are posted.
//!
//! A request is checked here and never again: its memory, its rights, its place
//! in its queue and that of its completion.

use core::net::SocketAddr;

use super::demux::plain;
use super::domain::Access;
use super::error::PostError;
use super::interface::is_remote;
use super::links::Links;
use super::queue_pair::{Phase, QueuePair, Role, Stream};
use super::resources::Resources;
use super::udp::Datagrams;
use crate::work::{ReceiveWork, SendWork};

/// The headers of IPv4 and UDP.
const HEADERS_V4: u32 = 28;
/// The header of UDP: that of IPv6 is not counted.
const HEADERS_V6: u32 = 8;
/// The longest message of a queue pair that is not connected yet and sends each
/// in one segment: who connects will say how much that other side takes.
const LONGEST_SEGMENT: u32 = 65_535 - 20 - 32;

/// Posts a message to be sent.
#[inline]
pub(super) fn post_send(
    links: &Links,
    resources: &mut Resources,
    pair: &mut QueuePair,
    work: &SendWork<'_>,
) -> Result<(), PostError> {
    let Resources { domains, completion_queues, .. } = resources;
    let (domain, completions) = (pair.domain, pair.send_completions);
    let longest = match &pair.role {
        Role::Stream(stream) => stream_takes(stream, work.to)?,
        Role::Datagrams(datagrams) => {
            if datagrams.local.is_none() {
                return Err(PostError::NotBound);
            }
            if !datagrams.outbound.has_room() {
                return Err(PostError::QueueFull);
            }
            datagram_limit(links, datagrams, work.to)?
        }
    };
    if work.immediate.is_some() && !takes_words(pair) {
        return Err(PostError::NoImmediates);
    }
    if !completion_queues.has_room(completions) {
        return Err(PostError::CompletionQueueFull);
    }
    // A datagram may be empty; a message without bytes cannot be told on TCP.
    let may_be_empty = matches!(pair.role, Role::Datagrams(_));
    let gather = domains.claim(domain, work.from, Access::Read, may_be_empty)?;
    if gather.len() > longest {
        domains.release(&gather);
        return Err(PostError::TooLong);
    }
    completion_queues.reserve(completions);
    match (&mut pair.role, work.to) {
        (Role::Stream(stream), _) => {
            stream.queues.send.push(work.id, gather, work.is_signaled);
            if let Some(word) = work.immediate {
                stream.queues.send.push_word(word);
            }
        }
        (Role::Datagrams(datagrams), Some(to)) => {
            datagrams.outbound.push(work.id, gather, plain(to), work.is_signaled);
        }
        (Role::Datagrams(_), None) => {
            debug_assert!(false, "a datagram without an address has no limit");
        }
    }
    Ok(())
}

/// Posts room for what comes.
#[inline]
pub(super) fn post_receive(
    resources: &mut Resources,
    pair: &mut QueuePair,
    work: &ReceiveWork<'_>,
) -> Result<(), PostError> {
    if pair.shared_receives().is_some() {
        return Err(PostError::SharedReceives);
    }
    let Resources { domains, completion_queues, .. } = resources;
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
    if !completion_queues.has_room(completions) {
        return Err(PostError::CompletionQueueFull);
    }
    let gather = domains.claim(domain, work.into, Access::Write, false)?;
    completion_queues.reserve(completions);
    match &mut pair.role {
        Role::Stream(stream) => stream.queues.receive.push(work.id, gather),
        Role::Datagrams(datagrams) => datagrams.inbound.push(work.id, gather),
    }
    // More memory opens the window.
    if let Some((connection, queues)) = pair.connection_mut() {
        connection.tcb.handle_posted_receive(queues);
    }
    Ok(())
}

/// The longest datagram from here to there.
fn datagram_limit(
    links: &Links,
    datagrams: &Datagrams,
    to: Option<SocketAddr>,
) -> Result<u32, PostError> {
    let to = to.filter(|to| to.port() != 0).ok_or(PostError::NoDestination)?;
    let is_same_version = datagrams.local.is_some_and(|local| local.is_ipv4() == to.is_ipv4());
    if !is_same_version || !is_remote(to.ip()) && !to.ip().is_multicast() {
        return Err(PostError::NoDestination);
    }
    datagrams.route(links, to.ip()).ok_or(PostError::NoRoute)?;
    Ok(65_535 - if to.is_ipv4() { HEADERS_V4 } else { HEADERS_V6 })
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

/// Have both ends of its connection agreed on words with messages?
pub(super) fn takes_words(pair: &QueuePair) -> bool {
    pair.connection().is_some_and(|connection| connection.tcb.takes_words())
}

fn can_receive(pair: &QueuePair) -> bool {
    pair.connection().is_none_or(|connection| connection.tcb.can_receive())
}
