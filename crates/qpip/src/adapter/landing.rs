//! What drivers have in hand: payloads on their way to their place, and memory
//! that is being sent from.

use landfall_placement::{Guess, Instant, Landing, PathId, Ticket};

use super::Adapter;
use super::event::Event;
use super::fragments::Leaving;
use super::links::Origin;
use super::queue_pair::{Phase, QueuePair, Role};
use crate::ip::reassembly::WholeId;
use crate::queue::{Done, Hold};
use crate::tcp::{Claim, ConnectionEvent, Segment};
use crate::wire::{ethernet, ipv4, ipv6};
use crate::work::{Completion, CompletionQueueId, QueuePairId};

/// A payload that a driver is putting into its place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Placing {
    /// Of a segment of a connection.
    Stream { pair: QueuePairId, segment: Segment, claim: Claim, piece: Option<WholeId> },
    /// Of a segment that only had to be checked.
    Checked { origin: Origin, segment: Segment },
    /// Of a datagram, with as many bytes as it had.
    Datagram { pair: QueuePairId, from: core::net::SocketAddr, len: u32, piece: Option<WholeId> },
}

/// Memory that drivers read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sending {
    pub(super) pair: QueuePairId,
    pub(super) what: Held,
    /// So many transmissions of it are not over.
    pub(super) left: u32,
}

/// What of a queue pair is held.
#[derive(Clone, Copy, Debug)]
pub(super) enum Held {
    Requests(Hold),
    Datagram(u32),
}

impl Adapter {
    /// A payload is in its place, or failed its check.
    #[inline]
    pub(super) fn land(&mut self, now: Instant, ticket: Ticket, landing: Landing) {
        let (index, generation) = (ticket.index(), ticket.generation());
        if self.placing.named(index, generation).is_none() {
            return;
        }
        let Some(placing) = self.placing.remove(index) else { return };
        let is_good = matches!(landing, Landing::Verified | Landing::Unchecked);
        if landing == Landing::Corrupt {
            self.context.refusals.count(landfall_placement::Refusal::BadChecksum);
        }
        match placing {
            Placing::Stream { pair, segment, claim, piece } => {
                self.release_piece(piece);
                self.land_segment(now, pair, &segment, (claim, is_good));
            }
            Placing::Checked { origin, segment } => {
                if is_good {
                    self.take_segment(now, &origin, &segment);
                }
            }
            Placing::Datagram { pair, from, len, piece } => {
                self.release_piece(piece);
                self.land_datagram(pair, is_good.then_some((from, len)));
            }
        }
    }

    /// One of the transmissions of some memory is over.
    #[inline]
    pub(super) fn let_go(&mut self, ticket: Ticket) {
        let (index, generation) = (ticket.index(), ticket.generation());
        let Some(sending) = self.sending.named_mut(index, generation) else { return };
        sending.left = sending.left.saturating_sub(1);
        let Sending { pair, what, left } = *sending;
        if left == 0 {
            self.sending.remove(index);
        }
        let Some(known) = self.pairs.named_mut(pair.index, pair.generation) else { return };
        match (&mut known.role, what) {
            (super::queue_pair::Role::Stream(stream), Held::Requests(hold)) if left == 0 => {
                stream.queues.send.release(hold);
            }
            (super::queue_pair::Role::Datagrams(datagrams), Held::Datagram(number)) => {
                datagrams.outbound.release(number);
            }
            _ => {}
        }
        self.settle(pair);
    }

    /// What is left of a packet does not leave.
    pub(super) fn abandon(&mut self, leaving: &Leaving) {
        let ticket = leaving.ticket;
        let left = leaving.units_left();
        for _ in 0..left {
            self.let_go(ticket);
        }
    }

    /// Where the next payloads of a path will belong: behind those of the
    /// connection that something came for last.
    #[inline]
    pub(super) fn guess_next(&self, path: PathId, nth: usize) -> Option<Guess> {
        let link = &self.links[self.links.of(path)?];
        let id = link.last_pair?;
        let pair = self.pairs.named(id.index, id.generation)?;
        let super::queue_pair::Role::Stream(stream) = &pair.role else { return None };
        let connection = pair.connection()?;
        // Where devices cut, they join too, and what comes is as long as it gets.
        let joins = link.limits.filter(|limits| limits.super_unit > limits.unit);
        let most = joins.map(|limits| limits.super_unit);
        let (span, payload_len) = connection.tcb.guess(nth, most, &stream.queues)?;
        let is_v4 = connection.tcb.remote.is_ipv4();
        let ip_len = if is_v4 { ipv4::LEN } else { ipv6::LEN };
        let head_len = ethernet::LEN + ip_len + connection.tcb.header_len() as usize;
        Some(Guess { span, head_len: head_len as u16, payload_len })
    }
}

// What the state machines leave behind goes to completion queues and events.

impl Adapter {
    /// Takes everything out that a queue pair has to tell, sets its timer, and
    /// lets it go where it was destroyed and nothing of it is left.
    #[inline]
    pub(super) fn settle(&mut self, id: QueuePairId) {
        if self.is_held_by_card(id) {
            return;
        }
        let Some(pair) = self.pairs.named_mut(id.index, id.generation) else { return };
        while let Some(done) = pair.poll_done() {
            if let Some(gather) = &done.gather {
                self.domains.release(gather);
            }
            let queue = pair.completions(done.operation);
            let completion = completion_of(id, &done);
            pair.is_part_out |= !completion.ends_request;
            if self.completion_queues.complete(queue, completion) {
                self.context.events.push(Event::CompletionsReady { queue });
            }
        }
        self.take_news(id);
        self.set_timer(id);
        self.predict(id);
        let Some(pair) = self.pairs.named(id.index, id.generation) else { return };
        if pair.is_destroyed && pair.is_empty() {
            self.remove_pair(id);
        }
    }

    fn take_news(&mut self, id: QueuePairId) {
        loop {
            let Some(pair) = self.pairs.named_mut(id.index, id.generation) else { return };
            let is_told = !pair.is_destroyed;
            let Some((connection, _)) = pair.connection_mut() else { return };
            let Some(news) = connection.tcb.poll_news() else { return };
            let ends @ (local, remote) = (connection.tcb.local, connection.tcb.remote);
            let event = match (news, connection.listener) {
                (ConnectionEvent::Connected, None) => {
                    Event::Connected { queue_pair: id, local, remote }
                }
                (ConnectionEvent::Connected, Some(listener)) => {
                    Event::Accepted { listener, queue_pair: id, local, remote }
                }
                (ConnectionEvent::PeerFinished, _) => Event::PeerFinished { queue_pair: id },
                (ConnectionEvent::Closed(reason, rest), _) => {
                    self.demux.connections.remove(ends, id.index);
                    self.pair_timers.remove(id.index);
                    if let Some(rest) = rest {
                        self.time_waits.insert(rest);
                    }
                    Event::Closed { queue_pair: id, reason }
                }
            };
            if is_told {
                landfall_placement::trace!(?event);
                self.context.events.push(event);
            }
        }
    }

    /// Sees to it that the timer of a queue pair is not later than it wants. It
    /// may be earlier: then nothing is found to do, once.
    #[inline]
    pub(super) fn set_timer(&mut self, id: QueuePairId) {
        let Some(pair) = self.pairs.named(id.index, id.generation) else { return };
        let Some(connection) = pair.connection() else { return };
        let config = pair.tcp_config(&self.context.config.tcp);
        let Some(wanted) = connection.tcb.poll_timeout(config) else { return };
        let is_early = self.pair_timers.key_of(id.index).is_some_and(|at| at <= wanted.at);
        if !is_early {
            self.pair_timers.set(id.index, wanted.at);
        }
    }

    /// A part of a request was polled: the next part may be reported.
    pub(super) fn part_was_polled(&mut self, queue: CompletionQueueId, id: QueuePairId) {
        let Some(pair) = self.pairs.named_mut(id.index, id.generation) else {
            // Nobody will need the place that was kept for it.
            return self.completion_queues.give_up(queue);
        };
        pair.is_part_out = false;
        if let Role::Stream(stream) = &mut pair.role {
            stream.queues.receive.part_was_polled();
        }
        if let Some((connection, queues)) = pair.connection_mut() {
            connection.tcb.handle_polled_part(queues);
        }
        self.settle(id);
    }

    /// Nothing of a queue pair is left.
    fn remove_pair(&mut self, id: QueuePairId) {
        self.pair_timers.remove(id.index);
        let Some(pair) = self.pairs.remove(id.index) else { return };
        if pair.completes_parts() && !pair.is_part_out {
            self.completion_queues.give_up(pair.receive_completions);
        }
        if let Role::Stream(stream) = &pair.role
            && let Phase::Open(connection) = &stream.phase
            && !connection.tcb.is_closed()
        {
            let ends = (connection.tcb.local, connection.tcb.remote);
            self.demux.connections.remove(ends, id.index);
        }
        let QueuePair { domain, send_completions, receive_completions, .. } = pair;
        self.domains.leave(domain);
        self.completion_queues.leave(send_completions);
        self.completion_queues.leave(receive_completions);
    }
}

fn completion_of(queue_pair: QueuePairId, done: &Done) -> Completion {
    Completion {
        id: done.id,
        queue_pair,
        operation: done.operation,
        status: done.status,
        len: done.len,
        offset: done.offset,
        ends_message: done.ends_message,
        ends_request: done.gather.is_some(),
        from: done.from,
    }
}
