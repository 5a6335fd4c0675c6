//! [`Demux`]: which queue pair a packet is for.
//!
//! Strangers choose addresses and ports, so they are hashed with a secret.

use core::hash::{Hash, Hasher};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use landfall_placement::Random;
use landfall_tables::{HashIndex, HashSecret};

pub(super) use crate::tcp::Ends;

/// Two ends in few words, for the hash.
struct Key(Ends);

impl Hash for Key {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self(Ends { local, remote }) = self;
        match (local.ip(), remote.ip()) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => {
                state.write_u64(u64::from(local.to_bits()) << 32 | u64::from(remote.to_bits()));
            }
            (local, remote) => {
                for address in [local, remote] {
                    let bits = match address {
                        IpAddr::V4(address) => u128::from(address.to_bits()),
                        IpAddr::V6(address) => address.to_bits(),
                    };
                    state.write_u64((bits >> 64) as u64);
                    state.write_u64(bits as u64);
                }
            }
        }
        state.write_u32(u32::from(local.port()) << 16 | u32::from(remote.port()));
    }
}

/// An index by the two ends of connections.
#[derive(Debug)]
pub(super) struct ByEnds(HashIndex);

impl ByEnds {
    pub(super) fn new(random: &mut Random) -> Self {
        Self(HashIndex::new(HashSecret::new(random.next_u64(), random.next_u64())))
    }

    /// The entry of these ends; `is_meant` says of one whether it is.
    #[inline]
    pub(super) fn find(&self, ends: Ends, is_meant: impl Fn(u32) -> bool) -> Option<u32> {
        self.0.find(&Key(ends), is_meant)
    }

    /// Enters what is not entered.
    pub(super) fn insert(&mut self, ends: Ends, index: u32) {
        self.0.insert(&Key(ends), index);
    }

    pub(super) fn remove(&mut self, ends: Ends, index: u32) {
        self.0.remove(&Key(ends), index);
    }
}

/// Queue pairs by what they are connected or bound to.
#[derive(Debug)]
pub(super) struct Demux {
    /// Connections of TCP.
    pub(super) connections: ByEnds,
    /// Bound ports of UDP: the other end is nobody.
    pub(super) bound: ByEnds,
}

impl Demux {
    pub(super) fn new(random: &mut Random) -> Self {
        Self { connections: ByEnds::new(random), bound: ByEnds::new(random) }
    }
}

/// A bound port has no other end.
pub(super) const fn bound_ends(local: SocketAddr) -> Ends {
    Ends { local, remote: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0) }
}

/// Any address of the same version.
pub(super) const fn any_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

/// Address and port alone: flow labels and scopes are no part of who somebody is.
pub(super) const fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_found_in_both_versions() {
        let mut index = ByEnds::new(&mut Random::from_number(3));
        let ends = |n: u16| -> Ends {
            let text = if n.is_multiple_of(2) { "10.0.0.1" } else { "fe80::1" };
            let address: IpAddr = text.parse().unwrap();
            Ends { local: SocketAddr::new(address, 80), remote: SocketAddr::new(address, n) }
        };
        for n in 0..500 {
            index.insert(ends(n), u32::from(n));
        }
        for n in 0..500 {
            let is_meant = |found: u32| ends(found as u16) == ends(n);
            assert_eq!(index.find(ends(n), is_meant), Some(u32::from(n)));
            index.remove(ends(n), u32::from(n));
            assert_eq!(index.find(ends(n), is_meant), None);
        }
    }
}
