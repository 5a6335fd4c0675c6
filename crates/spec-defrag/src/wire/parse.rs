//! A frame is read as far as joining needs it.

use landfall_placement::Ecn;
use zerocopy::FromBytes;

use super::{Parsed, Stop, ethernet, ipv4, ipv6};

/// Reads the headers of a frame of `frame_len` bytes, of which the first ones are
/// at hand in `head`.
///
/// A piece of a packet is checked as a standard receiver would do it: the header
/// checksum of IPv4, lengths, the offset. A packet in one piece is not: nobody
/// here changes it, and the stack above checks it.
///
/// # Errors
/// [`Stop::NeedHead`] where more of the frame is needed, which it has;
/// [`Stop::Foreign`] for what is no IP, and for packets in one piece that have
/// anything odd; [`Stop::Refused`] for pieces that are cut off, contradict
/// themselves or are corrupt.
#[inline]
pub fn parse(head: &[u8], frame_len: u32) -> Result<Parsed, Stop> {
    if let Some(parsed) = plain_piece(head, frame_len) {
        return Ok(parsed);
    }
    parse_any(head, frame_len)
}

/// Nearly all pieces: IPv4, no options, everything right. `None` says nothing.
#[inline]
fn plain_piece(head: &[u8], frame_len: u32) -> Option<Parsed> {
    const AT: usize = ethernet::LEN;
    const PAYLOAD_AT: usize = AT + ipv4::LEN;
    let bytes = head.first_chunk::<PAYLOAD_AT>()?;
    let header = ipv4::Header::ref_from_bytes(&bytes[AT..]).ok()?;
    let total_len = u32::from(header.total_len.get());
    let payload_len = total_len.wrapping_sub(ipv4::LEN as u32);
    let is_plain = u16::from_be_bytes([bytes[12], bytes[13]]) == ethernet::IPV4
        && header.version_and_words == 0x45
        && header.is_fragment()
        && AT as u32 + total_len <= frame_len
        && total_len > ipv4::LEN as u32
        && ipv4::sum(&bytes[AT..]) == 0xffff;
    let piece = header.piece();
    let ends_well = !piece.more || payload_len.is_multiple_of(8);
    let fits = piece.offset.wrapping_add(total_len) <= ipv4::PACKET_MAX;
    (is_plain && ends_well && fits).then(|| Parsed {
        key: header.key(),
        fragment: Some(piece),
        protocol: header.protocol,
        network_at: AT as u16,
        payload_at: PAYLOAD_AT as u16,
        payload_len,
        ecn: Ecn::from_bits(header.traffic_class),
    })
}

pub(super) fn parse_any(head: &[u8], frame_len: u32) -> Result<Parsed, Stop> {
    // What is shown beyond the frame is not part of it.
    let head = head.get(..frame_len as usize).unwrap_or(head);
    let Ok((ethernet, _)) = ethernet::Header::ref_from_prefix(head) else {
        return Err(ipv4::cut_short(ethernet::LEN, frame_len, Stop::Foreign));
    };
    match ethernet.ethertype.get() {
        ethernet::IPV4 => ipv4::parse(head, frame_len),
        ethernet::IPV6 => ipv6::parse(head, frame_len),
        _ => Err(Stop::Foreign),
    }
}
