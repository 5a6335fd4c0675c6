//! The receive state machine: a frame came. What is it, whose, and where does
//! its payload belong?
//!
//! | file | what it takes |
//! | --- | --- |
//! | `arrival` | a packet for us: what every protocol above IP asks of one |
//! | `segments` | TCP |
//! | `predicted` | what comes as the offload seam expects it |
//! | `control` | ARP, ICMP and neighbour discovery |
//! | `pieces` | fragments of IP, and the packets they become |
//!
//! A packet without payload is looked at whole and at once. A payload's checksum
//! is the driver's pass, and nothing of the packet counts before its verdict.

mod arrival;
mod control;
mod pieces;
mod predicted;
mod segments;

pub(super) use pieces::Pieces;
pub(super) use predicted::heard;

use core::net::SocketAddr;

use landfall_placement::{Check, Instant, Placement, Refusal, Spans, Ticket, Unit};

use super::Adapter;
use super::demux::any_of;
use super::landing::Placing;
use super::queue_pair::QueuePair;
use crate::tcp::tcb::CloseReason;
use crate::wire::icmp::{Report, Trouble};
use crate::wire::{Content, Packet, Stop, parse, protocol};
use crate::work::QueuePairId;
use arrival::{Arrival, Outcome, is_for, is_intact, sum_of};
use control::IcmpStep;

impl Adapter {
    #[inline]
    pub(super) fn receive(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        let link = self.links.of(unit.path).ok_or(Refusal::WrongAddress)?;
        if let Some(placement) = self.take_predicted(link, unit, into) {
            return Ok(placement);
        }
        match self.dispatch(now, link, unit, into) {
            Ok(placement) => Ok(placement),
            Err(Stop::NeedHead(len)) => Ok(Placement::NeedHead(len)),
            Err(Stop::Refused(refusal)) => Err(refusal),
            Err(Stop::Answer(problem)) => {
                control::complain(
                    now,
                    &mut self.context,
                    &mut self.links,
                    link,
                    unit.head,
                    &problem,
                );
                Err(Refusal::Unsupported)
            }
        }
    }

    #[inline]
    fn dispatch(
        &mut self,
        now: Instant,
        link: usize,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Outcome {
        let own = self.links[link].station().ok_or(Refusal::WrongAddress)?;
        let Packet { ethernet, content } = parse(unit.head, unit.len)?;
        if !ethernet.is_to_group() && ethernet.destination != own.mac {
            return Err(Refusal::WrongAddress.into());
        }
        let ip = match content {
            Content::Arp(arp) => {
                let woken =
                    control::handle_arp(now, &mut self.context, &mut self.links, link, &arp);
                self.wake(now, link, woken);
                return Ok(Placement::Consumed);
            }
            Content::Ip(ip) => ip,
        };
        if !is_for(own, &ethernet, &ip) || own.has(ip.source) {
            return Err(Refusal::WrongAddress.into());
        }
        let (head, coalesced) = (unit.head, unit.segment);
        let arrival = Arrival { link, ethernet, ip, head, coalesced, piece: None };
        if ip.fragment.is_some() {
            return self.take_piece(now, &arrival);
        }
        self.take_packet(now, &arrival, into)
    }

    #[inline]
    fn take_packet(&mut self, now: Instant, arrival: &Arrival<'_>, into: &mut Spans) -> Outcome {
        match arrival.ip.protocol {
            protocol::TCP => self.take_tcp(now, arrival, into),
            protocol::UDP => self.take_udp(now, arrival, into),
            protocol::ICMP4 if arrival.ip.source.is_ipv4() => {
                let step = control::handle_icmp4(now, &mut self.context, &mut self.links, arrival)?;
                self.take_icmp(now, step, arrival.link)
            }
            protocol::ICMP6 if arrival.ip.source.is_ipv6() => {
                let step = control::handle_icmp6(now, &mut self.context, &mut self.links, arrival)?;
                self.take_icmp(now, step, arrival.link)
            }
            _ => {
                let (context, links) = (&mut self.context, &mut self.links);
                Err(control::refuse_protocol(now, context, links, arrival).into())
            }
        }
    }

    fn take_icmp(&mut self, now: Instant, step: IcmpStep<'_>, link: usize) -> Outcome {
        match step {
            IcmpStep::Done => {}
            IcmpStep::Wake(woken) => self.wake(now, link, woken),
            IcmpStep::Report(report) => self.take_report(now, &report),
        }
        Ok(Placement::Consumed)
    }

    /// Keeps what a driver is to bring into its place, and names it.
    #[inline]
    fn keep(&mut self, placing: Placing) -> Result<Ticket, Stop> {
        let (index, generation) = self.placing.insert(placing).ok_or(Refusal::NoRoom)?;
        Ok(Ticket::new(index, generation))
    }
}

// UDP: a datagram takes the next request of the queue pair that is bound there.

impl Adapter {
    #[inline]
    fn take_udp(&mut self, now: Instant, arrival: &Arrival<'_>, into: &mut Spans) -> Outcome {
        let layer = arrival.ip.udp(arrival.head)?;
        let local = SocketAddr::new(arrival.ip.destination, layer.header.destination.get());
        let from = SocketAddr::new(arrival.ip.source, layer.header.source.get());
        let any = SocketAddr::new(any_of(local.ip()), local.port());
        let Some(pair) = self.bound_at(local).or_else(|| self.bound_at(any)) else {
            let (context, links) = (&mut self.context, &mut self.links);
            return Err(control::refuse_port(now, context, links, arrival).into());
        };
        let is_whole = arrival.piece.is_some();
        let check = if is_whole || !layer.header.has_sum() {
            Check::None
        } else {
            sum_of(&arrival.ip, layer.at, layer.len)?
        };
        let len = layer.payload_len;
        if len == 0 && check != Check::None && !is_intact(arrival, layer.at, layer.len) {
            return Err(Refusal::BadChecksum.into());
        }
        if !self.placing.has_room() {
            return Err(Refusal::NoRoom.into());
        }
        let known = self.pairs.named_mut(pair.index, pair.generation);
        let datagrams = known.and_then(QueuePair::datagrams_mut).ok_or(Refusal::UnknownId)?;
        // It writes nothing, and its checksum, if it has one, was looked at: no driver has to.
        let is_known = len == 0 || check == Check::None && datagrams.inbound.is_too_long(len);
        let taken = if is_known {
            datagrams.inbound.take_landed(from, len).map(Some)
        } else {
            datagrams.inbound.take(len, into).map(|()| None)
        };
        let Some(landed) = taken else {
            self.context.stats.datagrams_unexpected += 1;
            return Err(Refusal::NoRoom.into());
        };
        self.predict(pair);
        if let Some(was_too_long) = landed {
            self.datagram_came(pair, was_too_long);
            return Ok(Placement::Consumed);
        }
        let ticket = self.keep(Placing::Datagram { pair, from, len, piece: arrival.piece })?;
        Ok(Placement::Into { at: layer.payload_at as u16, check, ticket })
    }

    /// The datagram that was taken first landed, or failed its check.
    #[inline]
    pub(in crate::adapter) fn land_datagram(
        &mut self,
        pair: QueuePairId,
        datagram: Option<(SocketAddr, u32)>,
    ) {
        let known = self.pairs.named_mut(pair.index, pair.generation);
        let Some(datagrams) = known.and_then(QueuePair::datagrams_mut) else { return };
        let was_too_long = datagrams.inbound.land(datagram);
        match datagram {
            Some(_) => self.datagram_came(pair, was_too_long),
            None => self.settle(pair),
        }
    }

    #[inline]
    fn datagram_came(&mut self, pair: QueuePairId, was_too_long: bool) {
        self.context.stats.datagrams_received += 1;
        self.context.stats.datagrams_too_long += u64::from(was_too_long);
        self.settle(pair);
    }
}

// Errors of ICMP.

impl Adapter {
    /// An error about something that we are said to have sent. Anybody can write
    /// that; it is believed where it names what is really under way (RFC 5927).
    fn take_report(&mut self, now: Instant, report: &Report<'_>) {
        let about = &report.about;
        let (ours, theirs) = about.ports();
        let local = SocketAddr::new(about.source, ours);
        let remote = SocketAddr::new(about.destination, theirs);
        let is_true = match about.protocol {
            protocol::TCP => match self.connection_of((local, remote)) {
                Some(id) => self.tell_connection(now, id, report),
                None => false,
            },
            protocol::UDP => {
                let any = SocketAddr::new(any_of(local.ip()), ours);
                let is_bound = self.bound_at(local).or_else(|| self.bound_at(any)).is_some();
                is_bound
                    && self.links.has(local.ip())
                    && self.links.lower_mtu(now, report).is_some()
            }
            _ => false,
        };
        if is_true {
            self.context.stats.icmp_believed += 1;
        } else {
            self.context.stats.icmp_ignored += 1;
        }
    }

    fn tell_connection(&mut self, now: Instant, id: QueuePairId, report: &Report<'_>) -> bool {
        let pair = self.pairs.named_mut(id.index, id.generation);
        let Some((connection, _)) = pair.and_then(QueuePair::connection_mut) else { return false };
        // RFC 5927, 4.1: a segment that is under way.
        if !connection.tcb.is_under_way(report.about.seq()) {
            return false;
        }
        let is_open = connection.tcb.is_synchronized();
        match report.trouble {
            Trouble::TooBig { .. } => {
                if self.links.lower_mtu(now, report).is_none() {
                    return false;
                }
                let number = report.about.seq();
                let pair = self.pairs.named_mut(id.index, id.generation);
                if let Some((connection, _)) = pair.and_then(QueuePair::connection_mut) {
                    connection.tcb.handle_shorter_path(now, number);
                }
                self.mark_ready(id);
            }
            // RFC 5927, 5.2: an open connection survives even hard errors; and
            // soft ones may pass (RFC 1122, 4.2.3.9).
            _ if is_open => {}
            Trouble::PortUnreachable | Trouble::ProtocolUnreachable => {
                self.give_up(now, id, CloseReason::Refused);
            }
            Trouble::Prohibited { .. } => self.give_up(now, id, CloseReason::Unreachable),
            Trouble::NoRoute { .. }
            | Trouble::TimeExceeded { .. }
            | Trouble::ParameterProblem { .. } => {}
        }
        self.settle(id);
        true
    }
}
