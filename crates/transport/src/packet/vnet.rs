//! The virtio-net header before each frame: what the device shall do, or did
//! (`linux/virtio_net.h`; packet sockets have it in the machine's byte order).

use landfall_placement::{SegmentKind, SumSlot, Transmit};

use crate::exchange::{PREFIX_ROOM, Prefix};

/// Its length.
pub(crate) const VNET_HEADER: usize = 10;

const NEEDS_SUM: u8 = 1;
const SUM_IS_VALID: u8 = 2;
const NO_SEGMENTS: u8 = 0;
const TCP_OVER_IPV4: u8 = 1;
const TCP_OVER_IPV6: u8 = 4;
/// `VIRTIO_NET_HDR_GSO_UDP_L4`: datagrams of one length behind one header; Linux 6.2.
const UDP_DATAGRAMS: u8 = 5;
/// A bit beside the kind: the segments carry congestion signals.
const ECN: u8 = 0x80;

/// What the kernel says of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Received {
    /// The transport checksum is known to be right, or was never computed,
    /// because the frame did not leave this machine.
    pub(crate) verified: bool,
    /// The frame was coalesced: the payload of each segment but the last.
    pub(crate) coalesced: Option<u16>,
}

/// Asks for the checksum and the segmentation that a unit wants.
pub(crate) fn write(unit: &Transmit, header: &mut Prefix) {
    let kind = match unit.segment.map(|segment| segment.kind) {
        None => NO_SEGMENTS,
        Some(SegmentKind::Tcp4) => TCP_OVER_IPV4,
        Some(SegmentKind::Tcp6) => TCP_OVER_IPV6,
    };
    let size = unit.segment.map_or(0, |segment| segment.size);
    fill_in(header, (kind, size), unit.head_len, unit.checksum);
}

/// Asks for the checksum of a datagram of UDP whose headers end at `head_len`; with a
/// `unit_len`, of several such, which the kernel or the device cuts from this one.
pub(crate) fn write_udp(header: &mut Prefix, head_len: u16, unit_len: Option<u16>, sum: SumSlot) {
    let segments = unit_len.map_or((NO_SEGMENTS, 0), |unit_len| (UDP_DATAGRAMS, unit_len));
    fill_in(header, segments, head_len, Some(sum));
}

fn fill_in(header: &mut Prefix, (kind, size): (u8, u16), head_len: u16, sum: Option<SumSlot>) {
    let (start, offset) = sum.map_or((0, 0), |sum| (sum.start, sum.offset));
    header[0] = if sum.is_some() { NEEDS_SUM } else { 0 };
    header[1] = kind;
    for (at, value) in [(2, head_len), (4, size), (6, start), (8, offset)] {
        header[at..at + 2].copy_from_slice(&value.to_ne_bytes());
    }
}

/// Reads what the kernel wrote before a frame.
pub(crate) fn read(header: &Prefix) -> Received {
    let size = u16::from_ne_bytes([header[4], header[5]]);
    let segments = header[1] & !ECN != NO_SEGMENTS && size > 0;
    Received {
        verified: header[0] & (NEEDS_SUM | SUM_IS_VALID) != 0,
        coalesced: segments.then_some(size),
    }
}

/// Where a checksum is to be finished.
pub(crate) fn read_sum(header: &[u8; VNET_HEADER]) -> Option<SumSlot> {
    let word = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    (header[0] & NEEDS_SUM != 0).then(|| SumSlot { start: word(6), offset: word(8) })
}

/// Before a frame that is not to be cut: its checksum is right, or is to be finished there.
pub(crate) fn write_sum(sum: Option<SumSlot>) -> [u8; VNET_HEADER] {
    let mut header: Prefix = [0; PREFIX_ROOM];
    fill_in(&mut header, (NO_SEGMENTS, 0), 0, sum);
    std::array::from_fn(|at| header[at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_placement::{Ecn, Peer, Segment, Ticket};

    fn unit(segment: Option<Segment>, checksum: Option<SumSlot>) -> Transmit {
        Transmit {
            to: Peer::Unaddressed,
            head_len: 66,
            segment,
            checksum,
            sum_only: 0,
            ecn: Ecn::NotCapable,
            ticket: Ticket::new(0, 0),
        }
    }

    #[test]
    fn what_is_asked_for_is_what_arrives_on_this_machine() {
        let mut header = [0xff; PREFIX_ROOM];
        write(&unit(None, None), &mut header);
        assert_eq!(read(&header), Received::default());
        let segment = Segment { kind: SegmentKind::Tcp4, size: 1448 };
        write(&unit(Some(segment), Some(SumSlot { start: 34, offset: 16 })), &mut header);
        assert_eq!(read(&header), Received { verified: true, coalesced: Some(1448) });
        let words = header[..VNET_HEADER].as_chunks::<2>().0;
        let words: Vec<u16> = words[1..5].iter().map(|word| u16::from_ne_bytes(*word)).collect();
        assert_eq!(words, [66, 1448, 34, 16]);
    }

    #[test]
    fn datagrams_are_cut_where_there_are_several() {
        let (mut header, sum) = ([0xff; PREFIX_ROOM], SumSlot { start: 34, offset: 6 });
        write_udp(&mut header, 42, Some(1472), sum);
        assert_eq!(header[..2], [NEEDS_SUM, UDP_DATAGRAMS]);
        assert_eq!(read(&header), Received { verified: true, coalesced: Some(1472) });
        write_udp(&mut header, 42, None, sum);
        assert_eq!(header[..2], [NEEDS_SUM, NO_SEGMENTS]);
        assert_eq!(read(&header), Received { verified: true, coalesced: None });
    }

    #[test]
    fn a_sum_is_to_be_finished_where_it_was_said() {
        for sum in [None, Some(SumSlot { start: 34, offset: 6 })] {
            assert_eq!(read_sum(&write_sum(sum)), sum);
        }
    }

    #[test]
    fn congestion_signals_are_no_segments() {
        let mut header = [0; PREFIX_ROOM];
        header[1] = ECN;
        header[4..6].copy_from_slice(&1448u16.to_ne_bytes());
        assert_eq!(read(&header).coalesced, None);
        header[1] = ECN | TCP_OVER_IPV6;
        assert_eq!(read(&header).coalesced, Some(1448));
    }
}
