//! What is heard of the packets of Puts and FetchOps, and what is done when nothing is.
//!
//! The other side says which took effect and which are in place beyond; windows learn of it, and
//! operations are over, in order.

use landfall_congestion::Arrived;
use landfall_placement::{Duration, Refusal, Serial32, assumed};
use landfall_tables::EntryKey;

use super::flight::FreedBytes;
use super::{Streams, Unasked, Work};
use crate::context::Context;
use crate::error::Ended;
use crate::event::Event;
use crate::ids::OperationId;
use crate::network::Network;
use crate::wire::Reason;
use crate::wire::message::{Ahead, Message, Question};

/// After how many time-outs in a row a link counts as dead, where there are others.
const MOST_SILENT: u8 = 3;

/// How many packets of each link are sent again at the first time-out: what is answered
/// shows what became of the others.
const PROBES: usize = 4;

/// What was heard of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Applied {
    /// Something new took effect.
    pub(crate) is_progress: bool,
    /// How many more packets the network marked.
    pub(crate) marked: u16,
}

/// What comes of it that nothing was heard of a stream for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimedOut {
    /// Nothing is under way.
    Idle,
    /// The other side was not asked before.
    Asks,
    /// What is lost is known, and is asked for and sent again.
    AsksAgain,
    /// The other side was silent for too long: its connection has failed.
    GivesUp,
}

impl Streams {
    /// The other side says which packets took effect, and which are in place beyond.
    pub(crate) fn handle_applied(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        applied: u32,
        refused: Option<Reason>,
        ahead: &Ahead,
    ) -> Result<Applied, Refusal> {
        let round = self.round_trip_of(net, cx, connection);
        let Some(known) = net.connections.get_mut(connection) else {
            return Err(Refusal::UnknownId);
        };
        let Some(remote) = known.remote.as_deref_mut() else { return Err(Refusal::Unexpected) };
        let outgoing = &mut remote.outgoing;
        let before = outgoing.acked;
        outgoing.handle_ack(cx.now, applied, refused.is_some(), ahead)?;
        let marked = ahead.marked.wrapping_sub(outgoing.marked);
        if refused.is_none() {
            outgoing.marked = ahead.marked;
        }
        let is_progress = applied != before;
        if let Some(reason) = refused {
            outgoing.refuse(applied, Ended::There(reason));
        } else if !is_progress && ahead.bits == 0 && outgoing.back_at + round <= cx.now {
            // Something before what came is missing; not more than once in a round trip.
            outgoing.back_at = cx.now;
            outgoing.flight.give_up(applied, true);
        }
        outgoing.find_lost(cx.now);
        Ok(Applied { is_progress, marked: if refused.is_some() { 0 } else { marked } })
    }

    /// A FetchOp took effect.
    pub(crate) fn handle_fetched(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        serial: u32,
        old: u64,
    ) -> Result<Applied, Refusal> {
        let Some(known) = net.connections.get_mut(connection) else {
            return Err(Refusal::UnknownId);
        };
        let Some(remote) = known.remote.as_deref_mut() else { return Err(Refusal::Unexpected) };
        let outgoing = &mut remote.outgoing;
        let place = outgoing.operation_at(serial).ok_or(Refusal::UnknownId)?;
        let operation = outgoing.operations.get_mut(place).ok_or(Refusal::UnknownId)?;
        if !matches!(operation.work, Work::Fetch { .. }) {
            return Err(Refusal::UnknownId);
        }
        if operation.old.is_some() || operation.ended.is_some() {
            return Err(Refusal::Duplicate);
        }
        let next = serial.wrapping_add(1);
        if Serial32(outgoing.flight.end()).precedes(Serial32(next)) {
            return Err(Refusal::OutOfBounds);
        }
        operation.old = Some(old);
        // What came before it took effect too.
        if Serial32(outgoing.acked).precedes(Serial32(next)) {
            outgoing.handle_ack(cx.now, next, false, &Ahead::default())?;
        }
        outgoing.flight.settle(cx.now, serial, true);
        outgoing.flight.forget_below(outgoing.acked);
        outgoing.find_lost(cx.now);
        Ok(Applied { is_progress: true, marked: 0 })
    }

    /// Something was heard of a stream, and the windows have learnt of it: operations may be
    /// over, more may be sent.
    pub(crate) fn finish_turn(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        is_progress: bool,
    ) {
        if is_progress {
            if let Some(known) = net.connections.get_mut(connection) {
                known.remote_mut().outgoing.retries = 0;
            }
            self.timers.remove(connection);
        }
        self.finish_operations(net, cx, connection);
        self.queue_stream(net, cx, connection);
        if !self.is_stream_idle(net, connection) {
            self.arm_stream(net, cx, connection);
        }
        net.disconnect_if_idle(cx, connection);
    }

    /// Tells the windows of the links what became of packets, and wakes who waited for room.
    /// Returns a link that has been silent for so long that it counts as dead, if there is one.
    pub(crate) fn update_put_window(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        marked: u16,
    ) -> Option<u32> {
        let (retry_after, floor) = (cx.config.retry_after, cx.config.retry_floor);
        let mut marked = u64::from(marked);
        let mut dead = None;
        for nth in 0.. {
            let known = net.connections.get_mut(connection)?;
            let flight = &mut known.remote_mut().outgoing.flight;
            let Some(FreedBytes { link: index, .. }) = flight.peek_update(nth) else { break };
            let config = self.congestion_of_puts(net, cx, index);
            let known = net.connections.get_mut(connection)?;
            let stream = &mut known.remote_mut().outgoing;
            let Some(link) = net.links.get_mut(index) else { continue };
            let before = cx.now - link.time_out_of_puts(retry_after, floor);
            let may_be_silent = stream.is_asked_since(before);
            let flight = &mut stream.flight;
            let outgoing = link.outgoing(&config);
            if may_be_silent && flight.find_silent(nth, before) {
                outgoing.window.handle_timeout(&config, cx.now);
                dead = (flight.silence_of(index) >= MOST_SILENT).then_some(index).or(dead);
            }
            let update = flight.take_update(nth);
            let under_way = outgoing.under_way;
            outgoing.under_way = under_way.saturating_sub(update.freed);
            if update.came > 0 {
                let of_mark = (marked * u64::from(config.unit)).min(update.came);
                marked = 0;
                for (bytes, marked) in [(update.came - of_mark, false), (of_mark, true)] {
                    if bytes > 0 {
                        let (sent, timed) = (update.sent, update.is_timed);
                        let arrived = Arrived { bytes, sent, timed, marked, under_way };
                        outgoing.window.handle_arrived(&config, cx.now, &arrived);
                    }
                }
                let rtt = outgoing.window.rtt();
                if let (Some(round), Some(shortest)) = (rtt.smoothed(), rtt.shortest()) {
                    flight.note_round(nth, round, shortest);
                }
            }
            if update.lost > 0 {
                outgoing.window.handle_lost(&config, cx.now, update.lost_at, update.lost);
            }
            if update.freed > 0 && outgoing.has_room_for_burst(&config) {
                for waiting in core::mem::take(&mut outgoing.waiting) {
                    self.queue_stream(net, cx, waiting);
                }
            }
        }
        dead.filter(|link| self.has_other_link(net, connection, *link))
    }

    pub(crate) fn has_other_link(&self, net: &Network, connection: u32, link: u32) -> bool {
        let is_up =
            |other: u32| other != link && net.links.get(other).is_some_and(|other| other.is_up);
        net.connections.get(connection).is_some_and(|known| known.known_links().any(is_up))
    }

    /// A link is down: what was under way over it is lost. False where the connection has
    /// nothing of the kind.
    pub(crate) fn give_up_link(&mut self, net: &mut Network, connection: u32, link: u32) -> bool {
        let known = net.connections.get_mut(connection);
        // It never put anything.
        let Some(remote) = known.and_then(|known| known.remote.as_deref_mut()) else {
            return false;
        };
        remote.outgoing.flight.give_up_link(link);
        true
    }

    /// A connection is over, and its stream with it.
    pub(crate) fn end_stream(&mut self, net: &mut Network, cx: &mut Context, connection: u32) {
        let Some(known) = net.connections.assumed_mut(connection) else { return };
        if let Some(remote) = known.remote.as_deref_mut() {
            let outgoing = &mut remote.outgoing;
            outgoing.acked = outgoing.next;
            let left = outgoing.flight.leave(outgoing.next);
            for FreedBytes { link, bytes } in left {
                let Some(link) = net.links.get_mut(link) else { continue };
                for waiting in link.free_puts(bytes) {
                    self.queue_stream(net, cx, waiting);
                }
            }
        }
    }

    /// How long the network takes, as far as that is known.
    pub(crate) fn round_trip_of(&self, net: &Network, cx: &Context, connection: u32) -> Duration {
        let link = net.connections.get(connection).and_then(|known| net.links.get(known.link));
        let measured = link.and_then(|link| link.rtt_of_puts().or(link.window.rtt().smoothed()));
        measured.unwrap_or(cx.config.retry_floor)
    }

    pub(crate) fn time_out_stream(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
    ) -> TimedOut {
        if self.is_stream_idle(net, connection) {
            return TimedOut::Idle;
        }
        // Nothing of it was to be answered by now.
        if self.ask_now(net, cx, connection) {
            return TimedOut::Asks;
        }
        let Some(known) = net.connections.get_mut(connection) else { return TimedOut::Idle };
        let remote = known.remote_mut();
        remote.outgoing.retries = remote.outgoing.retries.saturating_add(1);
        let retries = remote.outgoing.retries;
        if net.gives_up(cx, connection, retries) {
            // Whether the operations took effect will never be known.
            return TimedOut::GivesUp;
        }
        let Some(known) = net.connections.get_mut(connection) else { return TimedOut::Idle };
        let outgoing = &mut known.remote_mut().outgoing;
        outgoing.back_at = cx.now;
        let is_long = retries > 1;
        // What was said to be in place, and does not take effect, is not believed for ever.
        if !outgoing.flight.has_under_way() || retries >= 3 {
            outgoing.flight.give_up_all(outgoing.acked);
        } else if is_long {
            outgoing.flight.probe(usize::MAX);
        } else {
            outgoing.flight.probe(PROBES);
        }
        outgoing.go_back();
        if is_long {
            self.note_timeout(net, cx, connection);
        }
        TimedOut::AsksAgain
    }

    /// Asks what took effect, where nothing of what was sent is to be answered.
    pub(crate) fn ask_now(&mut self, net: &mut Network, cx: &mut Context, connection: u32) -> bool {
        let known = net.connections.get_mut(connection);
        // It has never put anything.
        let Some(remote) = known.and_then(|known| known.remote.as_deref_mut()) else {
            return false;
        };
        let outgoing = &mut remote.outgoing;
        let end = outgoing.flight.end();
        if outgoing.is_asked() || outgoing.flight.base() == end {
            return false;
        }
        outgoing.note_asked(cx.now, end);
        outgoing.unasked = Unasked::default();
        net.send_message(cx, connection, &Message::RequestState(Question::Memory));
        self.arm_stream(net, cx, connection);
        true
    }

    /// Asks what took effect, and sends again what is lost.
    pub(crate) fn ask_what_applied(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
    ) {
        self.complete_fetches(net, cx, connection);
        net.send_message(cx, connection, &Message::RequestState(Question::Memory));
        net.suspect_move(cx, connection);
        self.queue_stream(net, cx, connection);
        self.arm_stream(net, cx, connection);
    }

    /// Nothing came over any link for two time-outs: their windows begin anew.
    pub(crate) fn note_timeout(&mut self, net: &mut Network, cx: &mut Context, connection: u32) {
        let mut tracks = 0..;
        while let Some(known) = net.connections.assumed_mut(connection)
            && let Some(nth) = tracks.next()
            && let Some(FreedBytes { link: index, bytes: freed }) =
                known.remote_mut().outgoing.flight.peek_update(nth)
        {
            let config = self.congestion_of_puts(net, cx, index);
            if let Some(link) = net.links.get_mut(index)
                && freed > 0
            {
                link.outgoing(&config).window.handle_timeout(&config, cx.now);
            }
        }
    }

    /// The answers to all FetchOps before the first that has none need not be
    /// remembered any longer at the other side.
    pub(crate) fn complete_fetches(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
    ) {
        if let Some(remote) = net.connections.remote_of(connection) {
            let unanswered = remote.outgoing.operations.iter().find(|operation| {
                matches!(operation.work, Work::Fetch { .. })
                    && operation.old.is_none()
                    && operation.ended.is_none()
            });
            let below = unanswered.map_or(remote.outgoing.acked, |operation| operation.first);
            net.send_message(cx, connection, &Message::FetchOpComplete { below });
        }
    }

    pub(crate) fn is_stream_idle(&self, net: &Network, connection: u32) -> bool {
        net.connections
            .remote_of(connection)
            .is_none_or(|remote| remote.outgoing.operations.is_empty())
    }

    /// Tells the user of operations that are over, in order.
    pub(crate) fn finish_operations(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
    ) {
        loop {
            let Some(known) = net.connections.assumed_mut(connection) else { return };
            let Some(remote) =
                assumed(known.remote.as_deref_mut(), "whose operations end has had some")
            else {
                return;
            };
            let outgoing = &mut remote.outgoing;
            let Some(operation) = outgoing.operations.front().copied() else {
                self.timers.remove(connection);
                net.remove_if_gone(connection);
                return;
            };
            let end = operation.first.wrapping_add(operation.count);
            let is_applied = !Serial32(outgoing.acked).precedes(Serial32(end));
            let is_over = match operation.work {
                _ if operation.ended == Some(Ended::ConnectionGone) => true,
                _ if operation.ended.is_some() => is_applied,
                Work::Put { .. } => is_applied,
                Work::Fetch { .. } => operation.old.is_some(),
            };
            if !is_over || operation.held > 0 {
                return;
            }
            outgoing.operations.pop_front();
            let id = OperationId::of(EntryKey { index: connection, generation: operation.first });
            let connection = net.id_of(connection);
            cx.emit(match (operation.ended, operation.old) {
                (Some(why), _) => Event::OperationEnded { operation: id, connection, why },
                (None, Some(old)) => Event::Fetched { operation: id, connection, old },
                (None, None) => Event::PutDone { operation: id, connection },
            });
        }
    }
}
