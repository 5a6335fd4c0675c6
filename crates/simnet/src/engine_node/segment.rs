//! Cutting a long TCP segment in software, as an adapter with TSO does.

use alloc::vec::Vec;

use landfall_placement::{InternetSum, Segment, SegmentKind, checksum};

const ETHERNET_LEN: usize = 14;
const TCP: u16 = 6;

/// The flags of TCP, and those that only some segments may have.
const FIN_PSH: u8 = 0x01 | 0x08;
const CWR: u8 = 0x80;

/// Where the headers of a frame are.
struct Layout {
    ip: usize,
    tcp: usize,
    kind: SegmentKind,
}

/// Cuts a frame whose Ethernet, IP and TCP headers are `head_len` bytes long
/// into frames of `segment.size` bytes of payload. Each gets its own lengths,
/// sequence number, flags and checksums (Linux: `tcp_gso_segment`).
///
/// `None` where the headers are not what they should be.
pub(super) fn cut(bytes: &[u8], head_len: usize, segment: Segment) -> Option<Vec<Vec<u8>>> {
    let (head, payload) = bytes.split_at_checked(head_len)?;
    let layout = Layout::of(head, segment.kind)?;
    let size = usize::from(segment.size.max(1));
    let pieces = payload.len().div_ceil(size).max(1);
    let mut frames = Vec::with_capacity(pieces);
    for n in 0..pieces {
        let start = n * size;
        let part = &payload[start..payload.len().min(start + size)];
        let mut frame = Vec::with_capacity(head_len + part.len());
        frame.extend_from_slice(head);
        frame.extend_from_slice(part);
        layout.make_own(&mut frame, n, start, n + 1 == pieces)?;
        frames.push(frame);
    }
    Some(frames)
}

impl Layout {
    fn of(head: &[u8], kind: SegmentKind) -> Option<Self> {
        let ip = ETHERNET_LEN;
        let ethertype = word(head, 12)?;
        let (expected, tcp, protocol) = match kind {
            SegmentKind::Tcp4 => {
                (0x0800, ip + usize::from(head.get(ip)? & 15) * 4, *head.get(ip + 9)?)
            }
            SegmentKind::Tcp6 => (0x86dd, ip + 40, *head.get(ip + 6)?),
        };
        let tcp_len = usize::from(head.get(tcp + 12)? >> 4) * 4;
        let good = ethertype == expected
            && u16::from(protocol) == TCP
            && tcp >= ip + 20
            && tcp_len >= 20
            && tcp + tcp_len == head.len();
        good.then_some(Self { ip, tcp, kind })
    }

    /// Gives piece `n`, which starts `start` bytes into the payload, headers of its own.
    fn make_own(&self, frame: &mut [u8], n: usize, start: usize, is_last: bool) -> Option<()> {
        let &Self { ip, tcp, kind } = self;
        let len = frame.len();
        let addresses = match kind {
            SegmentKind::Tcp4 => {
                put(frame, ip + 2, u16::try_from(len - ip).ok()?);
                let id = word(frame, ip + 4)?.wrapping_add(n as u16);
                put(frame, ip + 4, id);
                put(frame, ip + 10, 0);
                let sum = checksum::checksum(&frame[ip..tcp]);
                put(frame, ip + 10, sum);
                ip + 12..ip + 20
            }
            SegmentKind::Tcp6 => {
                put(frame, ip + 4, u16::try_from(len - tcp).ok()?);
                ip + 8..ip + 40
            }
        };
        let sequence = u32::from(word(frame, tcp + 4)?) << 16 | u32::from(word(frame, tcp + 6)?);
        let sequence = sequence.wrapping_add(start as u32);
        frame[tcp + 4..tcp + 8].copy_from_slice(&sequence.to_be_bytes());
        if !is_last {
            frame[tcp + 13] &= !FIN_PSH;
        }
        if n > 0 {
            frame[tcp + 13] &= !CWR;
        }
        put(frame, tcp + 16, 0);
        let mut sum = InternetSum::new();
        sum.add(&frame[addresses]);
        sum.add_word(TCP);
        sum.add_word(u16::try_from(len - tcp).ok()?);
        let mut all = InternetSum::new();
        all.add(&frame[tcp..]);
        all.add_word(sum.sum());
        put(frame, tcp + 16, all.checksum());
        Some(())
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*bytes))
}

/// Writes a field of a header whose layout was checked.
fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// A frame over IPv4 with options in both headers.
    fn long_frame(payload: &[u8]) -> (Vec<u8>, usize) {
        let mut frame = vec![0; ETHERNET_LEN];
        put(&mut frame, 12, 0x0800);
        frame.extend_from_slice(&[0x46, 0, 0, 0, 0xff, 0xff, 0x40, 0, 64, 6, 0, 0]);
        frame.extend_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2, 1, 1, 1, 1]);
        let mut tcp = vec![0; 32];
        put(&mut tcp, 4, 0xffff);
        put(&mut tcp, 6, 0xfff0);
        tcp[12] = 8 << 4;
        tcp[13] = CWR | FIN_PSH | 0x10;
        frame.extend_from_slice(&tcp);
        let head = frame.len();
        frame.extend_from_slice(payload);
        (frame, head)
    }

    #[test]
    fn pieces_are_whole_segments_and_join_to_the_payload() {
        let payload: Vec<u8> = (0..250).collect();
        let (frame, head) = long_frame(&payload);
        let pieces = cut(&frame, head, Segment { kind: SegmentKind::Tcp4, size: 100 }).unwrap();
        let (ip, tcp) = (ETHERNET_LEN, ETHERNET_LEN + 24);
        let mut joined = Vec::new();
        for (n, piece) in pieces.iter().enumerate() {
            assert_eq!(usize::from(word(piece, ip + 2).unwrap()), piece.len() - ip);
            assert_eq!(checksum::sum_of(&piece[ip..tcp]), 0xffff, "IP header");
            let mut sum = InternetSum::new();
            sum.add(&piece[ip + 12..ip + 20]);
            sum.add_word(TCP);
            sum.add_word((piece.len() - tcp) as u16);
            sum.add_word(checksum::sum_of(&piece[tcp..]));
            assert_eq!(sum.sum(), 0xffff, "TCP");
            let sequence = u32::from_be_bytes(piece[tcp + 4..tcp + 8].try_into().unwrap());
            assert_eq!(sequence, 0xffff_fff0u32.wrapping_add(100 * n as u32));
            assert_eq!(word(piece, ip + 4), Some(0xffff_u16.wrapping_add(n as u16)));
            joined.extend_from_slice(&piece[head..]);
        }
        assert_eq!(joined, payload);
        let flags: Vec<_> = pieces.iter().map(|piece| piece[tcp + 13]).collect();
        assert_eq!(flags, [CWR | 0x10, 0x10, FIN_PSH | 0x10]);
    }

    #[test]
    fn headers_that_are_none_are_not_cut() {
        let segment = Segment { kind: SegmentKind::Tcp4, size: 100 };
        let (frame, head) = long_frame(&[1; 200]);
        assert!(cut(&frame, head + 1, segment).is_none());
        assert!(cut(&frame, 1_000, segment).is_none());
        assert!(cut(&frame, head, Segment { kind: SegmentKind::Tcp6, size: 100 }).is_none());
        for cut_at in 0..head {
            assert!(cut(&frame[..cut_at], cut_at, segment).is_none());
        }
    }
}
