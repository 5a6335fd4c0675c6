//! What a device does to a long TCP segment: it cuts it.

use alloc::vec::Vec;

use landfall_placement::{InternetSum, Segment, SegmentKind};

const ETHERNET: usize = 14;
const FIN_PSH: u8 = 0x09;

/// Cuts a frame with Ethernet, IP and TCP headers into frames of
/// `segment.size` payload bytes; a frame that is not one comes back whole.
#[must_use]
pub fn cut(frame: &[u8], segment: Segment) -> Vec<Vec<u8>> {
    try_cut(frame, segment).unwrap_or_else(|| alloc::vec![frame.to_vec()])
}

fn try_cut(frame: &[u8], segment: Segment) -> Option<Vec<Vec<u8>>> {
    let tcp = ETHERNET
        + match segment.kind {
            SegmentKind::Tcp4 => usize::from(frame.get(ETHERNET)? & 15) * 4,
            SegmentKind::Tcp6 => 40,
        };
    let head = tcp + usize::from(frame.get(tcp + 12)? >> 4) * 4;
    let payload = frame.get(head..)?;
    let sequence = u32::from_be_bytes(frame.get(tcp + 4..tcp + 8)?.try_into().ok()?);
    let size = usize::from(segment.size).max(1);
    let count = payload.len().div_ceil(size);
    let mut pieces = Vec::new();
    for (n, part) in payload.chunks(size).enumerate() {
        let mut piece = frame[..head].to_vec();
        piece.extend_from_slice(part);
        let here = sequence.wrapping_add((n * size) as u32);
        piece[tcp + 4..tcp + 8].copy_from_slice(&here.to_be_bytes());
        if n + 1 < count {
            piece[tcp + 13] &= !FIN_PSH;
        }
        finish(&mut piece, tcp, n as u16, segment.kind)?;
        pieces.push(piece);
    }
    Some(pieces)
}

/// Sets the lengths and checksums that changed.
fn finish(piece: &mut [u8], tcp: usize, nth: u16, kind: SegmentKind) -> Option<()> {
    let tcp_len = u16::try_from(piece.len() - tcp).ok()?;
    let mut sum = InternetSum::new();
    match kind {
        SegmentKind::Tcp4 => {
            let total = u16::try_from(piece.len() - ETHERNET).ok()?;
            piece[16..18].copy_from_slice(&total.to_be_bytes());
            let id = u16::from_be_bytes([piece[18], piece[19]]).wrapping_add(nth);
            piece[18..20].copy_from_slice(&id.to_be_bytes());
            piece[24..26].fill(0);
            let check = landfall_placement::checksum::checksum(&piece[ETHERNET..tcp]);
            piece[24..26].copy_from_slice(&check.to_be_bytes());
            sum.add(&piece[26..34]);
        }
        SegmentKind::Tcp6 => {
            piece[18..20].copy_from_slice(&tcp_len.to_be_bytes());
            sum.add(&piece[22..54]);
        }
    }
    sum.add_word(6);
    sum.add_word(tcp_len);
    piece[tcp + 16..tcp + 18].fill(0);
    sum.add(&piece[tcp..]);
    piece[tcp + 16..tcp + 18].copy_from_slice(&sum.checksum().to_be_bytes());
    Some(())
}
