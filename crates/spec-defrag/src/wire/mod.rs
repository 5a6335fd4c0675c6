//! What joining has to know of a frame, and makes of it.
//!
//! A frame is *parsed* ([`parse`]) into what joining needs to know, the head of a
//! first fragment is *adapted* ([`whole_head`]) to the whole packet. The headers are
//! those of the crate `landfall-inet`. It reads as a host does; this reads as a link
//! below one: what is no fragment, or is odd, is the host's to refuse, and passes.

mod exceeded;
mod parse;

#[cfg(test)]
pub(crate) mod tests;

pub use exceeded::time_exceeded;
pub use landfall_inet::Fragment;
pub use landfall_inet::reassembly::Key;
pub use parse::{Parsed, Stop, parse, parse_network, transport_len};

pub(crate) use parse::{Plain, Walk};

use landfall_inet::{ethernet, fragment, ipv4, ipv6};
use landfall_placement::{Ecn, Refusal};
use zerocopy::{FromBytes, IntoBytes};

use crate::memory::Head;

// The head of a first piece becomes the head of the whole packet.
//
// Everything is read where it lies and written once: a header that was just
// written in bytes and is read again in words costs more than all the rest.

/// The link and IP headers of the packet whose first piece starts with `first`
/// and was read as `parsed`, and whose payload has `payload_len` bytes in all.
///
/// IPv4: the total length is that of the whole, no piece is named, the checksum
/// is right. IPv6: the fragment header is gone. The congestion mark is `ecn`, what
/// those of all pieces make together (RFC 3168, section 5.3). The bytes that
/// follow the headers in the piece are not part of it.
///
/// # Errors
/// [`Refusal::Truncated`] if `first` does not hold all headers,
/// [`Refusal::OutOfBounds`] if the packet is longer than one can be,
/// [`Refusal::NoRoom`] if its headers are longer than a [`Head`].
pub fn whole_head(
    first: &[u8],
    parsed: &Parsed,
    payload_len: u32,
    ecn: Ecn,
) -> Result<Head, Refusal> {
    let mut head = Head::new();
    write_whole_head(&mut head, first, parsed, payload_len, ecn)?;
    Ok(head)
}

/// The same where there is a head: what was in it is gone. What is in it where this fails is
/// anything.
pub(crate) fn write_whole_head(
    head: &mut Head,
    first: &[u8],
    parsed: &Parsed,
    payload_len: u32,
    ecn: Ecn,
) -> Result<(), Refusal> {
    let headers = first.get(..usize::from(parsed.payload_at)).ok_or(Refusal::Truncated)?;
    let at = usize::from(parsed.network_at);
    if parsed.key.protocol == Key::IPV6 {
        whole_ipv6(head, headers, &[], at, parsed.fragment.is_some(), payload_len, Some(ecn))
    } else {
        whole_ipv4(head, headers, &[], at, payload_len, Some(ecn))
    }
}

/// The same for a head whose pieces were checked already, and that ends behind the
/// transport header: its IP headers (of a piece) end at `payload_at`, and
/// `body_len` bytes of the packet follow it. The congestion mark stays.
#[must_use]
pub fn adapt(first: &[u8], payload_at: u16, body_len: u32) -> Option<Head> {
    let (headers, transport) = first.split_at_checked(payload_at.into())?;
    let (ethernet, _) = ethernet::Header::ref_from_prefix(headers).ok()?;
    let payload_len = (transport.len() as u32).saturating_add(body_len);
    let (mut head, at) = (Head::new(), ethernet::LEN);
    let written = match ethernet.ethertype.get() {
        ethernet::IPV4 => whole_ipv4(&mut head, headers, transport, at, payload_len, None),
        ethernet::IPV6 => whole_ipv6(&mut head, headers, transport, at, true, payload_len, None),
        _ => return None,
    };
    written.ok().map(|()| head)
}

/// `headers` are those of the link and, from `at` on, of IP; `behind` follows.
#[inline]
fn whole_ipv4(
    head: &mut Head,
    headers: &[u8],
    behind: &[u8],
    at: usize,
    payload_len: u32,
    ecn: Option<Ecn>,
) -> Result<(), Refusal> {
    let network = headers.get(at..).ok_or(Refusal::Truncated)?;
    let (header, options) =
        ipv4::Header::read_from_prefix(network).map_err(|_| Refusal::Truncated)?;
    let total_len = (network.len() as u32).saturating_add(payload_len);
    let total_len = u16::try_from(total_len).map_err(|_| Refusal::OutOfBounds)?;
    let flags = header.fragment.get() & !(ipv4::MORE_FRAGMENTS | ipv4::OFFSET);
    let class = ecn.map_or(header.traffic_class, |ecn| header.traffic_class & !3 | ecn as u8);
    let mut whole = ipv4::Header {
        traffic_class: class,
        total_len: total_len.into(),
        fragment: flags.into(),
        ..header
    };
    whole.sum = whole.checksum(options).into();
    head.clear();
    if !head.push(headers) || !head.push(behind) {
        return Err(Refusal::NoRoom);
    }
    head.as_mut_slice()[at..at + ipv4::LEN].copy_from_slice(whole.as_bytes());
    Ok(())
}

fn whole_ipv6(
    head: &mut Head,
    headers: &[u8],
    behind: &[u8],
    at: usize,
    is_piece: bool,
    payload_len: u32,
    ecn: Option<Ecn>,
) -> Result<(), Refusal> {
    let fragment_len = if is_piece { fragment::LEN } else { 0 };
    let kept = headers.len().checked_sub(fragment_len).ok_or(Refusal::Truncated)?;
    let (kept, piece) = headers.split_at(kept);
    let network = kept.get(at..).ok_or(Refusal::Truncated)?;
    let (header, extensions) =
        ipv6::Header::ref_from_prefix(network).map_err(|_| Refusal::Truncated)?;
    let len = (extensions.len() as u32).saturating_add(payload_len);
    let len = u16::try_from(len).map_err(|_| Refusal::OutOfBounds)?;
    let named_at = Walk::new(header, at).to(kept, kept.len()).ok_or(Refusal::Malformed)?;
    head.clear();
    if !head.push(kept) || !head.push(behind) {
        return Err(Refusal::NoRoom);
    }
    let bytes = head.as_mut_slice();
    if let Some(next_header) = piece.first() {
        bytes[named_at] = *next_header;
    }
    let (header, _) =
        ipv6::Header::mut_from_prefix(&mut bytes[at..]).map_err(|_| Refusal::Truncated)?;
    header.payload_len = len.into();
    if let Some(ecn) = ecn {
        header.set_ecn(ecn);
    }
    Ok(())
}
