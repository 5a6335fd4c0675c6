//! The receive state machine: a frame came. What is it, whose, and where does
//! its payload belong?
//!
//! | file | what it takes |
//! | --- | --- |
//! | `predicted` | what comes as expected: most of TCP and UDP |
//! | `segments` | TCP |
//! | `datagrams` | UDP |
//! | `control` | ARP, ICMP and neighbour discovery |
//! | `pieces` | fragments of IP, and the packets they become |
//!
//! A packet without payload is looked at whole and at once. A payload's checksum
//! is the driver's pass, and nothing of the packet counts before its verdict.

mod control;
mod datagrams;
mod pieces;
mod predicted;
mod segments;

pub(super) use pieces::Pieces;
pub(super) use predicted::heard;

use core::net::{IpAddr, Ipv6Addr};

use landfall_placement::{Check, Instant, Placement, Refusal, Spans, Ticket, Unit};

use super::Adapter;
use super::interface::Interface;
use super::landing::Placing;
use crate::ip::answer::{self, Arrived, Host};
use crate::ip::reassembly::WholeId;
use crate::wire::{Content, Ip, Mac, Packet, Problem, Stop, ethernet, ndp, parse, protocol};

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
