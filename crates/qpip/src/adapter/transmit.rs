//! The transmit state machine: whose turn it is on a link, and what leaves in it.
//!
//! [`Transmissions`] are what drivers read meanwhile.
//!
//! What does not live here: what belongs to no queue pair (`links`), and the rest of a
//! packet that has begun to leave in pieces (`fragments`). Both leave first.

use core::net::SocketAddr;

use landfall_placement::{Instant, Segment, SegmentKind, Spans, Ticket, Transmit};
use landfall_tables::{EntryKey, Table};
use zerocopy::IntoBytes;

use super::context::Context;
use super::fragments::Outgoing;
use super::links::{Link, Links, NO_TICKET};
use super::queue_pair::{Connection, QueuePair, Role};
use super::queue_pairs::QueuePairs;
use super::udp::Datagrams;
use crate::ip::neighbours::Found;
use crate::ip::path_mtu::PathSize;
use crate::queue::Hold;
use crate::tcp::tcb::CloseReason;
use crate::tcp::{Draft, Room, Tcb, TcpConfig};
use crate::wire::{Envelope, Mac, checksum, group, ipv4, ipv6, protocol, tcp, udp};
use crate::work::{QueuePairId, Status};

/// Memory that drivers read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sending {
    pub(super) pair: QueuePairId,
    what: Held,
    /// How many transmissions of it are not over.
    left: u32,
}

/// What of a queue pair is held.
#[derive(Clone, Copy, Debug)]
enum Held {
    Requests(Hold),
    Datagram(u32),
}

impl Sending {
    /// One of its transmissions is over.
    #[inline]
    pub(super) fn release(&self, pair: &mut QueuePair) {
        match (&mut pair.role, self.what) {
            (Role::Stream(stream), Held::Requests(hold)) if self.left == 0 => {
                stream.queues.send.release(hold);
            }
            (Role::Datagrams(datagrams), Held::Datagram(number)) => {
                datagrams.outbound.release(number);
            }
            // A segment that left in pieces holds its requests until the last is gone.
            _ => {}
        }
    }
}

/// All of them, by the ticket that the driver gives back.
#[derive(Debug)]
pub(super) struct Transmissions(Table<Sending>);

impl Transmissions {
    pub(super) const fn new(most: usize) -> Self {
        Self(Table::new(most))
    }

    /// Back-pressure: may drivers hold more?
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.0.has_room()
    }

    #[inline]
    fn begin(&mut self, sending: Sending) -> Option<Ticket> {
        let EntryKey { index, generation } = self.0.insert(sending)?;
        Some(Ticket::new(index, generation))
    }

    fn cancel(&mut self, ticket: Ticket) {
        self.0.remove(ticket.index());
    }

    /// One of the transmissions of some memory is over.
    #[inline]
    pub(super) fn finish(&mut self, ticket: Ticket) -> Option<Sending> {
        let sending = self.0.named_mut(ticket.index(), ticket.generation())?;
        sending.left = sending.left.saturating_sub(1);
        let sending = *sending;
        if sending.left == 0 {
            self.0.remove(ticket.index());
        }
        Some(sending)
    }
}

/// A queue pair's turn on a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) now: Instant,
    pub(super) link: usize,
    pub(super) id: QueuePairId,
}

/// Where what leaves is written: its headers, and the memory of its payload.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    pub(super) head: &'a mut [u8],
    pub(super) from: &'a mut Spans,
}

/// A packet that is to leave.
#[derive(Debug)]
struct Packet<'a> {
    outgoing: Outgoing<'a>,
    /// How much of it its path carries at once.
    mtu: u32,
    /// What its driver holds meanwhile.
    held: Option<Held>,
}

/// A datagram that is to leave.
#[derive(Clone, Copy, Debug)]
struct Datagram {
    source: SocketAddr,
    to: SocketAddr,
    /// The station of the neighbour that leads there.
    station: Mac,
    /// How many routers may forward it, where that is chosen.
    hops: Option<u8>,
    /// Which one of its queue pair it is.
    number: u32,
    len: u32,
}

/// What became of a queue pair's turn.
pub(super) enum TurnOutcome {
    /// It sends this, and may have more.
    Sends(Transmit),
    /// It has nothing to send, and nothing happened to it.
    Nothing,
    /// It has nothing to send now.
    Idle,
    /// It waits for a neighbour.
    Waits,
    /// Its next datagram leaves on another link, where it takes its turn.
    Elsewhere,
    /// What it had could not leave and is over; it may have more.
    Again,
}

/// A queue pair may have something to send: it takes its turn on its link.
#[inline]
pub(super) fn mark_ready(
    context: &Context,
    links: &mut Links,
    pairs: &mut QueuePairs,
    id: QueuePairId,
) {
    // It may be gone already.
    let Some(pair) = pairs.named_mut(id) else { return };
    let waits = pair.is_parked && matches!(pair.role, Role::Stream(_));
    if pair.is_ready || waits {
        return;
    }
    let link = match &pair.role {
        Role::Stream(_) => pair.connection().map(|connection| connection.link()),
        Role::Datagrams(datagrams) => {
            let to = datagrams.outbound.next().map(|next| next.to.ip());
            // Where no way leads there any more, any link finds that out.
            to.map(|to| datagrams.route(links, to).map_or(0, |route| route.link))
        }
    };
    if let Some(link) = link.and_then(|link| links.get_mut(link)) {
        pair.is_ready = true;
        link.ready.push_back(id);
        // Those that were destroyed while nothing left may still be in the list.
        if link.ready.len() > context.config.queue_pairs {
            link.ready.retain(|id| pairs.named(*id).is_some());
        }
    }
}

/// A queue pair waits until a neighbour of the link has answered.
pub(super) fn park(context: &Context, links: &mut Links, pairs: &mut QueuePairs, turn: &Turn) {
    let Turn { link, id, .. } = *turn;
    let Some(pair) = pairs.named_mut(id) else {
        debug_assert!(false, "it has just had its turn");
        return;
    };
    pair.is_parked = true;
    let is_stream = matches!(pair.role, Role::Stream(_));
    let parked = &mut links[link].parked;
    if is_stream || !parked.contains(&id) {
        parked.push(id);
    }
    if parked.len() > context.config.queue_pairs {
        parked.retain(|id| pairs.named(*id).is_some());
    }
}

/// The next queue pair that has its turn on this link.
#[inline]
pub(super) fn next_turn(
    links: &mut Links,
    pairs: &mut QueuePairs,
    link: usize,
) -> Option<QueuePairId> {
    loop {
        let id = links[link].ready.pop_front()?;
        let Some(pair) = pairs.named_mut(id) else { continue };
        if core::mem::take(&mut pair.is_ready) {
            return Some(id);
        }
    }
}

impl Transmissions {
    /// A queue pair has its turn. What it sends is written to the frame.
    #[inline]
    pub(super) fn take_turn(
        &mut self,
        context: &mut Context,
        links: &mut Links,
        pair: &mut QueuePair,
        turn: &Turn,
        frame: &mut Frame<'_>,
    ) -> TurnOutcome {
        frame.from.clear();
        match &mut pair.role {
            Role::Stream(_) => self.next_segment(context, links, pair, turn, frame),
            Role::Datagrams(datagrams) => {
                self.next_datagram(context, links, datagrams, turn, frame)
            }
        }
    }

    /// The next segment of a connection.
    #[inline]
    fn next_segment(
        &mut self,
        context: &mut Context,
        links: &mut Links,
        pair: &mut QueuePair,
        turn: &Turn,
        frame: &mut Frame<'_>,
    ) -> TurnOutcome {
        let Turn { now, link, .. } = *turn;
        let Some((connection, queues, config)) = pair.configured_mut(&context.config.tcp) else {
            debug_assert!(false, "only a stream with a connection is marked as ready");
            return TurnOutcome::Nothing;
        };
        let station = match links[link].neighbours.lookup(now, connection.next_hop) {
            Found::Station(station) => Some(station),
            Found::Waiting => return TurnOutcome::Waits,
            Found::Unreachable if !connection.tcb.is_synchronized() => {
                pair.abort(now, context, links, CloseReason::Unreachable);
                return TurnOutcome::Idle;
            }
            // As if it were lost on the way: an open connection survives it
            // (RFC 1122, 4.2.3.9), and its own timers decide.
            Found::Unreachable => None,
        };
        let to = connection.tcb.ends().remote.ip();
        let most = connection.tcb.most_packet() + ip_len(&connection.tcb);
        let size = links.use_path(now, to, link, most);
        let room = room(&links[link], size, connection);
        let tcp = &mut connection.tcb;
        let Some(draft) = tcp.poll_transmit(now, &room, config, queues, frame.from) else {
            return TurnOutcome::Idle;
        };
        context.stats.segments_sent += 1;
        let mut packet_len = room.packet;
        if draft.probes_path
            && let Some(packet) = connection.tcb.mtu_probe_packet()
        {
            packet_len = packet;
            context.stats.mtu_probes += 1;
            links.handle_mtu_probe(now, to, packet + ip_len(&connection.tcb));
        }
        let mut header = [0; tcp::LEN_MAX];
        let packet = station.and_then(|station| {
            packet_of(&links[link], connection, config, station, &draft, &mut header)
        });
        let unit = packet.and_then(|outgoing| {
            let mtu = packet_len + outgoing.envelope.ip_len() as u32;
            let held = (draft.payload > 0).then_some(Held::Requests(draft.hold));
            self.write(context, links, turn, Packet { outgoing, mtu, held }, frame)
        });
        if unit.is_none() {
            queues.send.release(draft.hold);
        }
        unit.map_or(TurnOutcome::Again, TurnOutcome::Sends)
    }

    /// The next datagram of a queue pair.
    fn next_datagram(
        &mut self,
        context: &mut Context,
        links: &mut Links,
        datagrams: &mut Datagrams,
        turn: &Turn,
        frame: &mut Frame<'_>,
    ) -> TurnOutcome {
        let Turn { now, link, .. } = *turn;
        let (Some(local), Some(next)) = (datagrams.local, datagrams.outbound.next()) else {
            return TurnOutcome::Nothing;
        };
        let to = next.to.ip();
        let Some(route) = datagrams.route(links, to) else {
            datagrams.outbound.fail(Status::Unreachable);
            return TurnOutcome::Again;
        };
        if route.link != link {
            return TurnOutcome::Elsewhere;
        }
        // Nobody is asked which stations listen to a group.
        let found = if to.is_multicast() {
            Found::Station(group::stations(to))
        } else {
            links[link].neighbours.lookup(now, route.next_hop)
        };
        let station = match found {
            Found::Station(station) => station,
            Found::Waiting => {
                datagrams.outbound.wait();
                return TurnOutcome::Waits;
            }
            Found::Unreachable => {
                datagrams.outbound.fail(Status::Unreachable);
                return TurnOutcome::Again;
            }
        };
        let (number, len) = (next.number, next.gather.len());
        next.gather.slice(0, len, frame.from);
        let source = SocketAddr::new(route.source, local.port());
        let hops = to.is_multicast().then_some(datagrams.groups.hops);
        let datagram = Datagram { source, to: next.to, station, hops, number, len };
        match self.write_datagram(context, links, turn, &datagram, frame) {
            Some((unit, units)) => {
                datagrams.outbound.begin(units);
                context.stats.datagrams_sent += 1;
                TurnOutcome::Sends(unit)
            }
            None => {
                datagrams.outbound.fail(Status::Unreachable);
                TurnOutcome::Again
            }
        }
    }

    /// Writes a datagram or its first piece. Returns in how many units it leaves.
    fn write_datagram(
        &mut self,
        context: &mut Context,
        links: &mut Links,
        turn: &Turn,
        datagram: &Datagram,
        frame: &mut Frame<'_>,
    ) -> Option<(Transmit, u32)> {
        let Datagram { source, to, station, hops, number, len } = *datagram;
        let own = links[turn.link].station()?.mac;
        let mut envelope = Envelope::new((own, source.ip()), (station, to.ip()), protocol::UDP);
        envelope.hop_limit = hops.unwrap_or(envelope.hop_limit);
        let total = len + udp::LEN as u32;
        let header = udp::Header {
            source: source.port().into(),
            destination: to.port().into(),
            len: (total as u16).into(),
            sum: envelope.pseudo(total).into(),
        };
        let mtu = links.path_mtu(turn.now, to.ip(), turn.link);
        // What is cut here anyway may be cut again on its way.
        envelope.dont_fragment = total + envelope.ip_len() as u32 <= mtu;
        let outgoing = Outgoing {
            header: header.as_bytes(),
            sum_offset: udp::SUM_OFFSET,
            payload: len,
            cut: None,
            envelope,
            ticket: NO_TICKET,
        };
        let units = outgoing.units(mtu)?;
        let held = Some(Held::Datagram(number));
        let unit = self.write(context, links, turn, Packet { outgoing, mtu, held }, frame)?;
        Some((unit, units))
    }

    /// Writes a packet or its first piece, and notes what its driver holds.
    #[inline]
    fn write(
        &mut self,
        context: &mut Context,
        links: &mut Links,
        turn: &Turn,
        packet: Packet<'_>,
        frame: &mut Frame<'_>,
    ) -> Option<Transmit> {
        let Packet { mut outgoing, mtu, held } = packet;
        let left = outgoing.units(mtu)?;
        if let Some(what) = held {
            outgoing.ticket = self.begin(Sending { pair: turn.id, what, left })?;
        }
        let id = links.fragment_id(left > 1);
        let Some((unit, leaving)) = outgoing.write(mtu, id, frame.head, frame.from) else {
            self.cancel(outgoing.ticket);
            return None;
        };
        context.stats.fragmented += u64::from(leaving.is_some());
        links[turn.link].leaving = leaving;
        Some(unit)
    }
}

/// The packet of a segment, whose header is written to `header`.
#[inline]
fn packet_of<'a>(
    link: &Link,
    connection: &Connection,
    config: &TcpConfig,
    station: Mac,
    draft: &Draft,
    header: &'a mut [u8; tcp::LEN_MAX],
) -> Option<Outgoing<'a>> {
    let (local, remote) = connection.tcb.ends.addresses();
    let own = link.station()?.mac;
    let written = draft.header(local, remote);
    let header_len = written.header_len() as u32;
    let sum = checksum::with_len(connection.addresses, header_len + draft.payload);
    let len = written.write(header, sum)?;
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
    Some(Outgoing {
        header: header.get(..len)?,
        sum_offset: tcp::SUM_OFFSET,
        payload: draft.payload,
        cut,
        envelope,
        ticket: NO_TICKET,
    })
}

/// The header of IP in front of what a connection sends.
#[inline]
fn ip_len(tcb: &Tcb) -> u32 {
    if tcb.ends.is_v4() { ipv4::LEN as u32 } else { ipv6::LEN as u32 }
}

/// How large a segment of this connection may be now.
#[inline]
fn room(link: &Link, size: PathSize, connection: &Connection) -> Room {
    let is_v4 = connection.tcb.ends.is_v4();
    let ip = ip_len(&connection.tcb);
    let packet = size.mtu.saturating_sub(ip);
    let probe = size.probe.map_or(0, |probe| probe.saturating_sub(ip));
    let bare = Room { packet, super_packet: packet, pieces: 1, probe };
    let Some(limits) = link.limits else { return bare };
    let offloads = limits.offloads;
    let cuts = if is_v4 { offloads.segment_tcp4 } else { offloads.segment_tcp6 };
    if !cuts {
        return bare;
    }
    // The length fields of IP have 16 bits; that of IPv6 does not count its header.
    let longest = if is_v4 { 65_535 - ip } else { 65_535 };
    let unit = limits.super_unit.saturating_sub(crate::wire::ethernet::LEN as u32 + ip);
    let super_packet = unit.min(longest).max(packet);
    Room { packet, super_packet, pieces: limits.segments, probe }
}
