//! What a cable carries, out of what a kernel hands over: packets of TCP that it has joined
//! are [cut](cut) again, and checksums that it left to a device are [computed](Summed).

use landfall_placement::InternetSum;

/// The header of Ethernet.
const ETHERNET: usize = 14;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Bits of the thirteenth byte of TCP's header, behind its length.
const FIN_AND_PSH: u8 = 0x09;
const CWR: u8 = 0x80;

/// A frame with a checksum of TCP or UDP: where that is, and what it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Summed {
    /// The first byte of TCP's or UDP's header, and the end of the packet.
    at: usize,
    end: usize,
    protocol: u8,
    is_v4: bool,
    /// The sum over the addresses and the protocol: the pseudo-header without the length.
    addresses: u16,
}

impl Summed {
    /// The checksum of this frame, if it has one of its own: no fragment does, no packet
    /// with extension headers, and no datagram without a checksum.
    pub(super) fn find(frame: &[u8]) -> Option<Self> {
        let packet = frame.get(ETHERNET..)?;
        let is_v4 = match frame.get(12..ETHERNET)? {
            [0x08, 0x00] => true,
            [0x86, 0xdd] => false,
            _ => return None,
        };
        let (header, len, protocol, addresses) = if is_v4 {
            let fixed = packet.first_chunk::<20>()?;
            let fragment = u16::from_be_bytes([fixed[6], fixed[7]]) & 0x3fff;
            let len = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
            let header = usize::from(fixed[0] & 0x0f) * 4;
            let (version, is_whole) = (fixed[0] >> 4, fragment == 0);
            (version == 4 && is_whole && header >= 20).then_some(())?;
            (header, len, fixed[9], packet.get(12..20)?)
        } else {
            let fixed = packet.first_chunk::<40>()?;
            let len = usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
            (fixed[0] >> 4 == 6 && len > 0).then_some(())?;
            (40, 40 + len, fixed[6], packet.get(8..40)?)
        };
        let (at, end) = (ETHERNET + header, ETHERNET + len);
        let transport = frame.get(at..end)?;
        let is_summed = match protocol {
            TCP => transport.len() >= 20 && tcp_header(transport) <= transport.len(),
            // A datagram of IPv4 need not have one.
            UDP => transport.len() >= 8 && transport[6..8] != [0, 0],
            _ => false,
        };
        let mut sum = InternetSum::new();
        sum.add(addresses);
        sum.add_word(protocol.into());
        is_summed.then_some(Self { at, end, protocol, is_v4, addresses: sum.sum() })
    }

    pub(super) const fn is_tcp(&self) -> bool {
        self.protocol == TCP
    }

    /// What is to be summed: from where on, how many bytes, and what is added.
    pub(super) fn check(&self) -> (u16, u32, u16) {
        let len = self.end - self.at;
        let mut seed = InternetSum::new();
        seed.add_word(self.addresses);
        seed.add_word(len as u16);
        (self.at as u16, len as u32, seed.sum())
    }

    /// Computes the checksum, whatever stands there.
    pub(super) fn complete(&self, frame: &mut [u8]) {
        let slot = self.at + if self.is_tcp() { 16 } else { 6 };
        let (_, _, seed) = self.check();
        let Some(place) = frame.get_mut(slot..slot + 2) else { return };
        place.fill(0);
        let mut sum = InternetSum::new();
        sum.add(frame.get(self.at..self.end).unwrap_or_default());
        sum.add_word(seed);
        let checksum = match !sum.sum() {
            // Zero is a datagram's word for none (RFC 768).
            0 if !self.is_tcp() => u16::MAX,
            checksum => checksum,
        };
        frame[slot..slot + 2].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// The length of the header of this segment.
fn tcp_header(segment: &[u8]) -> usize {
    (usize::from(segment[12] >> 4) * 4).max(20)
}

/// Cuts a packet of TCP that was joined into the frames that it was before, of so many bytes
/// of payload each; the last may be shorter.
pub(super) fn cut(frame: &[u8], summed: &Summed, size: usize, mut take: impl FnMut(&[u8])) {
    let head_len = summed.at + tcp_header(&frame[summed.at..summed.end]);
    let (head, payload) = (&frame[..head_len], &frame[head_len..summed.end]);
    let pieces = payload.chunks(size.max(1));
    let last = pieces.len().saturating_sub(1);
    let mut piece = Vec::with_capacity(head_len + size.min(payload.len()));
    for (nth, bytes) in pieces.enumerate() {
        piece.clear();
        piece.extend_from_slice(head);
        piece.extend_from_slice(bytes);
        let end = piece.len();
        let offset = (nth * size) as u32;
        if summed.is_v4 {
            set_v4(&mut piece[ETHERNET..summed.at], end - ETHERNET, nth as u16);
        } else {
            let len = (end - summed.at) as u16;
            piece[ETHERNET + 4..ETHERNET + 6].copy_from_slice(&len.to_be_bytes());
        }
        set_tcp(&mut piece[summed.at..], offset, nth == 0, nth == last);
        Summed { end, ..*summed }.complete(&mut piece);
        take(&piece);
    }
}

/// The header of IPv4 of the nth of several packets.
fn set_v4(header: &mut [u8], len: usize, nth: u16) {
    let identification = u16::from_be_bytes([header[4], header[5]]).wrapping_add(nth);
    header[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    header[4..6].copy_from_slice(&identification.to_be_bytes());
    header[10..12].fill(0);
    let checksum = landfall_placement::checksum::checksum(header);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// The header of a segment that begins so many bytes later. The first says what was said
/// of congestion, the last that there is an end.
fn set_tcp(segment: &mut [u8], offset: u32, is_first: bool, is_last: bool) {
    let [a, b, c, d] = [segment[4], segment[5], segment[6], segment[7]];
    let number = u32::from_be_bytes([a, b, c, d]).wrapping_add(offset);
    segment[4..8].copy_from_slice(&number.to_be_bytes());
    if !is_last {
        segment[13] &= !FIN_AND_PSH;
    }
    if !is_first {
        segment[13] &= !CWR;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYN_LIKE: [u8; 2] = [0x50, 0x99];

    /// A frame of TCP over IPv4 or IPv6 with so many bytes of payload, and no checksums.
    fn tcp(is_v4: bool, payload: usize) -> Vec<u8> {
        let mut frame = vec![2; 12];
        let len = 20 + payload;
        if is_v4 {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend(((20 + len) as u16).to_be_bytes());
            frame.extend([0xff, 0xff, 0x40, 0, 64, TCP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        } else {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend((len as u16).to_be_bytes());
            frame.extend([TCP, 64]);
            frame.extend([0xfd; 32]);
        }
        frame.extend([0, 1, 0, 2]);
        frame.extend(0xffff_ff00_u32.to_be_bytes());
        frame.extend([0, 0, 0, 9]);
        frame.extend(SYN_LIKE);
        frame.extend([1, 0, 0, 0, 0, 0]);
        frame.extend((0..payload).map(|n| (n / 7) as u8));
        frame
    }

    fn is_right(frame: &[u8]) -> bool {
        let summed = Summed::find(frame).expect("it has a checksum");
        let (from, len, seed) = summed.check();
        let mut sum = InternetSum::new();
        sum.add(&frame[usize::from(from)..][..len as usize]);
        sum.add_word(seed);
        sum.sum() == 0xffff
    }

    #[test]
    fn what_was_joined_is_cut_into_the_frames_that_it_was() {
        for is_v4 in [true, false] {
            let joined = tcp(is_v4, 2_500);
            let summed = Summed::find(&joined).unwrap();
            let mut pieces = Vec::new();
            cut(&joined, &summed, 1_000, |piece| pieces.push(piece.to_vec()));
            assert_eq!(pieces.len(), 3);
            let head = joined.len() - 2_500;
            let payload: Vec<u8> =
                pieces.iter().flat_map(|piece| &piece[head..]).copied().collect();
            assert_eq!(payload, joined[head..], "every byte, in its order");
            let at = summed.at;
            for (nth, piece) in pieces.iter().enumerate() {
                assert!(is_right(piece));
                assert_eq!(Summed::find(piece).unwrap().end, piece.len(), "no byte behind it");
                let number = u32::from_be_bytes(*piece[at + 4..].first_chunk().unwrap());
                assert_eq!(number, 0xffff_ff00_u32.wrapping_add(nth as u32 * 1_000));
                // Congestion is told by the first, the end by the last.
                let flags = [0x90, 0x10, 0x19][nth];
                assert_eq!(piece[at + 13], flags, "piece {nth}");
                if is_v4 {
                    assert_eq!(landfall_placement::checksum::checksum(&piece[14..34]), 0);
                    let number = u16::from_be_bytes([piece[18], piece[19]]);
                    assert_eq!(number, 0xffff_u16.wrapping_add(nth as u16));
                }
            }
        }
    }

    #[test]
    fn a_checksum_that_was_left_out_is_computed() {
        for is_v4 in [true, false] {
            for len in [0, 1, 777] {
                let mut frame = tcp(is_v4, len);
                // Padding is not part of it.
                frame.resize(frame.len().max(60) + 3, 0xee);
                let summed = Summed::find(&frame).unwrap();
                assert!(!is_right(&frame));
                summed.complete(&mut frame);
                assert!(is_right(&frame));
                let once = frame.clone();
                summed.complete(&mut frame);
                assert_eq!(frame, once, "what is right stays");
            }
        }
    }

    #[test]
    fn what_has_no_checksum_of_its_own_is_left_alone() {
        let whole = tcp(true, 100);
        assert!(Summed::find(&whole).is_some());
        let changed = |at: usize, byte: u8| {
            let mut frame = whole.clone();
            frame[at] = byte;
            Summed::find(&frame)
        };
        assert_eq!(changed(20, 0x20), None, "a fragment");
        assert_eq!(changed(21, 1), None, "a later one");
        assert_eq!(changed(23, 1), None, "another protocol");
        assert_eq!(changed(13, 6), None, "ARP");
        assert_eq!(changed(14, 0x65), None, "another version");
        assert_eq!(changed(14, 0x44), None, "a header that is too short");
        assert_eq!(changed(16, 0xff), None, "longer than the frame");
        assert_eq!(changed(46, 0xf0), Summed::find(&whole), "a long header that fits");
        for len in 0..whole.len() {
            assert_eq!(Summed::find(&whole[..len]), None, "cut off at {len}");
        }
        let mut datagram = tcp(true, 0);
        datagram[23] = UDP;
        datagram[40..42].fill(0);
        assert_eq!(Summed::find(&datagram), None, "a datagram without one");
        datagram[40] = 1;
        assert!(Summed::find(&datagram).is_some());
    }
}
