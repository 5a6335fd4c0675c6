//! [`Ends`]: the two ends of a connection, in few words.

use core::hash::Hasher;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use siphasher::sip::SipHasher13;

/// Our end and theirs. A port that is only bound has nobody as its other end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    local: [u64; 2],
    remote: [u64; 2],
    /// Ours in the high half.
    ports: u32,
    is_v6: bool,
}

impl Ends {
    /// Both ends are of the same version of IP.
    #[must_use]
    pub const fn new(local: SocketAddr, remote: SocketAddr) -> Self {
        Self {
            local: words(local.ip()),
            remote: words(remote.ip()),
            ports: (local.port() as u32) << 16 | remote.port() as u32,
            is_v6: local.is_ipv6(),
        }
    }

    /// A bound port, on one of our addresses or on any of them.
    #[must_use]
    pub const fn bound(local: SocketAddr) -> Self {
        Self {
            local: words(local.ip()),
            remote: [0; 2],
            ports: (local.port() as u32) << 16,
            is_v6: local.is_ipv6(),
        }
    }

    /// The ends of a packet of version 4, with the four bytes of its ports as
    /// they came: the sender's first.
    #[inline]
    pub(super) const fn of_v4(source: [u8; 4], destination: [u8; 4], ports: [u8; 4]) -> Self {
        Self {
            local: [0, u32::from_be_bytes(destination) as u64],
            remote: [0, u32::from_be_bytes(source) as u64],
            ports: u32::from_be_bytes(ports).rotate_left(16),
            is_v6: false,
        }
    }

    /// The same of version 6.
    #[inline]
    pub(super) const fn of_v6(source: [u8; 16], destination: [u8; 16], ports: [u8; 4]) -> Self {
        Self {
            local: halves(u128::from_be_bytes(destination)),
            remote: halves(u128::from_be_bytes(source)),
            ports: u32::from_be_bytes(ports).rotate_left(16),
            is_v6: true,
        }
    }

    #[inline]
    pub(super) const fn is_v4(&self) -> bool {
        !self.is_v6
    }

    /// Our end, and theirs.
    #[inline]
    pub(super) const fn addresses(&self) -> (SocketAddr, SocketAddr) {
        let local = SocketAddr::new(address(self.local, self.is_v6), (self.ports >> 16) as u16);
        (local, SocketAddr::new(address(self.remote, self.is_v6), self.ports as u16))
    }

    /// Our end alone, on the address that was meant.
    #[inline]
    pub(super) const fn without_remote(self) -> Self {
        Self { remote: [0; 2], ports: self.ports & 0xffff_0000, ..self }
    }

    /// Our port alone, on any address.
    #[inline]
    pub(super) const fn on_any(self) -> Self {
        Self { local: [0; 2], ..self.without_remote() }
    }

    /// Strangers choose most of it, so it is hashed with a secret.
    #[inline]
    pub(super) fn hash(&self, secret: (u64, u64)) -> u32 {
        let mut hasher = SipHasher13::new_with_keys(secret.0, secret.1);
        if self.is_v6 {
            for word in [self.local[0], self.local[1], self.remote[0], self.remote[1]] {
                hasher.write_u64(word);
            }
        } else {
            hasher.write_u64(self.local[1] << 32 | self.remote[1]);
        }
        hasher.write_u64(u64::from(self.ports));
        hasher.finish() as u32
    }
}

const fn words(address: IpAddr) -> [u64; 2] {
    match address {
        IpAddr::V4(address) => [0, address.to_bits() as u64],
        IpAddr::V6(address) => halves(address.to_bits()),
    }
}

const fn halves(bits: u128) -> [u64; 2] {
    [(bits >> 64) as u64, bits as u64]
}

#[inline]
const fn address([high, low]: [u64; 2], is_v6: bool) -> IpAddr {
    if is_v6 {
        IpAddr::V6(Ipv6Addr::from_bits((high as u128) << 64 | low as u128))
    } else {
        IpAddr::V4(Ipv4Addr::from_bits(low as u32))
    }
}
