//! The packets of Puts and FetchOps: which goes next and over which link, what was
//! answered, what is repeated.
//!
//! Several are under way: on each link as many as its congestion window allows, and in all
//! as many as the other side takes in. It says which are in place, and only what is missing
//! is sent again. Some must not come to lie in place before others (what writes to the same
//! bytes, and every FetchOp): those the other side refuses while something before them is
//! missing, so they follow it again.

use landfall_congestion::Arrived;
use landfall_congestion::Config as Congestion;
use landfall_placement::{Duration, Refusal, Serial32, Spans, Transmit};

use super::flight::Sent;
use super::{Operation, STREAM_WINDOW, Work};
use crate::connection::MOST_LINKS;
use crate::context::Context;
use crate::endpoint::SUM_SLOT;
use crate::error::{Ended, Error};
use crate::ids::ConnectionId;
use crate::network::Network;
use crate::region::Streams;
use crate::ticket::{Purpose, Step};
use crate::wire::message::{Ahead, Message, Question};
use crate::wire::{Flags, Reason};

/// What a link begins with where no congestion control is configured: as many packets as
/// everybody takes in, but no more than sockets hold.
const FIRST_WINDOW: u64 = 256 << 10;

/// A network of our own may lose some (in parts per million) without being full.
const BEARABLE_LOSS: u32 = 20_000;

/// Hosts that sleep until packets come are not slower than this.
const HOST_DELAY: Duration = Duration::from_millis(1);

/// After how many time-outs in a row a link counts as dead, where there are others.
const MOST_SILENT: u8 = 3;

/// How many packets of each link are sent again at the first time-out: what is answered
/// shows what became of the others.
const PROBES: usize = 4;

/// What was heard of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
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
    /// What is lost is known, and is asked for and sent again.
    AsksAgain,
    /// The other side was silent for too long: its connection has failed.
    GivesUp,
}

impl Streams {
    /// The payload of each packet of a Put: what is sure to fit every link that it may take.
    pub(super) fn stu_of_puts(&self, net: &Network, id: ConnectionId) -> Result<u16, Error> {
        let known = net.connection(id)?;
        let first = net.sure_stu_on(id.index, known.link).ok_or(Error::PathDown)?;
        if known.more_links.is_empty() {
            return Ok(first);
        }
        let others = known.known_links().filter_map(|link| net.sure_stu_on(id.index, link));
        Ok(others.fold(first, u16::min))
    }

    /// The connection has packets to send; its paths will ask.
    pub(crate) fn queue_stream(&mut self, net: &mut Network, cx: &mut Context, connection: u32) {
        let Some(known) = net.connections.get(connection) else { return };
        let Some(asked) = known.remote.as_deref().map(|remote| &remote.outgoing) else { return };
        if !asked.has_packet(cx.config.puts_ahead) {
            return;
        }
        let takes_one_link = asked.peer_window == 0;
        let mut links = [0; MOST_LINKS];
        let mut count = 0;
        for link in known.known_links() {
            if !takes_one_link || link == known.link {
                links[count] = link;
                count += 1;
            }
        }
        for link in &links[..count] {
            let config = self.congestion_of_puts(net, cx, *link);
            let Some(link) = net.links.get(*link).filter(|link| link.is_up) else { continue };
            if link.holds_back_puts(&config, connection) {
                continue;
            }
            let path = usize::from(link.path);
            let Some(known) = net.connections.get_mut(connection) else { return };
            let queued = &mut known.remote_mut().outgoing.queued;
            if *queued >> path & 1 == 0 {
                *queued |= 1 << path;
                net.paths[path].streams.push_back(connection);
            }
        }
    }

    /// How the window moves that Puts over a link have. They are not granted: so there is
    /// one also where the network is ours alone.
    pub(super) fn congestion_of_puts(&self, net: &Network, cx: &Context, link: u32) -> Congestion {
        let usual = net.congestion_on(cx, link);
        if cx.config.congestion.is_some() {
            return usual;
        }
        let unit = u64::from(usual.unit);
        let first = (unit * u64::from(STREAM_WINDOW)).min(FIRST_WINDOW);
        Congestion {
            initial_window: first.max(2 * unit),
            max_window: cx.config.window.max(2 * unit),
            delay_floor: HOST_DELAY,
            loss_tolerance: BEARABLE_LOSS,
            ..usual
        }
    }

    /// The next Put or FetchOp packet of a path.
    #[inline]
    pub(crate) fn next_operation(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        path: usize,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        while let Some(connection) = net.paths[path].streams.front().copied() {
            if let Some(transmit) = self.next_packet(net, cx, connection, path, head, from) {
                self.arm_stream(net, cx, connection);
                return Some(transmit);
            }
            net.paths[path].streams.pop_front();
            if let Some(known) = net.connections.get_mut(connection) {
                known.remote_mut().outgoing.queued &= !(1 << path);
            }
        }
        None
    }

    fn next_packet(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        path: usize,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        let puts_ahead = cx.config.puts_ahead;
        let asked = &mut net.connections.get_mut(connection)?.remote.as_deref_mut()?.outgoing;
        let serial = asked.next_packet(puts_ahead)?;
        let operation = asked.operation_at(serial)?;
        let operation = *asked.operations.get(operation)?;
        let link = self.link_for(net, cx, connection, path, serial, &operation)?;
        let (config, generation) =
            (self.congestion_of_puts(net, cx, link), net.connections.table.generation(connection));
        let known = net.connections.get_mut(connection)?;
        let envelope = known.envelope();
        let asked = &mut known.remote_mut().outgoing;
        let outgoing = net.links.get_mut(link)?.outgoing(&config);
        let is_repeated = serial != asked.flight.end();
        cx.stats.operations_repeated += u64::from(is_repeated);
        let (message, span) = operation.packet(serial);
        let len = operation.packet_len(serial);
        let window = outgoing.window.bytes();
        outgoing.under_way += u64::from(len);
        let is_fetch = matches!(message, Message::FetchOp { .. });
        asked.flight.send(cx.now, Sent { serial, link, len, is_fetch });
        let is_full = outgoing.window.room(&config, outgoing.under_way) < u64::from(len)
            || asked.flight.len() >= asked.window(puts_ahead);
        let wants_answer =
            is_repeated || is_full || asked.wants_answer(&operation, serial, len, window);
        let message = message.wanting_answer(wants_answer);
        let len = message.encode(envelope, head)?;
        let to = net.links.get(link)?.peer;
        let mut transmit = Transmit {
            to,
            head_len: len as u16,
            segment: None,
            checksum: None,
            sum_only: 0,
            ecn: cx.ecn(),
            ticket: Purpose::Control.pack(),
        };
        if matches!(message, Message::Put { .. }) && cx.config.checksum {
            head[1] |= Flags::SUM.0;
            transmit.checksum = Some(SUM_SLOT);
        }
        if let Some(span) = span.filter(|span| span.len > 0) {
            from.push(span).ok()?;
            let asked = &mut net.connections.get_mut(connection)?.remote_mut().outgoing;
            let place = asked.operation_at(serial)?;
            asked.operations.get_mut(place)?.held += 1;
            let step = Step::new(connection, generation, operation.number);
            transmit.ticket = Purpose::Operation(step).pack();
        }
        Some(transmit)
    }

    /// The link of a path that a packet goes over: the one with the most room. None where it
    /// has to wait, for room or for what must lie in place before it.
    pub(super) fn link_for(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        path: usize,
        serial: u32,
        operation: &Operation,
    ) -> Option<u32> {
        let known = net.connections.get(connection)?;
        let asked = &known.remote.as_deref()?.outgoing;
        let (control, takes_one_link) = (known.link, asked.peer_window == 0);
        let len = u64::from(operation.packet_len(serial));
        let mut best: Option<(u64, u32)> = None;
        let mut full = [0; MOST_LINKS];
        let mut count = 0;
        for index in known.known_links() {
            let Some(link) = net.links.get(index) else { continue };
            let is_here = usize::from(link.path) == path && link.is_up;
            // Only the other links may have become too narrow for it, or come later.
            let fits = index == control
                || !takes_one_link
                    && net.sure_stu_on(connection, index).is_some_and(|s| s >= operation.stu);
            // Over one link packets come in their order, as a rule.
            let may_go = asked.may_follow(operation) || asked.flight.is_only_on(index);
            if !is_here || !fits || !may_go {
                continue;
            }
            let config = self.congestion_of_puts(net, cx, index);
            let room = link.room_for_puts(&config);
            if room >= len || link.puts_under_way() == 0 {
                best = best.max(Some((room, index)));
            } else {
                full[count] = index;
                count += 1;
            }
        }
        if let Some((_, link)) = best {
            let config = self.congestion_of_puts(net, cx, link);
            let outgoing = net.links.get_mut(link)?.outgoing(&config);
            if outgoing.under_way == 0 {
                outgoing.window.handle_start(&config, cx.now);
            }
            return Some(link);
        }
        for link in &full[..count] {
            let config = self.congestion_of_puts(net, cx, *link);
            let waiting = &mut net.links.get_mut(*link)?.outgoing(&config).waiting;
            if !waiting.contains(&connection) {
                waiting.push(connection);
            }
        }
        None
    }

    /// The other side says which packets took effect, and which are in place beyond.
    pub(crate) fn take_applied(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        applied: u32,
        refused: Option<Reason>,
        ahead: &Ahead,
    ) -> Result<Turn, Refusal> {
        let round = self.round_trip_of(net, cx, connection);
        let Some(known) = net.connections.get_mut(connection) else {
            return Err(Refusal::UnknownId);
        };
        let Some(remote) = known.remote.as_deref_mut() else { return Err(Refusal::Unexpected) };
        let asked = &mut remote.outgoing;
        let before = asked.acked;
        asked.hear(cx.now, applied, refused.is_some(), ahead)?;
        let marked = ahead.marked.wrapping_sub(asked.marked);
        if refused.is_none() {
            asked.marked = ahead.marked;
        }
        let is_progress = applied != before;
        if let Some(reason) = refused {
            asked.refuse(applied, Ended::There(reason));
        } else if !is_progress && ahead.bits == 0 && asked.back_at + round <= cx.now {
            // Something before what came is missing; not more than once in a round trip.
            asked.back_at = cx.now;
            asked.flight.give_up(applied, true);
        }
        asked.find_lost(cx.now);
        Ok(Turn { is_progress, marked: if refused.is_some() { 0 } else { marked } })
    }

    /// A FetchOp took effect.
    pub(crate) fn take_fetched(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        serial: u32,
        old: u64,
    ) -> Result<Turn, Refusal> {
        let Some(known) = net.connections.get_mut(connection) else {
            return Err(Refusal::UnknownId);
        };
        let Some(remote) = known.remote.as_deref_mut() else { return Err(Refusal::Unexpected) };
        let asked = &mut remote.outgoing;
        let place = asked.operation_at(serial).ok_or(Refusal::UnknownId)?;
        let operation = asked.operations.get_mut(place).ok_or(Refusal::UnknownId)?;
        if !matches!(operation.work, Work::Fetch { .. }) {
            return Err(Refusal::UnknownId);
        }
        if operation.old.is_some() || operation.ended.is_some() {
            return Err(Refusal::Duplicate);
        }
        let next = serial.wrapping_add(1);
        if Serial32(asked.flight.end()).precedes(Serial32(next)) {
            return Err(Refusal::OutOfBounds);
        }
        operation.old = Some(old);
        // What came before it took effect too.
        if Serial32(asked.acked).precedes(Serial32(next)) {
            asked.hear(cx.now, next, false, &Ahead::default())?;
        }
        asked.flight.settle(cx.now, serial, true);
        asked.flight.forget_below(asked.acked);
        asked.find_lost(cx.now);
        Ok(Turn { is_progress: true, marked: 0 })
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
    /// Gives a link that has been silent for so long that it counts as dead, if there is one.
    pub(crate) fn tell_outgoing(
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
            let Some(known) = net.connections.get_mut(connection) else { return None };
            let flight = &mut known.remote_mut().outgoing.flight;
            let Some((index, _)) = flight.peek_news(nth) else { break };
            let config = self.congestion_of_puts(net, cx, index);
            let Some(known) = net.connections.get_mut(connection) else { return None };
            let flight = &mut known.remote_mut().outgoing.flight;
            let Some(link) = net.links.get_mut(index) else { continue };
            let patience = link.time_out_of_puts(retry_after, floor);
            let outgoing = link.outgoing(&config);
            if flight.find_silent(nth, cx.now - patience) {
                outgoing.window.handle_timeout(&config, cx.now);
                dead = (flight.silence_of(index) >= MOST_SILENT).then_some(index).or(dead);
            }
            let news = flight.take_news(nth);
            let under_way = outgoing.under_way;
            outgoing.under_way = under_way.saturating_sub(news.freed);
            if news.came > 0 {
                let of_mark = (marked * u64::from(config.unit)).min(news.came);
                marked = 0;
                for (bytes, marked) in [(news.came - of_mark, false), (of_mark, true)] {
                    if bytes > 0 {
                        let (sent, timed) = (news.sent, news.is_timed);
                        let arrived = Arrived { bytes, sent, timed, marked, under_way };
                        outgoing.window.handle_arrived(&config, cx.now, &arrived);
                    }
                }
                let rtt = outgoing.window.rtt();
                if let (Some(round), Some(shortest)) = (rtt.smoothed(), rtt.shortest()) {
                    flight.note_round(nth, round, shortest);
                }
            }
            if news.lost > 0 {
                outgoing.window.handle_lost(&config, cx.now, news.lost_at, news.lost);
            }
            if news.freed > 0 && outgoing.has_room_for_burst(&config) {
                for waiting in core::mem::take(&mut outgoing.waiting) {
                    self.queue_stream(net, cx, waiting);
                }
            }
        }
        dead.filter(|link| self.has_other_link(net, connection, *link))
    }

    fn has_other_link(&self, net: &Network, connection: u32, link: u32) -> bool {
        let is_up =
            |other: u32| other != link && net.links.get(other).is_some_and(|other| other.is_up);
        net.connections.get(connection).is_some_and(|known| known.known_links().any(is_up))
    }

    /// A connection is over, and its stream with it.
    pub(super) fn end_stream(&mut self, net: &mut Network, cx: &mut Context, connection: u32) {
        let Some(known) = net.connections.get_mut(connection) else { return };
        let Some(remote) = known.remote.as_deref_mut() else { return };
        let asked = &mut remote.outgoing;
        asked.acked = asked.next;
        let left = asked.flight.leave(asked.next);
        for (link, bytes) in left {
            let Some(link) = net.links.get_mut(link) else { continue };
            for waiting in link.free_puts(bytes) {
                self.queue_stream(net, cx, waiting);
            }
        }
    }

    /// A link is down: what was under way over it is lost. False where the connection has
    /// nothing of the kind.
    pub(crate) fn give_up_link(&mut self, net: &mut Network, connection: u32, link: u32) -> bool {
        let known = net.connections.get_mut(connection);
        let Some(remote) = known.and_then(|known| known.remote.as_deref_mut()) else {
            return false;
        };
        remote.outgoing.flight.give_up_link(link);
        true
    }

    pub(super) fn arm_stream(&mut self, net: &mut Network, cx: &mut Context, connection: u32) {
        if self.timers.key_of(connection).is_some() {
            return;
        }
        let patience = self.stream_patience(net, cx, connection);
        self.timers.set(connection, cx.now + patience);
    }

    /// How long an answer takes at most: on the slowest of the links that are used.
    fn stream_patience(&self, net: &Network, cx: &Context, connection: u32) -> Duration {
        let Some(known) = net.connections.get(connection) else { return Duration::MAX };
        let retries = known.remote.as_deref().map_or(0, |remote| remote.outgoing.retries);
        let usual = net.patience(cx, connection, retries);
        let (retry_after, floor) = (cx.config.retry_after, cx.config.retry_floor);
        let measured = known.known_links().filter_map(|link| {
            let link = net.links.get(link)?;
            link.rtt_of_puts().map(|_| link.time_out_of_puts(retry_after, floor))
        });
        let Some(longest) = measured.max() else { return usual };
        longest.saturating_mul(1 << retries.min(6)).min(net.retry_after(cx, 4).max(longest))
    }

    /// How long the network takes, as far as that is known.
    fn round_trip_of(&self, net: &Network, cx: &Context, connection: u32) -> Duration {
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
        let Some(known) = net.connections.get_mut(connection) else { return TimedOut::Idle };
        let Some(remote) = known.remote.as_deref_mut() else { return TimedOut::Idle };
        if remote.outgoing.operations.is_empty() {
            return TimedOut::Idle;
        }
        remote.outgoing.retries = remote.outgoing.retries.saturating_add(1);
        let retries = remote.outgoing.retries;
        if net.gives_up(cx, connection, retries) {
            // Whether the operations took effect will never be known.
            return TimedOut::GivesUp;
        }
        let Some(known) = net.connections.get_mut(connection) else { return TimedOut::Idle };
        let asked = &mut known.remote_mut().outgoing;
        asked.back_at = cx.now;
        let is_long = retries > 1;
        // What was said to be in place, and does not take effect, is not believed for ever.
        if !asked.flight.has_under_way() || retries >= 3 {
            asked.flight.give_up_all(asked.acked);
        } else if is_long {
            asked.flight.probe(usize::MAX);
        } else {
            asked.flight.probe(PROBES);
        }
        asked.go_back();
        if is_long {
            self.note_timeout(net, cx, connection);
        }
        TimedOut::AsksAgain
    }

    /// Asks what took effect, and sends again what is lost.
    pub(crate) fn ask_what_applied(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
    ) {
        self.complete_fetches(net, cx, connection);
        net.say(cx, connection, &Message::RequestState(Question::Memory));
        net.suspect_move(cx, connection);
        self.queue_stream(net, cx, connection);
        self.arm_stream(net, cx, connection);
    }

    /// Nothing came over any link for two time-outs: their windows begin anew.
    fn note_timeout(&mut self, net: &mut Network, cx: &mut Context, connection: u32) {
        for nth in 0.. {
            let Some(known) = net.connections.get_mut(connection) else { return };
            let flight = &mut known.remote_mut().outgoing.flight;
            let Some((index, freed)) = flight.peek_news(nth) else { return };
            let config = self.congestion_of_puts(net, cx, index);
            if let Some(link) = net.links.get_mut(index)
                && freed > 0
            {
                link.outgoing(&config).window.handle_timeout(&config, cx.now);
            }
        }
    }
}
