//! The pseudo-header: what the checksums of TCP, UDP and `ICMPv6` cover beside
//! their own bytes (RFC 9293 section 3.1, RFC 8200 section 8.1).

use core::net::IpAddr;

use landfall_placement::InternetSum;

/// The sum over addresses and protocol: the part of the pseudo-header that is
/// the same for every segment of a connection.
#[must_use]
pub fn addresses(source: IpAddr, destination: IpAddr, protocol: u8) -> InternetSum {
    let mut sum = InternetSum::new();
    for address in [source, destination] {
        match address {
            IpAddr::V4(address) => sum.add(&address.octets()),
            IpAddr::V6(address) => sum.add(&address.octets()),
        }
    }
    sum.add_word(u16::from(protocol));
    sum
}

/// The folded sum over the whole pseudo-header, for a segment of `len` bytes
/// (header and payload) between the addresses summed up before.
#[must_use]
#[inline]
pub const fn with_len(mut addresses: InternetSum, len: u32) -> u16 {
    addresses.add_word((len >> 16) as u16);
    addresses.add_word(len as u16);
    addresses.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn both_versions_as_computed_by_hand() {
        let (a, b) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 7));
        // c000 + 0201 + c633 + 6407 + 0006 + 0014
        assert_eq!(with_len(addresses(a.into(), b.into(), 6), 20), 0xec56);
        let a: Ipv6Addr = "2001:db8::1".parse().unwrap();
        let b: Ipv6Addr = "2001:db8::2".parse().unwrap();
        // 2 × (2001 + 0db8) + 1 + 2 + 003a + 0001 + 0000
        assert_eq!(with_len(addresses(a.into(), b.into(), 58), 0x1_0000), 0x5bb0);
    }
}
