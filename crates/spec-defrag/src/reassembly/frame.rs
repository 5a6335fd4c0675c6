//! What a frame carries: the link header, tags, the IP headers up to the fragment, and whether a
//! first fragment has all headers.

use landfall_inet::{ethernet, extension, ipv6, protocol, tcp, vlan};
use zerocopy::FromBytes;

use super::outcome::DropReason;
use crate::wire::{Key, Parsed, Plain, Stop, Walk, parse, parse_network, transport_len};

/// What stands before the IP header in each frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// An Ethernet header, and up to two tags of VLANs (IEEE 802.1Q and 802.1ad).
    #[default]
    Ethernet,
    /// Nothing: a TUN interface, a raw IP capture.
    Ip,
}

/// The VLANs of a frame, outer first; 0 where there is none. Fragments of one packet come
/// through the same ones.
pub type Vlans = [u16; 2];

/// A fragment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fragment {
    pub(super) parsed: Parsed,
    pub(super) vlans: Vlans,
}

/// The fragment that a frame carries, if it is one of the usual kind: IPv4 behind an Ethernet header
/// without tags, no options, nothing odd. `None` says nothing.
#[inline]
pub(super) fn plain(link: Link, frame: &[u8]) -> Option<Plain> {
    match link {
        Link::Ethernet => Plain::read(frame, u32::try_from(frame.len()).ok()?),
        Link::Ip => None,
    }
}

/// The fragment that a frame carries; `None` where it carries none.
pub(super) fn read(link: Link, frame: &[u8]) -> Result<Option<Fragment>, DropReason> {
    let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
    let (network_at, ethertype, vlans) = match link {
        Link::Ip => (0, ethertype_of(frame), [0; 2]),
        Link::Ethernet => {
            // What is too short for a link header is no fragment.
            let Some(header) = frame.first_chunk::<{ ethernet::LEN }>() else { return Ok(None) };
            let ethertype = u16::from_be_bytes([header[12], header[13]]);
            if matches!(ethertype, ethernet::IPV4 | ethernet::IPV6) {
                return fragment(parse(frame, len), frame, ethernet::LEN, [0; 2]);
            }
            let behind = &frame[ethernet::LEN..];
            match vlan::behind_tags(ethertype, behind) {
                Some((inner, tags @ 1..)) => (ethernet::LEN + tags, inner, vlans_of(behind, tags)),
                // Not IP.
                _ => return Ok(None),
            }
        }
    };
    fragment(parse_network(frame, len, network_at, ethertype), frame, network_at, vlans)
}

/// What a packet without link header is, by its version.
pub(super) fn ethertype_of(packet: &[u8]) -> u16 {
    match packet.first().map_or(0, |byte| byte >> 4) {
        4 => ethernet::IPV4,
        6 => ethernet::IPV6,
        _ => 0,
    }
}

fn vlans_of(behind: &[u8], tags: usize) -> Vlans {
    let id = |at: usize| {
        let tag = behind.get(at..).filter(|_| at < tags);
        tag.and_then(|tag| vlan::Header::ref_from_prefix(tag).ok()).map_or(0, |(tag, _)| tag.id())
    };
    [id(0), id(vlan::LEN)]
}

fn fragment(
    parsed: Result<Parsed, Stop>,
    frame: &[u8],
    network_at: usize,
    vlans: Vlans,
) -> Result<Option<Fragment>, DropReason> {
    match parsed {
        Ok(parsed) if parsed.fragment.is_some() => Ok(Some(Fragment { parsed, vlans })),
        Ok(_) => Ok(None),
        Err(Stop::Refused(refusal)) => Err(DropReason::of(refusal)),
        Err(Stop::Foreign | Stop::NeedHead(_)) => {
            if hides_fragment(frame, network_at) {
                Err(DropReason::HeadersTooLong)
            } else {
                Ok(None)
            }
        }
    }
}

/// Whether a fragment header stands behind more headers than are read. A filter that passed
/// such a frame on as no fragment would be passed by.
fn hides_fragment(frame: &[u8], network_at: usize) -> bool {
    // What is shorter than the header of IPv6 hides nothing.
    let Some((header, _)) =
        frame.get(network_at..).and_then(|bytes| ipv6::Header::ref_from_prefix(bytes).ok())
    else {
        return false;
    };
    if header.version() != 6 || header.payload_len.get() == 0 {
        return false;
    }
    let mut walk = Walk::new(header, network_at);
    while let Some(bytes) = frame.get(walk.at..walk.at + 8) {
        match walk.next {
            protocol::FRAGMENT => return true,
            // It has not reached the end of its route, where it is joined.
            protocol::ROUTING if bytes[3] != 0 => return false,
            protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION_OPTIONS => {}
            _ => return false,
        }
        match walk.step(bytes) {
            Some(next) => walk = next,
            None => return false,
        }
    }
    false
}

/// What can be said of a fragment alone, beyond its lengths: a first one has all headers
/// (RFC 7112), no other one starts within that of TCP (RFC 1858, section 3.2).
pub(super) fn check_headers(parsed: &Parsed, start: u32, payload: &[u8]) -> Result<(), DropReason> {
    if start == 0 {
        let has_all = has_all_headers(parsed, payload);
        return if has_all { Ok(()) } else { Err(DropReason::HeadersMissing) };
    }
    let is_tcp = parsed.protocol == protocol::TCP;
    if is_tcp && (start as usize) < tcp::LEN { Err(DropReason::WithinHeader) } else { Ok(()) }
}

fn has_all_headers(parsed: &Parsed, mut payload: &[u8]) -> bool {
    let mut next = parsed.protocol;
    if parsed.key.protocol == Key::IPV6 {
        // Each header takes eight bytes at least: the payload bounds the walk.
        while extension::len(next, 0).is_some() {
            // The header is in the next fragment.
            let Some([following, length]) = payload.first_chunk().copied() else { return false };
            let len = extension::len(next, length).unwrap_or(usize::MAX);
            // Its end is.
            let Some(rest) = payload.get(len..) else { return false };
            (next, payload) = (following, rest);
        }
    }
    // A TCP header that says it were shorter than it can be is none.
    let least = if next == protocol::TCP { tcp::LEN } else { 0 };
    payload.len() >= least && transport_len(next, payload).is_some()
}
