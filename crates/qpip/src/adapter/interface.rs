//! [`Interface`]: a station on an Ethernet, and who it is on IP.

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
}

impl Interface {
    /// May a station be so?
    pub(super) fn is_valid(&self) -> bool {
        let prefix_fits = |own: &OwnAddress| own.prefix_len <= bits(own.ip);
        let is_station = |mac: Mac| !ethernet::is_group(mac) && mac != [0; 6];
        is_station(self.mac)
            && self.vlan.is_none_or(vlan::is_valid)
            && !self.addresses.is_empty()
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

    /// The address of ours to ask for a neighbour's station with.
    pub(super) fn source_for(&self, neighbour: IpAddr) -> Option<IpAddr> {
        let near = self.on_link(neighbour).map(|own| own.ip);
        near.or_else(|| {
            let mut own = self.addresses.iter().map(|own| own.ip);
            own.find(|own| own.is_ipv4() == neighbour.is_ipv4())
        })
    }

    pub(super) fn gateway(&self, version_of: IpAddr) -> Option<IpAddr> {
        self.gateways.iter().copied().find(|gateway| gateway.is_ipv4() == version_of.is_ipv4())
    }

    /// The address of ours to send from through a gateway: one of its link, or
    /// any that is meaningful beyond this link.
    pub(super) fn source_through(&self, gateway: IpAddr) -> Option<IpAddr> {
        let mut usable = self
            .addresses
            .iter()
            .map(|own| own.ip)
            .filter(|own| own.is_ipv4() == gateway.is_ipv4() && !is_link_local(*own));
        let first = usable.clone().next();
        let near = self.on_link(gateway).map(|own| own.ip);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn own(ip: &str, prefix_len: u8) -> OwnAddress {
        OwnAddress::new(ip.parse().unwrap(), prefix_len)
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
