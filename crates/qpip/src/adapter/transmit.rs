//! The transmit state machine: what leaves a link next.
//!
//! First what belongs to no queue pair, for somebody waits for it; then the rest
//! of a packet that has begun to leave in pieces; then the queue pairs that have
//! something to send, each in its turn.

use alloc::vec::Vec;
use core::net::SocketAddr;

use landfall_placement::{Instant, Segment, SegmentKind, Spans, Ticket, Transmit};
use zerocopy::IntoBytes;

use super::Adapter;
use super::fragments::Outgoing;
use super::landing::{Held, Sending};
use super::links::{Link, Marks, NO_TICKET, Origin, Route};
use super::queue_pair::{Connection, Role};
use crate::ip::neighbours::Found;
use crate::tcp::tcb::CloseReason;
use crate::tcp::{Draft, Room};
use crate::wire::{Envelope, Mac, checksum, ipv4, ipv6, protocol, tcp, udp};
use crate::work::{QueuePairId, Status};

/// What became of a queue pair's turn.
enum TurnOutcome {
    /// It sends this, and may have more.
    Sends(Transmit),
    /// It has nothing to send.
    Idle,
    /// It waits for a neighbour.
    Waits,
    /// What it had could not leave and is over; it may have more.
    Again,
}

impl Adapter {
    #[inline]
    pub(super) fn next_transmit(
        &mut self,
        now: Instant,
        link: usize,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        self.links[link].station()?;
        if let Some(transmit) = self.next_control(now, link, head) {
            return Some(transmit);
        }
        if let Some(leaving) = &mut self.links[link].leaving {
            let unit = leaving.next(head, from);
            let is_over = leaving.is_gone() || unit.is_none();
            if is_over && let Some(leaving) = self.links[link].leaving.take() {
                self.abandon(&leaving);
            }
            if unit.is_some() {
                return unit;
            }
        }
        self.next_of_pairs(now, link, head, from)
    }

    fn next_control(&mut self, now: Instant, link: usize, head: &mut [u8]) -> Option<Transmit> {
        self.ask_neighbours(now, link);
        self.links.next_control(link, head)
    }

    #[inline]
    fn next_of_pairs(
        &mut self,
        now: Instant,
        link: usize,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        // Back-pressure: drivers hold as much as they may.
        while self.sending.has_room() {
            let id = self.links[link].ready.pop_front()?;
            let Some(pair) = self.pairs.named_mut(id.index, id.generation) else { continue };
            if !core::mem::take(&mut pair.is_ready) {
                continue;
            }
            from.clear();
            let turn = match &pair.role {
                Role::Stream(_) => self.next_segment(now, link, id, head, from),
                Role::Datagrams(_) => self.next_datagram(now, link, id, head, from),
            };
            match turn {
                TurnOutcome::Sends(transmit) => {
                    self.mark_ready(id);
                    return Some(transmit);
                }
                TurnOutcome::Idle => {}
                TurnOutcome::Again => self.mark_ready(id),
                TurnOutcome::Waits => {
                    self.park(link, id);
                    // Datagrams behind the one that waits may be for others.
                    self.mark_ready(id);
                    // The question for the neighbour is the next to leave.
                    if let Some(transmit) = self.next_control(now, link, head) {
                        return Some(transmit);
                    }
                }
            }
        }
        None
    }

    /// The next segment of a connection.
    #[inline]
    fn next_segment(
        &mut self,
        now: Instant,
        link: usize,
        id: QueuePairId,
        head: &mut [u8],
        from: &mut Spans,
    ) -> TurnOutcome {
        let Some(pair) = self.pairs.named_mut(id.index, id.generation) else {
            return TurnOutcome::Idle;
        };
        let Some((connection, queues, config)) = pair.configured_mut(&self.context.config.tcp)
        else {
            return TurnOutcome::Idle;
        };
        let station = match self.links[link].neighbours.lookup(now, connection.next_hop) {
            Found::Station(station) => Some(station),
            Found::Waiting => return TurnOutcome::Waits,
            Found::Unreachable if !connection.tcb.is_synchronized() => {
                self.give_up(now, id, CloseReason::Unreachable);
                self.settle(id);
                return TurnOutcome::Idle;
            }
            // As if it were lost on the way: an open connection survives it
            // (RFC 1122, 4.2.3.9), and its own timers decide.
            Found::Unreachable => None,
        };
        let path_mtu = self.links.path_mtu(now, connection.tcb.remote.ip(), link);
        let room = room(&self.links[link], path_mtu, connection);
        let tcp = &mut connection.tcb;
        let Some(draft) = tcp.poll_transmit(now, &room, config, queues, from) else {
            self.settle(id);
            return TurnOutcome::Idle;
        };
        self.context.stats.segments_sent += 1;
        let unit = station.and_then(|station| {
            self.write_segment(link, id, (station, room.packet), &draft, head, from)
        });
        if unit.is_none()
            && let Some(pair) = self.pairs.named_mut(id.index, id.generation)
            && let Some((_, queues)) = pair.connection_mut()
        {
            queues.send.release(draft.hold);
        }
        self.settle(id);
        unit.map_or(TurnOutcome::Again, TurnOutcome::Sends)
    }

    #[inline]
    fn write_segment(
        &mut self,
        link: usize,
        id: QueuePairId,
        (station, packet): (Mac, u32),
        draft: &Draft,
        head: &mut [u8],
        from: &Spans,
    ) -> Option<Transmit> {
        let pair = self.pairs.get(id.index)?;
        let connection = pair.connection()?;
        let config = pair.tcp_config(&self.context.config.tcp);
        let (local, remote) = (connection.tcb.local, connection.tcb.remote);
        let own = self.links[link].station()?.mac;
        let mut header = [0; tcp::LEN_MAX];
        let header_len = draft.header(local, remote).header_len() as u32;
        let sum = checksum::with_len(connection.addresses, header_len + draft.payload);
        let len = draft.header(local, remote).write(&mut header, sum)?;
        let mut envelope = Envelope::new((own, local.ip()), (station, remote.ip()), protocol::TCP);
        envelope.traffic_class = config.dscp << 2 | draft.ecn as u8;
        envelope.flow_label = if config.flow_label { connection.label } else { 0 };
        // A message that is one segment cannot be made shorter: where a link on
        // the way carries less, routers may cut it.
        envelope.dont_fragment = !draft.is_message;
        let cut = draft.cut.map(|size| {
            let kind = if local.is_ipv4() { SegmentKind::Tcp4 } else { SegmentKind::Tcp6 };
            Segment { kind, size }
        });
        let outgoing = Outgoing {
            header: &header[..len],
            sum_offset: tcp::SUM_OFFSET,
            payload: draft.payload,
            cut,
            envelope,
            ticket: NO_TICKET,
        };
        let held = (draft.payload > 0).then_some(Held::Requests(draft.hold));
        let mtu = packet + envelope.ip_len() as u32;
        self.write_packet(link, id, mtu, outgoing, held, head, from)
    }

    /// Writes a packet or its first piece, and notes what its driver holds.
    #[expect(clippy::too_many_arguments, reason = "what a packet consists of")]
    fn write_packet(
        &mut self,
        link: usize,
        id: QueuePairId,
        mtu: u32,
        mut packet: Outgoing<'_>,
        held: Option<Held>,
        head: &mut [u8],
        from: &Spans,
    ) -> Option<Transmit> {
        let left = packet.units(mtu)?;
        if let Some(what) = held {
            let (index, generation) = self.sending.insert(Sending { pair: id, what, left })?;
            packet.ticket = Ticket::new(index, generation);
        }
        let written = packet.write(mtu, self.links.fragment_id(left > 1), head, from);
        let Some((unit, leaving)) = written else {
            self.sending.remove(packet.ticket.index());
            return None;
        };
        self.context.stats.fragmented += u64::from(leaving.is_some());
        self.links[link].leaving = leaving;
        Some(unit)
    }

    /// The next datagram of a queue pair.
    fn next_datagram(
        &mut self,
        now: Instant,
        link: usize,
        id: QueuePairId,
        head: &mut [u8],
        from: &mut Spans,
    ) -> TurnOutcome {
        let Some(pair) = self.pairs.named_mut(id.index, id.generation) else {
            return TurnOutcome::Idle;
        };
        let Role::Datagrams(datagrams) = &mut pair.role else { return TurnOutcome::Idle };
        let (Some(local), Some(next)) = (datagrams.local, datagrams.outbound.next()) else {
            return TurnOutcome::Idle;
        };
        let own = Some(local.ip()).filter(|ip| !ip.is_unspecified());
        let Some(way) = self.links.route(own, next.to.ip()) else {
            datagrams.outbound.fail(Status::Unreachable);
            self.settle(id);
            return TurnOutcome::Again;
        };
        if way.link != link {
            // It takes its turn on the other link.
            return TurnOutcome::Again;
        }
        let station = match self.links[link].neighbours.lookup(now, way.next_hop) {
            Found::Station(station) => station,
            Found::Waiting => {
                datagrams.outbound.wait();
                return TurnOutcome::Waits;
            }
            Found::Unreachable => {
                datagrams.outbound.fail(Status::Unreachable);
                self.settle(id);
                return TurnOutcome::Again;
            }
        };
        let (to, number, len) = (next.to, next.number, next.gather.len());
        next.gather.slice(0, len, from);
        let source = SocketAddr::new(way.source, local.port());
        let held = Held::Datagram(number);
        let unit =
            self.write_datagram(now, &way, (id, held), (source, to, station), len, head, from);
        self.settle(id);
        unit.map_or(TurnOutcome::Again, TurnOutcome::Sends)
    }

    #[expect(clippy::too_many_arguments, reason = "what a datagram consists of")]
    fn write_datagram(
        &mut self,
        now: Instant,
        way: &Route,
        (id, held): (QueuePairId, Held),
        (source, to, station): (SocketAddr, SocketAddr, Mac),
        len: u32,
        head: &mut [u8],
        from: &Spans,
    ) -> Option<Transmit> {
        let own = self.links[way.link].station()?.mac;
        let mut envelope = Envelope::new((own, source.ip()), (station, to.ip()), protocol::UDP);
        let total = len + udp::LEN as u32;
        let header = udp::Header {
            source: source.port().into(),
            destination: to.port().into(),
            len: (total as u16).into(),
            sum: envelope.pseudo(total).into(),
        };
        let mtu = self.links.path_mtu(now, to.ip(), way.link);
        // What is cut here anyway may be cut again on its way.
        envelope.dont_fragment = total + envelope.ip_len() as u32 <= mtu;
        let packet = Outgoing {
            header: header.as_bytes(),
            sum_offset: udp::SUM_OFFSET,
            payload: len,
            cut: None,
            envelope,
            ticket: NO_TICKET,
        };
        let units = packet.units(mtu);
        let unit = self.write_packet(way.link, id, mtu, packet, Some(held), head, from);
        let pair = self.pairs.named_mut(id.index, id.generation)?;
        let datagrams = pair.datagrams_mut()?;
        match (&unit, units) {
            (Some(_), Some(units)) => {
                datagrams.outbound.begin(units);
                self.context.stats.datagrams_sent += 1;
            }
            _ => datagrams.outbound.fail(Status::Unreachable),
        }
        unit
    }

    /// Sends a segment of a connection beside its turn: a reset, for which no
    /// turn may come any more.
    pub(super) fn say_draft(&mut self, now: Instant, id: QueuePairId, draft: &Draft) {
        let Some(pair) = self.pairs.get(id.index) else { return };
        let Some(connection) = pair.connection() else { return };
        let ends = (connection.tcb.local, connection.tcb.remote);
        let config = pair.tcp_config(&self.context.config.tcp);
        let flow_label = if config.flow_label { connection.label } else { 0 };
        let marks = Marks { dscp: config.dscp, flow_label };
        let link = connection.link;
        if let Found::Station(station) =
            self.links[link].neighbours.lookup(now, connection.next_hop)
        {
            let to = Origin { link, station, ends };
            self.links.queue_segment(&mut self.context, &to, marks, draft);
        }
    }

    /// Asks for the neighbours that are due, and wakes who waited for those that
    /// answered, or never will.
    pub(super) fn ask_neighbours(&mut self, now: Instant, link: usize) {
        let woken = self.links.ask_neighbours(now, &mut self.context, link);
        self.wake(now, link, woken);
    }

    fn park(&mut self, link: usize, id: QueuePairId) {
        let Some(pair) = self.pairs.named_mut(id.index, id.generation) else { return };
        pair.is_parked = true;
        let is_stream = matches!(pair.role, Role::Stream(_));
        let parked = &mut self.links[link].parked;
        if is_stream || !parked.contains(&id) {
            parked.push(id);
        }
        if parked.len() > self.context.config.queue_pairs {
            let pairs = &self.pairs;
            parked.retain(|id| pairs.named(id.index, id.generation).is_some());
        }
    }

    /// Those who waited for a neighbour of this link look again.
    pub(super) fn wake(&mut self, now: Instant, link: usize, woken: Vec<QueuePairId>) {
        for id in woken {
            if let Some(pair) = self.pairs.named_mut(id.index, id.generation) {
                pair.is_parked = false;
                self.fail_unreachable(now, link, id);
            }
            self.mark_ready(id);
        }
    }

    /// What waited for a neighbour that does not answer ends.
    fn fail_unreachable(&mut self, now: Instant, link: usize, id: QueuePairId) {
        let Some(pair) = self.pairs.named_mut(id.index, id.generation) else { return };
        match &mut pair.role {
            Role::Stream(_) => {
                let Some((connection, _)) = pair.connection_mut() else { return };
                let found = self.links[link].neighbours.lookup(now, connection.next_hop);
                if found == Found::Unreachable && !connection.tcb.is_synchronized() {
                    self.give_up(now, id, CloseReason::Unreachable);
                }
            }
            Role::Datagrams(datagrams) => {
                datagrams.outbound.retry();
                let own = datagrams.local.map(|local| local.ip());
                let own = own.filter(|ip| !ip.is_unspecified());
                while let Some(next) = datagrams.outbound.next() {
                    let Some(way) = self.links.route(own, next.to.ip()) else { break };
                    let known = &mut self.links[way.link].neighbours;
                    if known.lookup(now, way.next_hop) != Found::Unreachable {
                        break;
                    }
                    datagrams.outbound.fail(Status::Unreachable);
                }
            }
        }
        self.settle(id);
    }
}

/// How large a segment of this connection may be now.
#[inline]
fn room(link: &Link, path_mtu: u32, connection: &Connection) -> Room {
    let is_v4 = connection.tcb.remote.is_ipv4();
    let ip = if is_v4 { ipv4::LEN } else { ipv6::LEN } as u32;
    let packet = path_mtu.saturating_sub(ip);
    let Some(limits) = link.limits else { return Room { packet, super_packet: packet, pieces: 1 } };
    let offloads = limits.offloads;
    let cuts = if is_v4 { offloads.segment_tcp4 } else { offloads.segment_tcp6 };
    if !cuts {
        return Room { packet, super_packet: packet, pieces: 1 };
    }
    // The length fields of IP have 16 bits; that of IPv6 does not count its header.
    let longest = if is_v4 { 65_535 - ip } else { 65_535 };
    let unit = limits.super_unit.saturating_sub(crate::wire::ethernet::LEN as u32 + ip);
    Room { packet, super_packet: unit.min(longest).max(packet), pieces: limits.segments }
}
