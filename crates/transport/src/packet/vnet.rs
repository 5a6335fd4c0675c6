//! The virtio-net header before each frame: what the device shall do, or did
//! (`linux/virtio_net.h`; packet sockets have it in the machine's byte order).

use landfall_placement::{SegmentKind, Transmit};

use crate::exchange::Prefix;

/// Its length.
pub(crate) const VNET_HEADER: usize = 10;

const NEEDS_SUM: u8 = 1;
const SUM_IS_VALID: u8 = 2;
const NO_SEGMENTS: u8 = 0;
const TCP_OVER_IPV4: u8 = 1;
const TCP_OVER_IPV6: u8 = 4;
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
    header.fill(0);
    let mut word = |at: usize, value: u16| {
        header[at..at + 2].copy_from_slice(&value.to_ne_bytes());
    };
    word(2, unit.head_len);
    if let Some(segment) = unit.segment {
        word(4, segment.size);
    }
    if let Some(sum) = unit.checksum {
        word(6, sum.start);
        word(8, sum.offset);
    }
    header[0] = if unit.checksum.is_some() { NEEDS_SUM } else { 0 };
    header[1] = match unit.segment.map(|segment| segment.kind) {
        None => NO_SEGMENTS,
        Some(SegmentKind::Tcp4) => TCP_OVER_IPV4,
        Some(SegmentKind::Tcp6) => TCP_OVER_IPV6,
    };
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

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_placement::{Ecn, Peer, Segment, SumSlot, Ticket};

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
        let mut header = [0xff; 20];
        write(&unit(None, None), &mut header);
        assert_eq!(read(&header), Received::default());
        let segment = Segment { kind: SegmentKind::Tcp4, size: 1448 };
        write(&unit(Some(segment), Some(SumSlot { start: 34, offset: 16 })), &mut header);
        assert_eq!(read(&header), Received { verified: true, coalesced: Some(1448) });
        let words = header.as_chunks::<2>().0;
        let words: Vec<u16> = words[1..5].iter().map(|word| u16::from_ne_bytes(*word)).collect();
        assert_eq!(words, [66, 1448, 34, 16]);
    }

    #[test]
    fn congestion_signals_are_no_segments() {
        let mut header = [0; 20];
        header[1] = ECN;
        header[4..6].copy_from_slice(&1448u16.to_ne_bytes());
        assert_eq!(read(&header).coalesced, None);
        header[1] = ECN | TCP_OVER_IPV6;
        assert_eq!(read(&header).coalesced, Some(1448));
    }
}
