//! What a network device does to a frame of TCP or UDP for its driver: it completes the
//! [checksum](Summed::complete), and [cuts](Long) a long segment into packets.
//!
//! Here it is done in software: by models of devices, and for frames that a kernel handed
//! over unfinished, since nothing had crossed a wire.

use alloc::vec::Vec;

use zerocopy::FromBytes;

use crate::checksum::{self, InternetSum};
use crate::tcp::Flags;
use crate::{ethernet, ipv4, ipv6, protocol, tcp, udp};

/// Said once for all that is cut: of congestion by the first packet, of an end by the last.
const FIN_AND_PSH: Flags = Flags::FIN.union(Flags::PSH);

/// A frame with a checksum of TCP or UDP: where its header is, and what the sum covers.
///
/// ```
/// use landfall_inet::device::Summed;
/// use landfall_inet::{Envelope, protocol, udp};
///
/// let (us, them) = ("192.0.2.1".parse()?, "192.0.2.2".parse()?);
/// let envelope = Envelope::new(([2; 6], us), ([4; 6], them), protocol::UDP);
/// let mut frame = [7; 52];
/// let at = envelope.write(&mut frame, 18).expect("it fits");
/// // Any sum but zero, which would say that there is none.
/// udp::Header { source: 7.into(), destination: 9.into(), len: 18.into(), sum: 1.into() }
///     .write(&mut frame[at..]);
/// Summed::find(&frame).expect("it is a datagram with a sum").complete(&mut frame);
/// # Ok::<(), core::net::AddrParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summed {
    /// The first byte of the header of TCP or UDP, and the end of the packet.
    at: usize,
    end: usize,
    protocol: u8,
    version: Version,
    /// The sum over the addresses and the protocol: the pseudo-header without the length.
    addresses: InternetSum,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V4,
    V6,
}

impl Summed {
    /// The checksum of this frame, if it has one of its own: no fragment does, no packet
    /// with extension headers, and no datagram without a checksum.
    #[must_use]
    pub fn find(frame: &[u8]) -> Option<Self> {
        let (ethernet, packet) = ethernet::read(frame).ok()?;
        let (version, header_len, len, protocol, addresses) = match ethernet.ethertype.get() {
            ethernet::IPV4 => {
                let (header, len) = ipv4::read(packet).ok()?;
                (!header.is_fragment()).then_some(())?;
                let (from, to) = (header.source().into(), header.destination().into());
                let sum = checksum::pseudo_header(from, to, header.protocol);
                (Version::V4, len, header.total_len.get().into(), header.protocol, sum)
            }
            ethernet::IPV6 => {
                let header = ipv6::read(packet).ok()?;
                (header.payload_len.get() > 0).then_some(())?;
                let (from, to) = (header.source().into(), header.destination().into());
                let sum = checksum::pseudo_header(from, to, header.next_header);
                let len = ipv6::LEN + usize::from(header.payload_len.get());
                (Version::V6, ipv6::LEN, len, header.next_header, sum)
            }
            _ => return None,
        };
        let (at, end) = (ethernet::LEN + header_len, ethernet::LEN + len);
        let transport = frame.get(at..end)?;
        let is_summed = match protocol {
            protocol::TCP => tcp_header_len(transport).is_some_and(|len| len <= transport.len()),
            // A datagram of IPv4 need not have one.
            protocol::UDP => udp::Header::ref_from_prefix(transport).ok()?.0.has_sum(),
            _ => false,
        };
        is_summed.then_some(Self { at, end, protocol, version, addresses })
    }

    /// It is a segment of TCP.
    #[must_use]
    pub const fn is_tcp(&self) -> bool {
        self.protocol == protocol::TCP
    }

    /// What is to be summed: from where on, how many bytes, and what is added.
    #[must_use]
    pub const fn check(&self) -> (u16, u32, u16) {
        let len = (self.end - self.at) as u32;
        (self.at as u16, len, checksum::with_len(self.addresses, len))
    }

    /// Computes the checksum, whatever stands there.
    pub fn complete(&self, frame: &mut [u8]) {
        let slot = if self.is_tcp() { tcp::SUM_OFFSET } else { udp::SUM_OFFSET };
        let slot = self.at + usize::from(slot);
        let (_, _, seed) = self.check();
        let Some(place) = frame.get_mut(slot..slot + 2) else { return };
        place.fill(0);
        let mut sum = InternetSum::new();
        sum.add(frame.get(self.at..self.end).unwrap_or_default());
        sum.add_word(seed);
        let checksum = sum.checksum();
        let field = if self.is_tcp() { checksum } else { udp::Header::sum_field(checksum) };
        frame[slot..slot + 2].copy_from_slice(&field.to_be_bytes());
    }

    /// Cuts a segment of TCP that was joined into the frames that it was before, of this many
    /// bytes of payload each; the last may be shorter.
    ///
    /// `None` for a datagram, which is not cut so, and for a frame that is not the one that was
    /// looked at.
    pub fn cut(&self, frame: &[u8], size: usize, take: impl FnMut(&[u8])) -> Option<()> {
        self.is_tcp().then_some(())?;
        let transport = frame.get(self.at..self.end)?;
        let head_len = self.at + tcp_header_len(transport)?;
        let head = frame.get(..head_len)?;
        Long { head, summed: *self }.cut(frame.get(head_len..self.end)?, size, take)
    }
}

/// The length of the header of this segment; of one that says less, that of the shortest.
fn tcp_header_len(segment: &[u8]) -> Option<usize> {
    let (header, _) = tcp::Header::ref_from_prefix(segment).ok()?;
    Some(header.header_len().max(tcp::LEN))
}

/// The headers of a segment of TCP that is longer than a packet may be. The lengths and sums
/// in them need not be right: each packet gets its own.
#[derive(Clone, Copy, Debug)]
pub struct Long<'a> {
    head: &'a [u8],
    summed: Summed,
}

impl<'a> Long<'a> {
    /// Reads the headers of Ethernet, IP and TCP at the start of a frame; gives also what is
    /// behind them.
    #[must_use]
    pub fn split(frame: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (ethernet, packet) = ethernet::read(frame).ok()?;
        let (version, ip_len, protocol, addresses) = match ethernet.ethertype.get() {
            ethernet::IPV4 => {
                let (header, _) = ipv4::Header::ref_from_prefix(packet).ok()?;
                let (from, to) = (header.source().into(), header.destination().into());
                let sum = checksum::pseudo_header(from, to, header.protocol);
                (Version::V4, header.header_len(), header.protocol, sum)
            }
            ethernet::IPV6 => {
                let (header, _) = ipv6::Header::ref_from_prefix(packet).ok()?;
                let (from, to) = (header.source().into(), header.destination().into());
                let sum = checksum::pseudo_header(from, to, header.next_header);
                (Version::V6, ipv6::LEN, header.next_header, sum)
            }
            _ => return None,
        };
        let at = ethernet::LEN + ip_len;
        let (header, _) = tcp::Header::ref_from_prefix(frame.get(at..)?).ok()?;
        let is_good =
            protocol == protocol::TCP && ip_len >= ipv4::LEN && header.header_len() >= tcp::LEN;
        let (head, payload) = frame.split_at_checked(at + header.header_len())?;
        let summed = Summed { at, end: head.len(), protocol, version, addresses };
        is_good.then_some((Self { head, summed }, payload))
    }

    /// Its packets are those of IPv4, not of IPv6.
    #[must_use]
    pub const fn is_ipv4(&self) -> bool {
        matches!(self.summed.version, Version::V4)
    }

    /// Cuts the payload into packets of `size` bytes, of which the last may be shorter, and
    /// hands them out in their order. Each has its own lengths, identification, sequence
    /// number, flags and checksums (Linux: `tcp_gso_segment`). Without payload it is one.
    ///
    /// `None` where a packet would be longer than IP can say.
    pub fn cut(&self, payload: &[u8], size: usize, mut take: impl FnMut(&[u8])) -> Option<()> {
        let size = size.max(1);
        let count = payload.len().div_ceil(size).max(1);
        let mut packet = Vec::with_capacity(self.head.len() + size.min(payload.len()));
        for nth in 0..count {
            let start = nth * size;
            packet.clear();
            packet.extend_from_slice(self.head);
            packet.extend_from_slice(&payload[start..payload.len().min(start + size)]);
            self.finish(&mut packet, nth, start, nth + 1 == count)?;
            take(&packet);
        }
        Some(())
    }

    /// Gives packet `nth`, whose payload starts `start` bytes behind the first, headers of its
    /// own.
    fn finish(&self, packet: &mut [u8], nth: usize, start: usize, is_last: bool) -> Option<()> {
        let summed = Summed { end: packet.len(), ..self.summed };
        let (ip, transport) = packet.split_at_mut(summed.at);
        let (_, ip) = ip.split_at_mut(ethernet::LEN);
        match summed.version {
            Version::V4 => {
                let total_len = u16::try_from(ip.len() + transport.len()).ok()?;
                let (header, _) = ipv4::Header::mut_from_prefix(ip).ok()?;
                header.total_len = total_len.into();
                header.id = header.id.get().wrapping_add(nth as u16).into();
                ipv4::seal(ip);
            }
            Version::V6 => {
                let (header, _) = ipv6::Header::mut_from_prefix(ip).ok()?;
                header.payload_len = u16::try_from(transport.len()).ok()?.into();
            }
        }
        let (header, _) = tcp::Header::mut_from_prefix(transport).ok()?;
        header.seq = header.seq.get().wrapping_add(start as u32).into();
        if !is_last {
            header.flags = header.flags.without(FIN_AND_PSH);
        }
        if nth > 0 {
            header.flags = header.flags.without(Flags::CWR);
        }
        summed.complete(packet);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::vec;

    use super::*;
    use crate::checksum::checksum;
    use crate::protocol::{TCP, UDP};

    const SYN_LIKE: [u8; 2] = [0x50, 0x99];

    /// A frame of TCP over IPv4 or IPv6 with this many bytes of payload, and no checksums.
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
            summed.cut(&joined, 1_000, |piece| pieces.push(piece.to_vec())).unwrap();
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
                    assert_eq!(checksum(&piece[14..34]), 0);
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
