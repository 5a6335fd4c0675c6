//! The receive state machine: a frame came. What is it, whose, and where does
//! its payload belong?
//!
//! | file | what it takes |
//! | --- | --- |
//! | `segments` | TCP |
//! | `predicted` | what comes as the offload seam expects it |
//! | `control` | ARP, ICMP and neighbour discovery |
//! | `pieces` | fragments of IP, and the packets they become |
//!
//! A packet without payload is looked at whole and at once. A payload's checksum
//! is the driver's pass, and nothing of the packet counts before its verdict.

mod control;
mod pieces;
mod predicted;
mod segments;

pub(super) use pieces::Pieces;
pub(super) use predicted::heard;

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use landfall_placement::{Check, Instant, Placement, Refusal, Spans, Ticket, Unit};

use super::Adapter;
use super::interface::Interface;
use super::landing::Placing;
use crate::adapter::demux::any_of;
use crate::adapter::queue_pair::QueuePair;
use crate::ip::answer;
use crate::ip::answer::{Arrived, Host};
use crate::ip::reassembly::WholeId;
use crate::wire::{Content, Ip, Mac, Packet, Problem, Stop, ethernet, ndp, parse, protocol};
use crate::work::QueuePairId;

/// All nodes of a link (RFC 4291, 2.7.1).
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// A packet for us, or what its fragments became.
#[derive(Clone, Copy, Debug)]
struct Arrival<'a> {
    /// The link, by its place among all.
    link: usize,
    ethernet: ethernet::Header,
    ip: Ip,
    /// The bytes at hand, which `ip` counts in.
    head: &'a [u8],
    /// Where it was joined from several: the payload of each but the last.
    coalesced: Option<u16>,
    /// The packet that it is, if it came in fragments.
    piece: Option<WholeId>,
}

impl Arrival<'_> {
    const fn station(&self) -> Mac {
        self.ethernet.source
    }

    const fn arrived(&self) -> Arrived<'_> {
        Arrived { ethernet: &self.ethernet, ip: &self.ip, head: self.head }
    }
}

/// What is to be done with a packet, or why it is not accepted.
type Outcome = Result<Placement, Stop>;

impl Adapter {
    #[inline]
    pub(super) fn receive(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        let link = self.link_of(unit.path).ok_or(Refusal::WrongAddress)?;
        if let Some(placement) = self.take_predicted(link, unit, into) {
            return Ok(placement);
        }
        match self.dispatch(now, link, unit, into) {
            Ok(placement) => Ok(placement),
            Err(Stop::NeedHead(len)) => Ok(Placement::NeedHead(len)),
            Err(Stop::Refused(refusal)) => Err(refusal),
            Err(Stop::Answer(problem)) => {
                self.complain(now, link, unit.head, &problem);
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
            Content::Arp(arp) => return Ok(self.take_arp(now, link, &arp)),
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
            protocol::ICMP4 if arrival.ip.source.is_ipv4() => self.take_icmp4(now, arrival),
            protocol::ICMP6 if arrival.ip.source.is_ipv6() => self.take_icmp6(now, arrival),
            _ => {
                if self.limiter.allow(now) {
                    let about = arrival.arrived();
                    self.queue_control(arrival.link, |into| {
                        answer::protocol_unreachable(&about, into)
                    });
                }
                Err(Refusal::Unsupported.into())
            }
        }
    }

    /// A header of IPv6 has something that its sender is to be told of.
    fn complain(&mut self, now: Instant, link: usize, head: &[u8], problem: &Problem) {
        let Some(own) = self.links[link].station() else { return };
        let destination = IpAddr::V6(problem.destination);
        let source = if own.has(destination) {
            Some(destination)
        } else {
            own.source_for(IpAddr::V6(problem.source))
        };
        let mac = own.mac;
        let (Some(address), Some(header)) = (source, head.first_chunk::<{ ethernet::LEN }>())
        else {
            return;
        };
        let header: ethernet::Header = zerocopy::transmute!(*header);
        let is_ours = header.destination == mac || header.is_to_group();
        if is_ours && self.limiter.allow(now) {
            let us = Host { mac, address };
            self.queue_control(link, |into| {
                answer::parameter_problem(us, &header, problem, head, into)
            });
        }
    }

    /// Keeps what a driver is to bring into its place, and names it.
    #[inline]
    fn keep(&mut self, placing: Placing) -> Result<Ticket, Stop> {
        let (index, generation) = self.placing.insert(placing).ok_or(Refusal::NoRoom)?;
        Ok(Ticket::new(index, generation))
    }
}

/// Is a packet for this station? One host's, to its own station; or neighbour
/// discovery, to the groups that every station is in.
#[inline]
fn is_for(own: &Interface, ethernet: &ethernet::Header, ip: &Ip) -> bool {
    if own.has(ip.destination) {
        // RFC 1122, 3.3.6: what is for one host does not come to all stations.
        return !ethernet.is_to_group();
    }
    let IpAddr::V6(group) = ip.destination else { return false };
    let is_in = |address: &IpAddr| match address {
        IpAddr::V6(own) => ndp::solicited_node(*own) == group,
        IpAddr::V4(_) => false,
    };
    let is_member = group == ALL_NODES || own.addresses.iter().any(|(own, _)| is_in(own));
    is_member && ip.protocol == protocol::ICMP6
}

/// The pass over a packet above IP.
#[inline]
fn sum_of(ip: &Ip, at: usize, len: u32) -> Result<Check, Stop> {
    let from = u16::try_from(at).map_err(|_| Refusal::Unsupported)?;
    Ok(Check::InternetSum { from, len, seed: ip.pseudo(len) })
}

/// Is the checksum of a packet above IP right, all of which is at hand?
fn is_intact(arrival: &Arrival<'_>, at: usize, len: u32) -> bool {
    let Some(bytes) = arrival.head.get(at..at + len as usize) else { return false };
    let mut sum = landfall_placement::InternetSum::new();
    sum.add(bytes);
    sum.add_word(arrival.ip.pseudo(len));
    sum.sum() == 0xffff
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
            return self.refuse_port(now, arrival);
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
            self.stats.datagrams_unexpected += 1;
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
        self.stats.datagrams_received += 1;
        self.stats.datagrams_too_long += u64::from(was_too_long);
        self.settle(pair);
    }

    /// Nobody is bound there: its sender is told, if that is allowed.
    fn refuse_port(&mut self, now: Instant, arrival: &Arrival<'_>) -> Outcome {
        if self.limiter.allow(now) {
            let about = arrival.arrived();
            self.queue_control(arrival.link, |into| answer::port_unreachable(&about, into));
        }
        Err(Refusal::WrongAddress.into())
    }
}
