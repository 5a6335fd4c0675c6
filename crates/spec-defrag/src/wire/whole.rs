//! The head of a first piece becomes the head of the whole packet.

use landfall_placement::{Ecn, Refusal};
use zerocopy::FromBytes;
use zerocopy::network_endian::U16;

use super::ipv6::{FRAGMENT_LEN, FragmentHeader, Walk};
use super::{Key, Parsed, ethernet, ipv4, ipv6};
use crate::packet::Head;

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
    let headers = first.get(..usize::from(parsed.payload_at)).ok_or(Refusal::Truncated)?;
    let at = usize::from(parsed.network_at);
    if parsed.key.protocol == Key::IPV6 {
        whole_ipv6(headers, at, parsed.fragment.is_some(), payload_len, Some(ecn))
    } else {
        whole_ipv4(headers, at, payload_len, Some(ecn))
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
    let head = match ethernet.ethertype.get() {
        ethernet::IPV4 => whole_ipv4(headers, ethernet::LEN, payload_len, None),
        ethernet::IPV6 => whole_ipv6(headers, ethernet::LEN, true, payload_len, None),
        _ => return None,
    };
    let mut head = head.ok()?;
    head.push(transport).then_some(head)
}

/// `headers` are those of the link and, from `at` on, of IP.
#[inline]
fn whole_ipv4(
    headers: &[u8],
    at: usize,
    payload_len: u32,
    ecn: Option<Ecn>,
) -> Result<Head, Refusal> {
    let mut head = Head::from_slice(headers).ok_or(Refusal::NoRoom)?;
    let network = head.as_mut_slice().get_mut(at..).ok_or(Refusal::Truncated)?;
    let total_len = (network.len() as u32).saturating_add(payload_len);
    let (header, _) = ipv4::Header::mut_from_prefix(network).map_err(|_| Refusal::Truncated)?;
    header.total_len = U16::new(u16::try_from(total_len).map_err(|_| Refusal::OutOfBounds)?);
    let flags = header.fragment.get() & !(ipv4::MORE_FRAGMENTS | ipv4::OFFSET);
    header.fragment = flags.into();
    if let Some(ecn) = ecn {
        header.traffic_class = header.traffic_class & !3 | ecn as u8;
    }
    ipv4::seal(network);
    Ok(head)
}

fn whole_ipv6(
    headers: &[u8],
    at: usize,
    is_piece: bool,
    payload_len: u32,
    ecn: Option<Ecn>,
) -> Result<Head, Refusal> {
    let behind = if is_piece { FRAGMENT_LEN } else { 0 };
    let kept = headers.len().checked_sub(behind).ok_or(Refusal::Truncated)?;
    let (kept, fragment_header) = headers.split_at(kept);
    let mut head = Head::from_slice(kept).ok_or(Refusal::NoRoom)?;
    let network = head.as_mut_slice().get_mut(at..).ok_or(Refusal::Truncated)?;
    let extensions = network.len().checked_sub(ipv6::LEN).ok_or(Refusal::Truncated)?;
    let len = (extensions as u32).saturating_add(payload_len);
    let (header, _) = ipv6::Header::mut_from_prefix(network).map_err(|_| Refusal::Truncated)?;
    header.payload_len = U16::new(u16::try_from(len).map_err(|_| Refusal::OutOfBounds)?);
    if let Some(ecn) = ecn {
        header.set_ecn(ecn);
    }
    let walk = Walk::new(header, at);
    if let Ok(fragment) = FragmentHeader::ref_from_bytes(fragment_header) {
        let named_at = walk.to(&head, kept.len()).ok_or(Refusal::Malformed)?;
        head.as_mut_slice()[named_at] = fragment.next_header;
    }
    Ok(head)
}
