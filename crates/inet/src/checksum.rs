//! The Internet checksum of headers, and of pseudo-headers: what the checksums of
//! TCP, UDP and `ICMPv6` cover beside their own bytes (RFC 9293 section 3.1, RFC 8200
//! section 8.1).
//!
//! The sum itself is that of [`landfall_placement::checksum`], for bytes of any
//! length, split anywhere. Here is what few bytes need, on the way of every segment.
//!
//! ```
//! use landfall_inet::{checksum, protocol};
//!
//! let (us, them) = ("192.0.2.1".parse()?, "198.51.100.7".parse()?);
//! // The same for every segment of a connection; then of a segment of 20 bytes.
//! let addresses = checksum::pseudo_header(us, them, protocol::TCP);
//! assert_eq!(checksum::with_len(addresses, 20), 0xec56);
//! # Ok::<(), core::net::AddrParseError>(())
//! ```

use core::net::IpAddr;

pub use landfall_placement::InternetSum;
pub use landfall_placement::checksum::{checksum, sum_of};

/// The sum over addresses and protocol: the part of the pseudo-header that is
/// the same for every segment of a connection.
#[must_use]
#[inline]
pub fn pseudo_header(source: IpAddr, destination: IpAddr, protocol: u8) -> InternetSum {
    let mut sum = InternetSum::new();
    for address in [source, destination] {
        match address {
            IpAddr::V4(address) => sum.add_word(sum_of_words(&address.octets())),
            IpAddr::V6(address) => sum.add_word(sum_of_words(&address.octets())),
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

/// The folded sum over a header: whole words of four bytes, less than 256 KiB of them.
///
/// The same as [`sum_of`], which is made for payloads: for twenty bytes its vectors
/// cost more than they gain.
#[inline]
#[must_use]
pub fn sum_of_words(bytes: &[u8]) -> u16 {
    let (words, rest) = bytes.as_chunks::<4>();
    debug_assert!(rest.is_empty(), "headers and addresses are whole words");
    debug_assert!(words.len() < 1 << 16, "this is no header");
    let sum: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    // Ones' complement: what runs over at the top comes in again at the bottom. No header
    // is so long that its words run over 48 bits.
    let sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    // The byte order does not matter until here (RFC 1071, section 2 (B)).
    u16::from_be(((sum & 0xffff) + (sum >> 16)) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use proptest::prelude::*;

    #[test]
    fn both_versions_as_computed_by_hand() {
        let (a, b) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 7));
        // c000 + 0201 + c633 + 6407 + 0006 + 0014
        assert_eq!(with_len(pseudo_header(a.into(), b.into(), 6), 20), 0xec56);
        let a: Ipv6Addr = "2001:db8::1".parse().unwrap();
        let b: Ipv6Addr = "2001:db8::2".parse().unwrap();
        // 2 × (2001 + 0db8) + 1 + 2 + 003a + 0001 + 0000
        assert_eq!(with_len(pseudo_header(a.into(), b.into(), 58), 0x1_0000), 0x5bb0);
    }

    proptest! {
        #[test]
        fn few_words_sum_up_as_many(words in prop::collection::vec(any::<[u8; 4]>(), 0..20)) {
            let bytes = words.as_flattened();
            prop_assert_eq!(sum_of_words(bytes), sum_of(bytes));
        }

        #[test]
        fn carries_are_not_lost(ones in 0..20usize, last: [u8; 4]) {
            let mut bytes = std::vec![0xff; ones * 4];
            bytes.extend(last);
            prop_assert_eq!(sum_of_words(&bytes), sum_of(&bytes));
        }
    }
}
