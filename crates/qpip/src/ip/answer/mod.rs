//! The frames that are answers: echoes, errors, questions and answers about
//! stations. And whether an error may be sent at all.
//!
//! Each builder writes one whole frame and gives its length, or `None` if it
//! does not fit. An answer has no payload in registered memory, so all of it
//! fits the head of a unit, or it is not sent: an echo with more data than that
//! stays without an answer.

use core::net::{IpAddr, Ipv6Addr};

use landfall_placement::{Duration, Instant};

use crate::wire::arp::{self, Arp};
use crate::wire::icmp::Echo;
use crate::wire::ndp::{self, Advertisement, Solicitation};
use crate::wire::{
    Envelope, Ip, Mac, Problem, ethernet, extension, icmp, icmp4, icmp6, ipv6, is_host, protocol,
};

mod asks;

pub use asks::{datagram, probe, router_solicitation};

/// All nodes on the link (RFC 4291, section 2.7.1).
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// An error with what it quotes is no longer than this (RFC 1812, section 4.3.2.3).
const ERROR_LEN_MAX_V4: usize = 576;

/// A station and an address of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// The station.
    pub mac: Mac,
    /// The address.
    pub address: IpAddr,
}

/// The same where it speaks IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host6 {
    /// The station.
    pub mac: Mac,
    /// The address.
    pub address: Ipv6Addr,
}

/// A packet that came: what an error is about.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    /// The stations.
    pub ethernet: &'a ethernet::Header,
    /// What was read of it.
    pub ip: &'a Ip,
    /// The first bytes of the frame.
    pub head: &'a [u8],
}

impl Arrived<'_> {
    /// Whether an error about this packet may be sent: never about an error, a
    /// piece that is not the first, what went to a group or to all, or came from
    /// nobody (RFC 1122, section 3.2.2; RFC 4443, section 2.4).
    ///
    /// That its destination is no subnet's broadcast address, the caller knows:
    /// it only complains about what was sent to an address of its own.
    #[must_use]
    pub fn may_cause_error(&self) -> bool {
        let ip = self.ip;
        !self.ethernet.is_to_group()
            && is_host(ip.destination)
            && ip.is_from_host()
            && ip.fragment.is_none_or(|piece| piece.offset == 0)
            && !is_error(ip.protocol, self.head.get(ip.payload_at..).unwrap_or_default())
    }

    /// The packet from its IP header on, as far as it is at hand.
    fn quotable(&self) -> Option<&[u8]> {
        let len = usize::from(self.ip.header_len) + self.ip.payload_len as usize;
        let at_hand = self.head.get(ethernet::LEN..)?;
        Some(&at_hand[..len.min(at_hand.len())])
    }

    fn back(&self, protocol: u8) -> Envelope {
        let (us, them) = (self.ethernet.destination, self.ethernet.source);
        Envelope::new((us, self.ip.destination), (them, self.ip.source), protocol)
    }
}

/// Whether a message is an error about something else. What is not at hand
/// counts as one.
fn is_error(protocol: u8, message: &[u8]) -> bool {
    match protocol {
        protocol::ICMP4 => icmp4::is_error(message),
        protocol::ICMP6 => icmp6::is_error(message),
        _ => false,
    }
}

/// Nobody listens on this port.
pub fn port_unreachable(about: &Arrived<'_>, into: &mut [u8]) -> Option<usize> {
    error(about, into, icmp4::write_port_unreachable, icmp6::write_port_unreachable)
}

/// This is the first piece of a packet, and not all others came in time.
pub fn fragments_missing(about: &Arrived<'_>, into: &mut [u8]) -> Option<usize> {
    error(about, into, icmp4::write_fragments_missing, icmp6::write_fragments_missing)
}

/// This protocol is not spoken here.
pub fn protocol_unreachable(about: &Arrived<'_>, into: &mut [u8]) -> Option<usize> {
    let problem = about.ip.unknown_protocol();
    error(about, into, icmp4::write_protocol_unreachable, |packet, into, pseudo| {
        icmp6::write_problem(&problem?, packet, into, pseudo)
    })
}

fn error(
    about: &Arrived<'_>,
    into: &mut [u8],
    write_v4: impl FnOnce(&[u8], &mut [u8]) -> Option<usize>,
    write_v6: impl FnOnce(&[u8], &mut [u8], u16) -> Option<usize>,
) -> Option<usize> {
    if !about.may_cause_error() {
        return None;
    }
    let (protocol, longest) = match about.ip.source {
        IpAddr::V4(_) => (protocol::ICMP4, ERROR_LEN_MAX_V4),
        IpAddr::V6(_) => (protocol::ICMP6, ipv6::MTU_MIN as usize),
    };
    let envelope = about.back(protocol);
    let quoted = shortened(about.quotable()?, &envelope, longest, into.len())?;
    // Less does not tell the sender which of its packets it was.
    let least = usize::from(about.ip.header_len) + icmp::QUOTED_LEN_MIN;
    if quoted.len() < least {
        return None;
    }
    seal(&envelope, icmp::LEN + quoted.len(), into, |message, pseudo| {
        if protocol == protocol::ICMP4 {
            write_v4(quoted, message)
        } else {
            write_v6(quoted, message, pseudo)
        }
    })
}

/// A header of an IPv6 packet that was not accepted has something wrong. `us` is
/// the sender: the address that the packet went to, or one of ours where it went
/// to a group.
pub fn parameter_problem(
    us: Host,
    ethernet: &ethernet::Header,
    problem: &Problem,
    head: &[u8],
    into: &mut [u8],
) -> Option<usize> {
    let is_to_group = ethernet.is_to_group() || problem.destination.is_multicast();
    let source = IpAddr::V6(problem.source);
    if is_to_group && !problem.even_to_group || !is_host(source) || !is_host(us.address) {
        return None;
    }
    let packet = head.get(ethernet::LEN..)?;
    let header = ipv6::read(packet).ok()?;
    let len = ipv6::LEN + usize::from(header.payload_len.get());
    let packet = &packet[..len.min(packet.len())];
    // What it carries lies behind what was not understood: an error is not
    // answered, nor what may be one.
    let (carried, message) = extension::quoted_protocol(header, &packet[ipv6::LEN..])?;
    if is_error(carried, message) {
        return None;
    }
    let envelope = Envelope::new((us.mac, us.address), (ethernet.source, source), protocol::ICMP6);
    let quoted = shortened(packet, &envelope, ipv6::MTU_MIN as usize, into.len())?;
    seal(&envelope, icmp::LEN + quoted.len(), into, |message, pseudo| {
        icmp6::write_problem(problem, quoted, message, pseudo)
    })
}

/// As much of a packet as the longest error and the room have place for.
fn shortened<'a>(
    packet: &'a [u8],
    envelope: &Envelope,
    longest: usize,
    room: usize,
) -> Option<&'a [u8]> {
    let longest = longest - envelope.ip_len() - icmp::LEN;
    let room = room.checked_sub(envelope.header_len() + icmp::LEN)?;
    Some(&packet[..packet.len().min(longest).min(room)])
}

/// Writes an envelope and what is in it.
fn seal(
    envelope: &Envelope,
    len: usize,
    into: &mut [u8],
    write: impl FnOnce(&mut [u8], u16) -> Option<usize>,
) -> Option<usize> {
    let at = envelope.write(into, len as u32)?;
    let message = into.get_mut(at..at + len)?;
    let written = write(message, envelope.pseudo(len as u32))?;
    debug_assert_eq!(written, len, "the length was announced");
    Some(at + len)
}

/// Yes, `us` is here. `them` is the sender of the question.
pub fn echo_reply(us: Host, them: Host, echo: &Echo<'_>, into: &mut [u8]) -> Option<usize> {
    if !is_host(us.address) || !is_host(them.address) {
        return None;
    }
    let protocol = if us.address.is_ipv4() { protocol::ICMP4 } else { protocol::ICMP6 };
    let envelope = Envelope::new((us.mac, us.address), (them.mac, them.address), protocol);
    seal(&envelope, icmp::LEN + echo.data.len(), into, |message, pseudo| {
        if protocol == protocol::ICMP4 {
            icmp4::write_echo_reply(echo, message)
        } else {
            icmp6::write_echo_reply(echo, message, pseudo)
        }
    })
}

/// Who has `target`? `station` is asked, or everybody.
pub fn question(us: Host, target: IpAddr, station: Option<Mac>, into: &mut [u8]) -> Option<usize> {
    match (us.address, target) {
        (IpAddr::V4(sender), IpAddr::V4(target)) => {
            let arp = Arp {
                operation: arp::Operation::Request,
                sender_mac: us.mac,
                sender,
                target_mac: [0; 6],
                target,
            };
            arp_frame(&arp, station.unwrap_or(ethernet::BROADCAST), into)
        }
        (IpAddr::V6(source), IpAddr::V6(target)) => {
            let group = ndp::solicited_node(target);
            let everybody = Host6 { mac: ndp::group_mac(group), address: group };
            let to = station.map_or(everybody, |mac| Host6 { mac, address: target });
            let asked = Solicitation { target, station: Some(us.mac) };
            let envelope = discovery(Host6 { mac: us.mac, address: source }, to);
            seal(&envelope, asked.message_len(), into, |message, pseudo| {
                asked.write(message, pseudo)
            })
        }
        _ => None,
    }
}

/// We have the address that this request asks for.
pub fn arp_reply(mac: Mac, asked: &Arp, into: &mut [u8]) -> Option<usize> {
    let reply = Arp {
        operation: arp::Operation::Reply,
        sender_mac: mac,
        sender: asked.target,
        target_mac: asked.sender_mac,
        target: asked.sender,
    };
    arp_frame(&reply, asked.sender_mac, into)
}

fn arp_frame(arp: &Arp, to: Mac, into: &mut [u8]) -> Option<usize> {
    let header = ethernet::Header {
        destination: to,
        source: arp.sender_mac,
        ethertype: ethernet::ARP.into(),
    };
    zerocopy::IntoBytes::write_to_prefix(&header, into).ok()?;
    let len = arp.write(into.get_mut(ethernet::LEN..)?)?;
    Some(ethernet::LEN + len)
}

/// We have `target`, which the sender `them` asked for. Who asks without an
/// address of its own is told by telling all (RFC 4861, section 7.2.4).
pub fn advertisement(mac: Mac, target: Ipv6Addr, them: Host6, into: &mut [u8]) -> Option<usize> {
    let is_solicited = is_host(IpAddr::V6(them.address));
    let to = if is_solicited {
        them
    } else {
        Host6 { mac: ndp::group_mac(ALL_NODES), address: ALL_NODES }
    };
    let answer = Advertisement {
        target,
        station: Some(mac),
        is_router: false,
        is_solicited,
        is_override: true,
    };
    let envelope = discovery(Host6 { mac, address: target }, to);
    seal(&envelope, answer.message_len(), into, |message, pseudo| answer.write(message, pseudo))
}

/// `address` is ours, for those who has known it elsewhere: for the start of an
/// interface.
pub fn announcement(us: Host, into: &mut [u8]) -> Option<usize> {
    match us.address {
        IpAddr::V4(address) => {
            // RFC 5227, section 3: a request for the own address.
            let arp = Arp {
                operation: arp::Operation::Request,
                sender_mac: us.mac,
                sender: address,
                target_mac: [0; 6],
                target: address,
            };
            arp_frame(&arp, ethernet::BROADCAST, into)
        }
        IpAddr::V6(address) => {
            let nobody = Host6 { mac: [0; 6], address: Ipv6Addr::UNSPECIFIED };
            advertisement(us.mac, address, nobody, into)
        }
    }
}

fn discovery(from: Host6, to: Host6) -> Envelope {
    Envelope {
        hop_limit: ndp::HOP_LIMIT,
        ..Envelope::new(
            (from.mac, from.address.into()),
            (to.mac, to.address.into()),
            protocol::ICMP6,
        )
    }
}

/// How often something may be done: this many a second, this many at once. For
/// errors (RFC 4443, section 2.4 (f)) and for whatever else strangers can cause.
#[derive(Clone, Copy, Debug)]
pub struct Limiter {
    /// Between two, in the long run.
    pause: Duration,
    burst: u32,
    left: u32,
    /// When the bucket last had `left`.
    since: Instant,
}

impl Limiter {
    /// At most `per_second` in the long run, at most `burst` at once; neither
    /// more than the other allows.
    #[must_use]
    pub const fn new(per_second: u32, burst: u32) -> Self {
        let pause = match per_second {
            0 => Duration::MAX,
            n => Duration::from_nanos(1_000_000_000 / n as u64),
        };
        Self { pause, burst, left: burst, since: Instant::ZERO }
    }

    /// Whether one more may be done now; it counts as done.
    pub fn allow(&mut self, now: Instant) -> bool {
        let passed = now.since(self.since).as_nanos();
        let gained = passed.checked_div(self.pause.as_nanos()).unwrap_or(passed);
        if gained >= u128::from(self.burst - self.left) {
            (self.left, self.since) = (self.burst, now);
        } else {
            self.left += gained as u32;
            self.since += self.pause * gained as u32;
        }
        let is_allowed = self.left > 0;
        self.left -= u32::from(is_allowed);
        is_allowed
    }
}

impl Default for Limiter {
    /// What Linux has for errors: 1000 a second, 50 at once.
    fn default() -> Self {
        Self::new(1000, 50)
    }
}

#[cfg(test)]
mod tests;
