//! The packets of Puts and FetchOps: which goes next and over which link, what was
//! answered, what is repeated.
//!
//! Several are under way: on each link as many as its congestion window allows, and in all
//! as many as the other side takes in. It says which are in place, and only what is missing
//! is sent again. Some must not come to lie in place before others (what writes to the same
//! bytes, and every FetchOp): those the other side refuses while something before them is
//! missing, so they follow it again.

use landfall_congestion::Config as Congestion;
use landfall_placement::{Duration, Spans, Transmit};

use super::packets::NextPacket;
use super::{Operation, STREAM_WINDOW};
use crate::connection::MOST_LINKS;
use crate::context::Context;
use crate::error::Error;
use crate::ids::ConnectionId;
use crate::network::Network;
use crate::region::Streams;
use crate::ticket::{Purpose, Step};
use crate::wire::Flags;
use crate::wire::header::SUM_SLOT;
use crate::wire::message::Message;

/// What a link begins with where no congestion control is configured: as many packets as
/// everybody takes in, but no more than sockets hold.
const FIRST_WINDOW: u64 = 256 << 10;

/// A network of our own may lose some (in parts per million) without being full.
const BEARABLE_LOSS: u32 = 20_000;

/// Hosts that sleep until packets come are not slower than this.
const HOST_DELAY: Duration = Duration::from_millis(1);

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
        let outgoing = net.connections.get(connection).and_then(|known| {
            let outgoing = &known.remote.as_deref()?.outgoing;
            outgoing.has_packet(cx.config.puts_ahead).then_some((known, outgoing))
        });
        // Who waited for room may be gone, or have nothing to send any more.
        let Some((known, outgoing)) = outgoing else { return };
        let takes_one_link = outgoing.peer_window == 0;
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
            let Some(known) = net.connections.assumed_mut(connection) else { return };
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
        let outgoing = &mut net.connections.get_mut(connection)?.remote.as_deref_mut()?.outgoing;
        let serial = outgoing.next_packet(puts_ahead)?;
        let operation = outgoing.operation_at(serial)?;
        let operation = *outgoing.operations.get(operation)?;
        let link = self.link_for(net, cx, connection, path, serial, &operation)?;
        let (config, generation) =
            (self.congestion_of_puts(net, cx, link), net.connections.table.generation(connection));
        let known = net.connections.get_mut(connection)?;
        let envelope = known.envelope();
        let outgoing = &mut known.remote_mut().outgoing;
        let puts = net.links.get_mut(link)?.outgoing(&config);
        let is_repeated = serial != outgoing.flight.end();
        cx.stats.operations_repeated += u64::from(is_repeated);
        let (message, span) = operation.packet(serial);
        let len = operation.packet_len(serial);
        let window = puts.window.bytes();
        puts.under_way += u64::from(len);
        let room = puts.window.room(&config, puts.under_way);
        let packet = NextPacket { serial, link, len, window, room };
        let wants_answer = outgoing.send(cx, &operation, packet);
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
            let outgoing = &mut net.connections.get_mut(connection)?.remote_mut().outgoing;
            let place = outgoing.operation_at(serial)?;
            outgoing.operations.get_mut(place)?.held += 1;
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
        let outgoing = &known.remote.as_deref()?.outgoing;
        let (control, takes_one_link) = (known.link, outgoing.peer_window == 0);
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
            let may_go = outgoing.may_follow(operation) || outgoing.flight.is_only_on(index);
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
            let puts = net.links.get_mut(link)?.outgoing(&config);
            if puts.under_way == 0 {
                puts.window.handle_start(&config, cx.now);
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
}
