//! [`Arrival`]: a packet for us, and what every protocol above IP asks of one.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use landfall_placement::{Check, InternetSum, Placement, Refusal, Unit};

use crate::adapter::interface::Interface;
use crate::adapter::links::Link;
use crate::ip::answer::Arrived;
use crate::ip::groups::Groups;
use crate::ip::reassembly::ReassembledId;
use crate::wire::arp::Arp;
use crate::wire::{Content, Ip, Mac, Packet, Stop, ethernet, ndp, parse, protocol};

/// All nodes of a link (RFC 4291, 2.7.1).
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// The same of IPv4 (RFC 1112, 4).
const ALL_STATIONS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);

/// A packet for us, or what its fragments became.
#[derive(Clone, Copy, Debug)]
pub(in crate::adapter) struct Arrival<'a> {
    /// The link, by its place among all.
    pub(in crate::adapter) link: usize,
    pub(in crate::adapter) ethernet: ethernet::Header,
    pub(in crate::adapter) ip: Ip,
    /// The bytes at hand, which `ip` counts in.
    pub(in crate::adapter) head: &'a [u8],
    /// Where it was joined from several: the payload of each but the last.
    pub(in crate::adapter) coalesced: Option<u16>,
    /// The packet that it is, if it came in fragments.
    pub(in crate::adapter) piece: Option<ReassembledId>,
}

impl Arrival<'_> {
    pub(in crate::adapter) const fn station(&self) -> Mac {
        self.ethernet.source
    }

    pub(in crate::adapter) const fn arrived(&self) -> Arrived<'_> {
        Arrived { ethernet: &self.ethernet, ip: &self.ip, head: self.head }
    }
}

/// What a frame for this station has in it.
#[derive(Debug)]
pub(in crate::adapter) enum Received<'a> {
    Arp(Arp),
    Packet(Arrival<'a>),
}

/// Reads a frame that came on a link, up to IP. `stations` are its stations where a tag stood
/// behind them.
#[inline]
pub(in crate::adapter) fn read<'a>(
    known: &Link,
    link: usize,
    unit: &Unit<'a>,
    stations: Option<ethernet::Header>,
) -> Result<Received<'a>, Stop> {
    let own = known.station().ok_or(Refusal::WrongAddress)?;
    let Packet { ethernet, content } = parse(unit.head, unit.len)?;
    let ethernet = stations.unwrap_or(ethernet);
    if !ethernet.is_to_group() && ethernet.destination != own.mac {
        return Err(Refusal::WrongAddress.into());
    }
    let ip = match content {
        Content::Arp(arp) => return Ok(Received::Arp(arp)),
        Content::Ip(ip) => ip,
    };
    // A server answers before there is an address.
    let is_of_dhcp = ip.protocol == protocol::UDP
        && known.host.dhcp.is_some()
        && (ip.destination == IpAddr::V4(Ipv4Addr::BROADCAST) || !ethernet.is_to_group());
    if !(is_for(own, &known.host.groups, &ethernet, &ip) || is_of_dhcp) || own.has(ip.source) {
        return Err(Refusal::WrongAddress.into());
    }
    let (head, coalesced) = (unit.head, unit.segment);
    Ok(Received::Packet(Arrival { link, ethernet, ip, head, coalesced, piece: None }))
}

/// What is to be done with a packet, or why it is not accepted.
pub(in crate::adapter) type Outcome = Result<Placement, Stop>;

/// Is a packet for this station? One host's, to its own station; that of a group that is
/// listened to; or discovery, to the groups that every station is in.
#[inline]
fn is_for(own: &Interface, groups: &Groups, ethernet: &ethernet::Header, ip: &Ip) -> bool {
    if own.has(ip.destination) {
        // RFC 1122, 3.3.6: what is for one host does not come to all stations.
        return !ethernet.is_to_group();
    }
    if groups.has(ip.destination) {
        return ethernet.is_to_group();
    }
    // Routers ask all stations which groups they listen to.
    let IpAddr::V6(group) = ip.destination else {
        return ip.destination == IpAddr::V4(ALL_STATIONS) && ip.protocol == protocol::IGMP;
    };
    let is_in = |address: &IpAddr| match address {
        IpAddr::V6(own) => ndp::solicited_node(*own) == group,
        IpAddr::V4(_) => false,
    };
    let is_member = group == ALL_NODES || own.addresses.iter().any(|own| is_in(&own.ip));
    is_member && ip.protocol == protocol::ICMP6
}

/// The pass over a packet above IP.
#[inline]
pub(in crate::adapter) fn sum_of(ip: &Ip, at: usize, len: u32) -> Result<Check, Stop> {
    let from = u16::try_from(at).map_err(|_| Refusal::Unsupported)?;
    Ok(Check::InternetSum { from, len, seed: ip.pseudo(len) })
}

/// Is the checksum of a packet above IP right, all of which is at hand?
pub(in crate::adapter) fn is_intact(arrival: &Arrival<'_>, at: usize, len: u32) -> bool {
    // Not all of it is at hand.
    let Some(bytes) = arrival.head.get(at..at + len as usize) else { return false };
    let mut sum = InternetSum::new();
    sum.add(bytes);
    sum.add_word(arrival.ip.pseudo(len));
    sum.sum() == 0xffff
}
