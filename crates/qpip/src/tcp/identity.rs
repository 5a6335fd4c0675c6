//! Initial sequence numbers and timestamp offsets that strangers cannot guess (RFC 6528).

use core::hash::{Hash, Hasher};
use core::net::SocketAddr;

use landfall_placement::{Instant, Random};
use siphasher::sip::SipHasher13;

/// A keyed hash over the two ends of a connection. The key comes from the seed.
#[derive(Clone)]
pub(crate) struct Secret(u64, u64);

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    pub(crate) fn new(random: &mut Random) -> Self {
        Self(random.next_u64(), random.next_u64())
    }

    /// The hash of these two ends.
    #[inline]
    pub(crate) fn hash(&self, local: SocketAddr, remote: SocketAddr) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.0, self.1);
        (local.port(), remote.port()).hash(&mut hasher);
        match (local.ip(), remote.ip()) {
            (core::net::IpAddr::V4(a), core::net::IpAddr::V4(b)) => {
                hasher.write_u32(a.to_bits());
                hasher.write_u32(b.to_bits());
            }
            (a, b) => (a, b).hash(&mut hasher),
        }
        hasher.finish()
    }

    /// The number of an opening: a clock of 4 µs, so that a later connection of
    /// the same two ends starts behind an earlier one, plus the hash.
    pub(crate) fn first_number(&self, now: Instant, local: SocketAddr, remote: SocketAddr) -> u32 {
        let clock = (now.as_nanos() / 4_000) as u32;
        clock.wrapping_add(self.hash(local, remote) as u32)
    }

    /// Where our timestamps for this other side start: the same for each
    /// connection between the two addresses, as RFC 7323, 7.1 suggests.
    pub(crate) fn clock_offset(&self, local: SocketAddr, remote: SocketAddr) -> u32 {
        let without_ports = |mut end: SocketAddr| {
            end.set_port(0);
            end
        };
        (self.hash(without_ports(local), without_ports(remote)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_differ_by_ends_time_and_seed() {
        let secret = |seed| Secret::new(&mut Random::from_number(seed));
        let end = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let number = |seed, micros, port| {
            secret(seed).first_number(Instant::from_micros(micros), end(80), end(port))
        };
        assert_eq!(number(1, 0, 5), number(1, 0, 5));
        assert_ne!(number(1, 0, 5), number(2, 0, 5));
        assert_ne!(number(1, 0, 5), number(1, 0, 6));
        assert_eq!(number(1, 400, 5), number(1, 0, 5).wrapping_add(100));
    }

    #[test]
    fn clocks_do_not_go_back_between_connections_of_two_hosts() {
        let secret = Secret::new(&mut Random::from_number(1));
        let end = |port| SocketAddr::from(([10, 0, 0, 1], port));
        assert_eq!(secret.clock_offset(end(1), end(2)), secret.clock_offset(end(3), end(4)));
    }
}
