//! The numbers that say what an IP packet carries (IANA, "Protocol Numbers"), and
//! how long the header of it is.

/// `ICMP`, of IPv4.
pub const ICMP: u8 = 1;
/// TCP.
pub const TCP: u8 = 6;
/// UDP.
pub const UDP: u8 = 17;
/// `ICMPv6`.
pub const ICMPV6: u8 = 58;
/// IPv6: options for every router on the way.
pub const HOP_BY_HOP: u8 = 0;
/// IPv6: the way.
pub const ROUTING: u8 = 43;
/// IPv6: the packet is a piece.
pub const FRAGMENT: u8 = 44;
/// IPv6 and IPv4: a proof of who sent (RFC 4302).
pub const AUTHENTICATION: u8 = 51;
/// IPv6: options for the stations on the way, or for the last one.
pub const DESTINATION: u8 = 60;
/// IPv6: the sender moved (RFC 6275).
pub const MOBILITY: u8 = 135;

/// The shortest TCP header.
pub const TCP_LEN: usize = 20;
/// The header of UDP, and of both versions of ICMP.
pub const UDP_LEN: usize = 8;

/// The length of the header that `payload`, the first bytes of an IP payload,
/// starts with: 20 to 60 for TCP, 8 for UDP and ICMP, 0 for all others and for a
/// TCP header that says it were shorter than it can be.
///
/// `None` if not all of the header is at hand.
#[must_use]
#[inline]
pub fn transport_len(protocol: u8, payload: &[u8]) -> Option<u16> {
    let len = match protocol {
        TCP => match usize::from(*payload.get(12)? >> 4) * 4 {
            len @ TCP_LEN.. => len,
            _ => 0,
        },
        UDP | ICMP | ICMPV6 => UDP_LEN,
        _ => 0,
    };
    (payload.len() >= len).then_some(len as u16)
}
