//! [`Interface`]: a station on an Ethernet, and who it is on IP.

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::wire::{Mac, ethernet, is_host};

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
    pub(super) fn on_link(&self, address: IpAddr) -> Option<(IpAddr, u8)> {
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

    pub(super) fn gateway(&self, version_of: IpAddr) -> Option<IpAddr> {
        self.gateways.iter().copied().find(|gateway| gateway.is_ipv4() == version_of.is_ipv4())
    }

    /// The address of ours to send from through a gateway: one of its link, or
    /// any that is meaningful beyond this link.
    pub(super) fn source_through(&self, gateway: IpAddr) -> Option<IpAddr> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_that_cannot_be_are_noticed() {
        let good = Interface {
            mac: [2, 0, 0, 0, 0, 1],
            addresses: [("10.0.0.1".parse().unwrap(), 8)].to_vec(),
            ..Interface::default()
        };
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
}
