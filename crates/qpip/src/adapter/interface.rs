//! [`Interface`]: a station on an Ethernet, and who it is on IP.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use super::vlan;
use crate::offload::OwnAddress;
use crate::wire::{Mac, ethernet, is_host};

/// A station of its own on the Ethernet of a path. It answers ARP, neighbour
/// discovery and echoes for its own addresses, and for nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// The station's address.
    pub mac: Mac,
    /// Its IP addresses.
    pub addresses: Vec<OwnAddress>,
    /// Who forwards to everybody else: the first of each version of IP is used.
    pub gateways: Vec<IpAddr>,
    /// Stations that are known from the start, and are never asked for.
    pub neighbours: Vec<(IpAddr, Mac)>,
    /// The VLAN that it is in (IEEE 802.1Q), 1 to 4094: every frame leaves with its tag, which
    /// takes four bytes of what the path carries, and frames without it are not accepted.
    /// No device cuts segments then.
    pub vlan: Option<u16>,
    /// Of its addresses, those that nothing new is sent from while there is another.
    pub deprecated: Vec<IpAddr>,
    /// Its addresses are asked for before they are used, and given up where another station
    /// insists on having one (RFC 5227, 4862). Without this they are used at once and for ever.
    pub detects_conflicts: bool,
    /// All stations are told its addresses when it begins, and whenever the link comes up: those
    /// that know another station by one of them, as of an adapter that was here before, forget
    /// that one (RFC 5227, 2.3; RFC 4861, 7.2.6). Where conflicts are detected, and of addresses
    /// that are found out, that is done anyway.
    pub announces: bool,
    /// A server gives it an address of IPv4, a gateway and an MTU (DHCP, RFC 2131).
    pub dhcp: bool,
    /// How it calls itself then: the first 24 bytes.
    pub host_name: String,
    /// It finds out addresses and routers of IPv6 by itself (RFC 4861, 4862, 7217).
    pub discovers_routers: bool,
}

impl Interface {
    /// May a station be so?
    pub(super) fn is_valid(&self) -> bool {
        let prefix_fits = |own: &OwnAddress| own.prefix_len <= bits(own.ip);
        let is_station = |mac: Mac| !ethernet::is_group(mac) && mac != [0; 6];
        is_station(self.mac)
            && self.vlan.is_none_or(vlan::is_valid)
            && (!self.addresses.is_empty() || self.dhcp || self.discovers_routers)
            && self.addresses.iter().all(prefix_fits)
            && self.addresses.iter().all(|own| is_remote(own.ip))
            && self.gateways.iter().all(|gateway| is_remote(*gateway))
            && self.neighbours.iter().all(|(ip, mac)| is_remote(*ip) && is_station(*mac))
    }

    pub(super) fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.ip == address)
    }

    /// The address of ours whose link this one is on.
    pub(super) fn on_link(&self, address: IpAddr) -> Option<OwnAddress> {
        let shares = |own: &&OwnAddress| shares_prefix(own.ip, address, own.prefix_len);
        self.addresses.iter().filter(shares).max_by_key(|own| own.prefix_len).copied()
    }

    /// The address of ours to send there from (RFC 6724, section 5, rules 2, 3 and 8): one that
    /// means something there, none that is to be used no longer, and the most alike.
    pub(super) fn best_source(&self, to: IpAddr) -> Option<IpAddr> {
        let same = self.addresses.iter().map(|own| own.ip);
        let same = same.filter(|own| own.is_ipv4() == to.is_ipv4());
        let worth = |own: &IpAddr| {
            let has_scope = is_link_local(*own) == is_link_local(to);
            (has_scope, !self.deprecated.contains(own), common_bits(*own, to))
        };
        // Of those alike the first.
        same.rev().max_by_key(worth)
    }

    /// The address of ours to ask for a neighbour's station with.
    pub(super) fn source_for(&self, neighbour: IpAddr) -> Option<IpAddr> {
        let near = self.on_link(neighbour).map(|own| own.ip);
        near.or_else(|| self.best_source(neighbour))
    }

    /// The address of ours to send to a group from: where only this link hears it, one that only
    /// this link knows, if there is one.
    pub(super) fn source_for_group(&self, group: IpAddr) -> Option<IpAddr> {
        let stays_here = matches!(group, IpAddr::V6(group) if group.octets()[1] & 0xf <= 2);
        let same = self.addresses.iter().map(|own| own.ip);
        let mut same = same.filter(|own| own.is_ipv4() == group.is_ipv4());
        let first = same.clone().next();
        same.find(|own| is_link_local(*own) == stays_here).or(first)
    }

    pub(super) fn gateway(&self, version_of: IpAddr) -> Option<IpAddr> {
        self.gateways.iter().copied().find(|gateway| gateway.is_ipv4() == version_of.is_ipv4())
    }

    /// The address of ours to send from through a gateway: one of its link, or any that is
    /// meaningful beyond this link.
    pub(super) fn source_through(&self, gateway: IpAddr, to: IpAddr) -> Option<IpAddr> {
        if self.deprecated.is_empty() && !is_link_local(gateway) {
            let near = self.on_link(gateway).map(|own| own.ip);
            if near.is_some_and(|near| !is_link_local(near)) {
                return near;
            }
        }
        self.best_source(to).filter(|own| !is_link_local(*own))
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

/// How many of their first bits are the same.
fn common_bits(own: IpAddr, other: IpAddr) -> u32 {
    match (own, other) {
        (IpAddr::V4(own), IpAddr::V4(other)) => (own.to_bits() ^ other.to_bits()).leading_zeros(),
        (IpAddr::V6(own), IpAddr::V6(other)) => (own.to_bits() ^ other.to_bits()).leading_zeros(),
        _ => 0,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn own(ip: &str, prefix_len: u8) -> OwnAddress {
        OwnAddress::new(ip.parse().unwrap(), prefix_len)
    }

    #[test]
    fn the_source_is_of_the_scope_not_deprecated_and_the_most_alike() {
        let interface = Interface {
            addresses: [
                own("fe80::1", 64),
                own("2001:db8:1::1", 64),
                own("2001:db8:2::1", 64),
                own("fd00::1", 64),
                own("10.0.0.1", 24),
                own("10.0.0.9", 24),
            ]
            .to_vec(),
            deprecated: ["2001:db8:1::1".parse().unwrap()].to_vec(),
            ..Interface::default()
        };
        let to = |text: &str| interface.best_source(text.parse().unwrap()).unwrap();
        for (there, source) in [
            ("fe80::7", "fe80::1"),
            ("2001:db8:2::7", "2001:db8:2::1"),
            ("2001:db8:1::7", "2001:db8:2::1"),
            ("fd00::7", "fd00::1"),
            ("10.0.0.3", "10.0.0.1"),
            ("10.0.0.8", "10.0.0.9"),
        ] {
            assert_eq!(to(there), source.parse::<IpAddr>().unwrap(), "to {there}");
        }
        let only = Interface { addresses: interface.addresses[..2].to_vec(), ..interface };
        let global = "2001:db8::7".parse().unwrap();
        let source = only.best_source(global);
        assert_eq!(source, Some("2001:db8:1::1".parse().unwrap()), "better than of another scope");
    }

    #[test]
    fn interfaces_that_cannot_be_are_noticed() {
        let good = Interface {
            mac: [2, 0, 0, 0, 0, 1],
            addresses: [own("10.0.0.1", 8)].to_vec(),
            ..Interface::default()
        };
        assert!(good.is_valid());
        let bad = [
            Interface { mac: [1, 0, 0, 0, 0, 1], ..good.clone() },
            Interface { mac: [0; 6], ..good.clone() },
            Interface { addresses: Vec::new(), ..good.clone() },
            Interface { addresses: [own("10.0.0.1", 33)].to_vec(), ..good.clone() },
            Interface { addresses: [own("127.0.0.1", 8)].to_vec(), ..good.clone() },
            Interface { addresses: [own("ff02::1", 8)].to_vec(), ..good.clone() },
            Interface { vlan: Some(0), ..good.clone() },
            Interface { vlan: Some(4_095), ..good.clone() },
            Interface { gateways: [("0.0.0.0".parse().unwrap())].to_vec(), ..good },
        ];
        assert!(bad.iter().all(|interface| !interface.is_valid()));
    }
}
