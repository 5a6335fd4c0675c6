//! The message that tells a sender of a packet whose pieces did not all come in time
//! (RFC 792; RFC 1122, section 3.3.2; RFC 8200, section 4.5).

use alloc::vec::Vec;

use landfall_placement::InternetSum;
use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Key, Parsed, ethernet, ipv4, ipv6, protocol};

/// A packet with a message has at most so many bytes: RFC 1812, section 4.3.2.3.
const IPV4_MAX: usize = 576;
/// The same: RFC 4443, section 2.4 (c).
const IPV6_MAX: usize = 1280;
/// Routers that the message may pass (RFC 1700).
const HOPS: u8 = 64;
/// Traffic class of control messages: RFC 1812, section 4.3.2.5.
const INTERNETWORK_CONTROL: u8 = 0xc0;
/// Type and code: the pieces did not come in time.
const EXCEEDED: [u8; 2] = [11, 1];
/// The same of `ICMPv6`.
const EXCEEDED_V6: [u8; 2] = [3, 1];

/// What both versions of the message start with.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Icmp {
    kind_and_code: [u8; 2],
    sum: U16,
    unused: [u8; 4],
}

/// The whole frame that tells the sender of a packet that it was given up.
///
/// `first_head` holds the headers of the piece with offset 0, up to where its payload
/// begins, `payload` the first bytes of that: as many as are still known. `None`
/// if nobody is to be told (RFC 1122, section 3.2.2; RFC 4443, section 2.4): it is
/// not the first piece, it went to a group or to all, it did not come from one
/// host, it carries an error message itself (or it cannot be known whether).
///
/// How often such messages may be sent is for the caller to bound.
#[must_use]
pub fn time_exceeded(first_head: &[u8], parsed: &Parsed, payload: &[u8]) -> Option<Vec<u8>> {
    let piece = parsed.fragment?;
    let headers = first_head.get(..usize::from(parsed.payload_at))?;
    let (link, quoted) = headers.split_at_checked(parsed.network_at.into())?;
    let (link, _) = ethernet::Header::ref_from_prefix(link).ok()?;
    if piece.offset != 0 || link.is_to_group() || link.source[0] & 1 == 1 {
        return None;
    }
    let answer = ethernet::Header {
        destination: link.source,
        source: link.destination,
        ethertype: link.ethertype,
    };
    let mut frame = Vec::from(answer.as_bytes());
    let payload = &payload[..payload.len().min(parsed.payload_len as usize)];
    if parsed.key.protocol == Key::IPV6 {
        push_ipv6(&mut frame, quoted, parsed.protocol, payload)?;
    } else {
        push_ipv4(&mut frame, quoted, parsed.protocol, payload)?;
    }
    Some(frame)
}

fn push_ipv4(frame: &mut Vec<u8>, headers: &[u8], carries: u8, payload: &[u8]) -> Option<()> {
    let (failed, _) = ipv4::Header::ref_from_prefix(headers).ok()?;
    let is_host = |address: [u8; 4]| {
        // This network, loopback, groups, and what is reserved with "all".
        !matches!(address[0], 0 | 127 | 224..)
    };
    if !is_host(failed.source) || !is_host(failed.destination) {
        return None;
    }
    // The messages that answer to nothing: RFC 1122, section 3.2.2.
    if carries == protocol::ICMP && matches!(payload.first()?, 3 | 4 | 5 | 11 | 12) {
        return None;
    }
    let room = (IPV4_MAX - ipv4::LEN - size_of::<Icmp>()).checked_sub(headers.len())?;
    let payload = &payload[..payload.len().min(room)];
    let len = size_of::<Icmp>() + headers.len() + payload.len();
    let mut header = ipv4::Header {
        version_and_words: 0x45,
        traffic_class: INTERNETWORK_CONTROL,
        total_len: U16::new((ipv4::LEN + len) as u16),
        // Nobody cuts it: it needs none (RFC 6864, section 4.1).
        id: U16::ZERO,
        fragment: U16::new(ipv4::DO_NOT_FRAGMENT),
        hop_limit: HOPS,
        protocol: protocol::ICMP,
        sum: U16::ZERO,
        source: failed.destination,
        destination: failed.source,
    };
    header.sum = header.checksum(&[]).into();
    frame.extend(header.as_bytes());
    push_message(frame, EXCEEDED, InternetSum::new(), [headers, payload]);
    Some(())
}

fn push_ipv6(frame: &mut Vec<u8>, headers: &[u8], carries: u8, payload: &[u8]) -> Option<()> {
    let (failed, _) = ipv6::Header::ref_from_prefix(headers).ok()?;
    let is_host = |address: &[u8; 16]| {
        let is_nobody_or_loopback = address[..15] == [0; 15] && address[15] <= 1;
        address[0] != 0xff && !is_nobody_or_loopback
    };
    if !is_host(&failed.source) || !is_host(&failed.destination) || is_error(carries, payload)? {
        return None;
    }
    let room = (IPV6_MAX - ipv6::LEN - size_of::<Icmp>()).checked_sub(headers.len())?;
    let payload = &payload[..payload.len().min(room)];
    let len = (size_of::<Icmp>() + headers.len() + payload.len()) as u16;
    let header = ipv6::Header {
        version_class_label: [0x60, 0, 0, 0],
        payload_len: U16::new(len),
        next_header: protocol::ICMPV6,
        hop_limit: HOPS,
        source: failed.destination,
        destination: failed.source,
    };
    frame.extend(header.as_bytes());
    let mut pseudo = InternetSum::new();
    pseudo.add(&header.source);
    pseudo.add(&header.destination);
    pseudo.add_word(len);
    pseudo.add_word(protocol::ICMPV6.into());
    push_message(frame, EXCEEDED_V6, pseudo, [headers, payload]);
    Some(())
}

/// Adds the message, whose sum starts with that of a pseudo-header.
fn push_message(
    frame: &mut Vec<u8>,
    kind_and_code: [u8; 2],
    mut sum: InternetSum,
    quoted: [&[u8]; 2],
) {
    let mut icmp = Icmp { kind_and_code, sum: U16::ZERO, unused: [0; 4] };
    sum.add(icmp.as_bytes());
    for bytes in quoted {
        sum.add(bytes);
    }
    icmp.sum = sum.checksum().into();
    frame.extend(icmp.as_bytes());
    for bytes in quoted {
        frame.extend(bytes);
    }
}

/// Whether an IPv6 packet carries an error message, or a redirect; `None` if that
/// is beyond what is known of it.
fn is_error(mut carries: u8, mut payload: &[u8]) -> Option<bool> {
    loop {
        let len = match carries {
            // RFC 4443, section 2.1: errors are the low types.
            protocol::ICMPV6 => return Some(matches!(*payload.first()?, 0..128 | 137)),
            protocol::HOP_BY_HOP
            | protocol::ROUTING
            | protocol::DESTINATION
            | protocol::MOBILITY => 8 + usize::from(*payload.get(1)?) * 8,
            protocol::AUTHENTICATION => 8 + usize::from(*payload.get(1)?) * 4,
            protocol::FRAGMENT => return None,
            _ => return Some(false),
        };
        carries = *payload.first()?;
        payload = payload.get(len..)?;
    }
}
