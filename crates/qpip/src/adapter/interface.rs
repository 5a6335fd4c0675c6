//! [`Interface`]: a station on an Ethernet, and who it is on IP; [`Link`]: what
//! the adapter keeps of one. Which way leads to an address.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;

use landfall_placement::{Ecn, PathId, PathLimits, Peer, Ticket, Transmit};

use super::fragments::Leaving;
use crate::ip::neighbours;
use crate::ip::neighbours::Neighbours;
use crate::wire::{Mac, ethernet, ipv6, is_host};
use crate::work::QueuePairId;

/// A station of its own on the Ethernet of a path. It answers ARP, neighbour
/// discovery and echoes for its own addresses, and for nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// The station's address.
    pub mac: Mac,
    /// Its IP addresses, each with the length of the prefix that it shares with
    /// all others on this link.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Who forwards to everybody else: the first of each version of IP is used.
    pub gateways: Vec<IpAddr>,
    /// Stations that are known from the start, and are never asked for.
    pub neighbours: Vec<(IpAddr, Mac)>,
}

impl Interface {
    /// May a station be so?
    pub(super) fn is_valid(&self) -> bool {
        let prefix_fits = |(address, prefix): &(IpAddr, u8)| *prefix <= bits(*address);
        let is_station = |mac: Mac| !ethernet::is_group(mac) && mac != [0; 6];
        is_station(self.mac)
            && !self.addresses.is_empty()
            && self.addresses.iter().all(prefix_fits)
            && self.addresses.iter().all(|(address, _)| is_remote(*address))
            && self.gateways.iter().all(|gateway| is_remote(*gateway))
            && self.neighbours.iter().all(|(ip, mac)| is_remote(*ip) && is_station(*mac))
    }

    pub(super) fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|(own, _)| *own == address)
    }

    /// The address of ours whose link this one is on, and the length of the
    /// prefix that says so.
    fn on_link(&self, address: IpAddr) -> Option<(IpAddr, u8)> {
        let shares = |(own, prefix): &&(IpAddr, u8)| shares_prefix(*own, address, *prefix);
        self.addresses.iter().filter(shares).max_by_key(|(_, prefix)| *prefix).copied()
    }

    /// The address of ours to ask for a neighbour's station with.
    pub(super) fn source_for(&self, neighbour: IpAddr) -> Option<IpAddr> {
        let near = self.on_link(neighbour).map(|(own, _)| own);
        near.or_else(|| {
            let mut own = self.addresses.iter().map(|(own, _)| *own);
            own.find(|own| own.is_ipv4() == neighbour.is_ipv4())
        })
    }

    fn gateway(&self, version_of: IpAddr) -> Option<IpAddr> {
        self.gateways.iter().copied().find(|gateway| gateway.is_ipv4() == version_of.is_ipv4())
    }

    /// The address of ours to send from through a gateway: one of its link, or
    /// any that is meaningful beyond this link.
    fn source_through(&self, gateway: IpAddr) -> Option<IpAddr> {
        let mut usable = self
            .addresses
            .iter()
            .map(|(own, _)| *own)
            .filter(|own| own.is_ipv4() == gateway.is_ipv4() && !is_link_local(*own));
        let first = usable.clone().next();
        let near = self.on_link(gateway).map(|(own, _)| own);
        usable.find(|own| Some(*own) == near).or(first)
    }
}

/// The bits of an address.
const fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

const fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// Can a host on a network have this address?
pub(super) const fn is_remote(address: IpAddr) -> bool {
    is_host(address) && !address.is_loopback()
}

fn shares_prefix(own: IpAddr, other: IpAddr, prefix: u8) -> bool {
    let (differs, unused) = match (own, other) {
        (IpAddr::V4(own), IpAddr::V4(other)) => {
            (u128::from(own.to_bits() ^ other.to_bits()), 32u8.saturating_sub(prefix))
        }
        (IpAddr::V6(own), IpAddr::V6(other)) => {
            (own.to_bits() ^ other.to_bits(), 128u8.saturating_sub(prefix))
        }
        _ => return false,
    };
    differs.checked_shr(u32::from(unused)).unwrap_or(0) == 0
}

/// The way to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    /// The link, by its place among all.
    pub(super) link: usize,
    /// The address of ours to send from.
    pub(super) source: IpAddr,
    /// The neighbour to send to.
    pub(super) next_hop: IpAddr,
}

/// A path, the interface on it, and what waits there.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) path: PathId,
    /// Nothing while the path is down.
    pub(super) limits: Option<PathLimits>,
    pub(super) interface: Option<Interface>,
    /// Who has which address on this link.
    pub(super) neighbours: Neighbours,
    /// What they had changed when those who wait were woken last.
    pub(super) changes_seen: u64,
    /// Whole packets that wait to be sent.
    pub(super) control: VecDeque<Control>,
    /// Queue pairs that may have something to send, each in its turn.
    pub(super) ready: VecDeque<QueuePairId>,
    /// Queue pairs that wait until a neighbour has answered.
    pub(super) parked: Vec<QueuePairId>,
    /// The packet of which some fragments have left.
    pub(super) leaving: Option<Leaving>,
    /// The queue pair that something came for last: likely the next one, too.
    pub(super) last_pair: Option<QueuePairId>,
}

impl Link {
    pub(super) fn new(path: PathId) -> Self {
        Self {
            path,
            limits: None,
            interface: None,
            neighbours: Neighbours::new(neighbours::Config {
                capacity: 0,
                ..neighbours::Config::default()
            }),
            changes_seen: 0,
            control: VecDeque::new(),
            ready: VecDeque::new(),
            parked: Vec::new(),
            leaving: None,
            last_pair: None,
        }
    }

    /// How many bytes of IP the link carries in one packet; zero while it is down.
    #[inline]
    pub(super) fn mtu(&self) -> u32 {
        let most = self.limits.map_or(0, |limits| limits.unit);
        most.saturating_sub(ethernet::LEN as u32)
    }

    /// The station of ours, where packets of both versions of IP can leave.
    pub(super) fn station(&self) -> Option<&Interface> {
        self.interface.as_ref().filter(|_| self.limits.is_some())
    }
}

/// What IPv6 needs, and less than which IPv4 has on no Ethernet.
pub(super) const LEAST_MTU: u32 = 576;
const _: () = assert!(LEAST_MTU < ipv6::MTU_MIN);

/// The way to an address, from any of ours or from the one that is given.
pub(super) fn route(links: &[Link], from: Option<IpAddr>, to: IpAddr) -> Option<Route> {
    let interfaces = || {
        let known = links.iter().enumerate();
        known
            .filter_map(|(index, link)| Some((index, link.interface.as_ref()?)))
            .filter(|(_, interface)| from.is_none_or(|from| interface.has(from)))
    };
    if !is_remote(to) || links.iter().any(|link| link.has(to)) {
        return None;
    }
    let near = interfaces()
        .filter_map(|(link, interface)| {
            let (source, prefix) = interface.on_link(to)?;
            Some((prefix, Route { link, source: from.unwrap_or(source), next_hop: to }))
        })
        .max_by_key(|(prefix, _)| *prefix);
    if let Some((_, route)) = near {
        return Some(route);
    }
    interfaces().find_map(|(link, interface)| {
        let next_hop = interface.gateway(to)?;
        let source = from.or_else(|| interface.source_through(next_hop))?;
        Some(Route { link, source, next_hop })
    })
}

impl Link {
    /// Is this address ours?
    pub(super) fn has(&self, address: IpAddr) -> bool {
        self.interface.as_ref().is_some_and(|interface| interface.has(address))
    }
}

// `Control`: whole packets without memory of any user: ARP, neighbour
// discovery, ICMP, resets and what else belongs to no queue pair.

/// The longest such packet: what every driver has room for as a head.
pub(super) const CONTROL_MAX: usize = 256;

/// The ticket of whatever holds no memory.
pub(super) const NO_TICKET: Ticket = Ticket::from_raw(u64::MAX);

/// A packet that is complete.
#[derive(Clone, Debug)]
pub(super) struct Control {
    len: u16,
    bytes: [u8; CONTROL_MAX],
}

impl Control {
    /// What `write` writes, if it found room; it gives the length.
    pub(super) fn new(write: impl FnOnce(&mut [u8]) -> Option<usize>) -> Option<Self> {
        let mut bytes = [0; CONTROL_MAX];
        let len = write(&mut bytes)?;
        Some(Self { len: len.min(CONTROL_MAX) as u16, bytes })
    }

    /// The packet as a unit, if `head` has room for it.
    pub(super) fn transmit(&self, head: &mut [u8]) -> Option<Transmit> {
        let len = usize::from(self.len);
        head.get_mut(..len)?.copy_from_slice(&self.bytes[..len]);
        Some(bare(self.len))
    }
}

/// A unit without payload whose checksums are right already.
pub(super) const fn bare(head_len: u16) -> Transmit {
    Transmit {
        to: Peer::Unaddressed,
        head_len,
        segment: None,
        checksum: None,
        sum_only: 0,
        ecn: Ecn::NotCapable,
        ticket: NO_TICKET,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(path: u16, addresses: &[(&str, u8)], gateways: &[&str]) -> Link {
        let mut link = Link::new(PathId(path));
        let parse = |text: &str| text.parse::<IpAddr>().unwrap();
        link.interface = Some(Interface {
            mac: [2, 0, 0, 0, 0, path as u8],
            addresses: addresses.iter().map(|(text, prefix)| (parse(text), *prefix)).collect(),
            gateways: gateways.iter().map(|text| parse(text)).collect(),
            neighbours: Vec::new(),
        });
        link
    }

    #[test]
    fn the_longest_prefix_leads_there_and_a_gateway_to_all_else() {
        let links = [
            link(0, &[("10.0.0.1", 8), ("fe80::1", 64), ("2001:db8::1", 64)], &["10.9.9.9"]),
            link(1, &[("10.1.0.1", 16)], &["10.1.0.254", "2001:db8::ff"]),
        ];
        let to = |text: &str| {
            let found = route(&links, None, text.parse().unwrap())?;
            Some((found.link, std::format!("{} via {}", found.source, found.next_hop)))
        };
        assert_eq!(to("10.1.2.3"), Some((1, "10.1.0.1 via 10.1.2.3".into())));
        assert_eq!(to("10.2.2.3"), Some((0, "10.0.0.1 via 10.2.2.3".into())));
        assert_eq!(to("192.0.2.1"), Some((0, "10.0.0.1 via 10.9.9.9".into())));
        assert_eq!(to("fe80::7"), Some((0, "fe80::1 via fe80::7".into())));
        assert_eq!(to("2001:db8::7"), Some((0, "2001:db8::1 via 2001:db8::7".into())));
        assert_eq!(to("10.0.0.1"), None, "that is us");
        assert_eq!(to("224.0.0.1"), None, "that is no host");
        let from = Some("10.1.0.1".parse().unwrap());
        let found = route(&links, from, "192.0.2.1".parse().unwrap()).unwrap();
        assert_eq!((found.link, found.next_hop), (1, "10.1.0.254".parse().unwrap()));
    }

    #[test]
    fn a_prefix_of_no_bits_has_everybody_on_the_link() {
        let links = [link(0, &[("10.0.0.1", 0)], &[])];
        let found = route(&links, None, "192.0.2.1".parse().unwrap()).unwrap();
        assert_eq!(found.next_hop, "192.0.2.1".parse::<IpAddr>().unwrap());
        assert!(route(&links, None, "2001:db8::1".parse().unwrap()).is_none());
    }

    #[test]
    fn interfaces_that_cannot_be_are_noticed() {
        let good = link(1, &[("10.0.0.1", 8)], &[]).interface.unwrap();
        assert!(good.is_valid());
        let bad = [
            Interface { mac: [1, 0, 0, 0, 0, 1], ..good.clone() },
            Interface { mac: [0; 6], ..good.clone() },
            Interface { addresses: Vec::new(), ..good.clone() },
            Interface { addresses: [("10.0.0.1".parse().unwrap(), 33)].to_vec(), ..good.clone() },
            Interface { addresses: [("127.0.0.1".parse().unwrap(), 8)].to_vec(), ..good.clone() },
            Interface { addresses: [("ff02::1".parse().unwrap(), 8)].to_vec(), ..good.clone() },
            Interface { gateways: [("0.0.0.0".parse().unwrap())].to_vec(), ..good },
        ];
        assert!(bad.iter().all(|interface| !interface.is_valid()));
    }

    #[test]
    fn what_has_no_room_is_not_sent() {
        let control = Control::new(|bytes| {
            bytes[..3].copy_from_slice(b"abc");
            Some(3)
        });
        let control = control.unwrap();
        assert!(control.transmit(&mut [0; 2]).is_none());
        let mut head = [0; 8];
        assert_eq!(control.transmit(&mut head).unwrap().head_len, 3);
        assert_eq!(&head[..4], b"abc\0");
        assert!(Control::new(|_| None).is_none());
    }
}
