//! The message that tells a sender of a packet whose pieces did not all come in time
//! (RFC 792; RFC 1122, section 3.3.2; RFC 8200, section 4.5).

use alloc::vec::Vec;

use landfall_inet::{Envelope, ethernet, extension, icmp, icmp4, icmp6, ipv4, ipv6, protocol};
use zerocopy::FromBytes;

use super::{Key, Parsed};

/// A packet with a message has at most this many bytes: RFC 1812, section 4.3.2.3.
const IPV4_MAX: usize = 576;
/// The same: RFC 4443, section 2.4 (c).
const IPV6_MAX: usize = ipv6::MTU_MIN as usize;
/// Traffic class of control messages: RFC 1812, section 4.3.2.5.
const INTERNETWORK_CONTROL: u8 = 0xc0;

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
    if piece.offset != 0 || link.is_to_group() || ethernet::is_group(link.source) {
        return None;
    }
    let payload = &payload[..payload.len().min(parsed.payload_len as usize)];
    let (envelope, longest) = if parsed.key.protocol == Key::IPV6 {
        (answer_ipv6(link, quoted, parsed.protocol, payload)?, IPV6_MAX)
    } else {
        (answer_ipv4(link, quoted, parsed.protocol, payload)?, IPV4_MAX)
    };
    let room = (longest - envelope.ip_len() - icmp::LEN).checked_sub(quoted.len())?;
    let packet = [quoted, &payload[..payload.len().min(room)]].concat();
    let len = icmp::LEN + packet.len();
    let mut frame = alloc::vec![0; envelope.header_len() + len];
    let at = envelope.write(&mut frame, len as u32)?;
    if envelope.source.is_ipv4() {
        icmp4::write_fragments_missing(&packet, &mut frame[at..])?;
    } else {
        icmp6::write_fragments_missing(&packet, &mut frame[at..], envelope.pseudo(len as u32))?;
    }
    Some(frame)
}

/// What a message about the packet with these headers goes out in, if it may.
fn answer_ipv4(
    link: &ethernet::Header,
    headers: &[u8],
    carries: u8,
    payload: &[u8],
) -> Option<Envelope> {
    let (failed, _) = ipv4::Header::ref_from_prefix(headers).ok()?;
    let is_host = |address: [u8; 4]| {
        // This network, loopback, groups, and what is reserved with "all".
        !matches!(address[0], 0 | 127 | 224..)
    };
    if !is_host(failed.source) || !is_host(failed.destination) {
        return None;
    }
    if carries == protocol::ICMP4 && icmp4::is_error(payload) {
        return None;
    }
    let from = (link.destination, failed.destination().into());
    let to = (link.source, failed.source().into());
    // Nobody cuts it: it needs no identification (RFC 6864, section 4.1).
    let traffic_class = INTERNETWORK_CONTROL;
    Some(Envelope { traffic_class, ..Envelope::new(from, to, protocol::ICMP4) })
}

fn answer_ipv6(
    link: &ethernet::Header,
    headers: &[u8],
    carries: u8,
    payload: &[u8],
) -> Option<Envelope> {
    let (failed, _) = ipv6::Header::ref_from_prefix(headers).ok()?;
    let is_host = |address: &[u8; 16]| {
        let is_nobody_or_loopback = address[..15] == [0; 15] && address[15] <= 1;
        address[0] != 0xff && !is_nobody_or_loopback
    };
    if !is_host(&failed.source) || !is_host(&failed.destination) || is_error(carries, payload)? {
        return None;
    }
    let from = (link.destination, failed.destination().into());
    let to = (link.source, failed.source().into());
    Some(Envelope::new(from, to, protocol::ICMP6))
}

/// Whether an IPv6 packet carries an error message, or a redirect; `None` if that
/// is beyond what is known of it.
fn is_error(mut carries: u8, mut payload: &[u8]) -> Option<bool> {
    loop {
        match carries {
            protocol::ICMP6 => {
                return Some(icmp6::is_error(payload) || *payload.first()? == icmp6::REDIRECT);
            }
            protocol::FRAGMENT => return None,
            _ if extension::len(carries, 0).is_none() => return Some(false),
            _ => {}
        }
        let len = extension::len(carries, *payload.get(1)?)?;
        carries = *payload.first()?;
        payload = payload.get(len..)?;
    }
}
