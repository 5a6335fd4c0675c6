//! Sending: poll the engine, gather, fill in checksums, cut, report.

use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};

use landfall_inet::device::Long;
use landfall_placement::{
    Engine, Instant, InternetSum, PathId, PathLimits, Peer, Segment, SegmentKind, Span, Spans,
    SumSlot, Transmit,
};

use super::EngineNode;
use crate::frame::Frame;
use crate::node::{Outbox, PortId};

/// A unit whose payload is not yet read from memory.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) due: Instant,
    port: PortId,
    head: Vec<u8>,
    spans: Vec<Span>,
    transmit: Transmit,
}

impl<E: Engine + 'static> EngineNode<E> {
    /// Takes what the engine has to send, for as long as there is room.
    pub(super) fn poll_transmits(
        &mut self,
        now: Instant,
        out: &mut Outbox<'_>,
        budget: &mut usize,
    ) {
        let mut spans = Spans::new();
        for index in 0..self.host.paths.len() {
            let Some(limits) = self.host.paths[index] else { continue };
            let port = PortId(index as u16);
            while *budget > 0 {
                if self.outgoing.len() >= self.host.config.send_ring.max(1) {
                    return; // Goes on when the first of them is sent.
                }
                if !out.has_room(port) {
                    out.call_when_room(port);
                    break;
                }
                let mut head = vec![0; usize::from(limits.head)];
                spans.clear();
                let path = PathId(port.0);
                let transmit = self.host.engine.poll_transmit(now, path, &mut head, &mut spans);
                let Some(transmit) = transmit else { break };
                *budget -= 1;
                self.host.counted.transmits += 1;
                if let Err(what) = keeps_limits(&transmit, &limits, &spans) {
                    return out.fail(what);
                }
                head.truncate(usize::from(transmit.head_len));
                let due = now + self.host.config.send_delay;
                let spans = spans.to_vec();
                self.outgoing.push_back(Outgoing { due, port, head, spans, transmit });
                self.send_due(now, out);
            }
        }
    }

    /// Sends what has waited for its time.
    pub(super) fn send_due(&mut self, now: Instant, out: &mut Outbox<'_>) {
        while let Some(next) = self.outgoing.front().filter(|next| next.due <= now) {
            if !out.has_room(next.port) {
                out.call_when_room(next.port);
                self.no_room = true;
                return;
            }
            let Some(next) = self.outgoing.pop_front() else { return };
            let ticket = next.transmit.ticket;
            self.send_one(next, out);
            self.host.engine.handle_sent(now, ticket);
        }
    }

    fn send_one(&mut self, unit: Outgoing, out: &mut Outbox<'_>) {
        let Outgoing { port, head: mut bytes, spans, transmit, .. } = unit;
        for span in spans {
            let Ok(payload) = self.host.memory.read(span) else {
                self.host.counted.unsendable += 1;
                return;
            };
            bytes.extend_from_slice(payload);
        }
        if self.engine.seals() {
            let (head, payload) = bytes.split_at_mut(usize::from(transmit.head_len));
            if !self.engine.seal(head, payload) {
                self.host.counted.unsendable += 1;
                return;
            }
        }
        let pieces = match transmit.segment {
            Some(segment) => cut(&bytes, usize::from(transmit.head_len), segment),
            None => {
                if let Some(slot) = transmit.checksum {
                    // It lies within the head: the limits were kept.
                    slot.fill(&mut bytes, InternetSum::new());
                }
                bytes.truncate(bytes.len().saturating_sub(transmit.sum_only as usize));
                Some(vec![bytes])
            }
        };
        let Some(pieces) = pieces else {
            self.host.counted.unsendable += 1;
            return;
        };
        // Frames with their addresses among their bytes have none beside them.
        let from = match transmit.to {
            Peer::Unaddressed => Peer::Unaddressed,
            _ => self.host.config.address.unwrap_or(out.node().peer()),
        };
        for bytes in pieces {
            self.host.counted.frames += 1;
            out.send(port, Frame { bytes, from, to: transmit.to, ecn: transmit.ecn });
        }
    }
}

/// Did the engine keep to what it was told of the path?
fn keeps_limits(transmit: &Transmit, limits: &PathLimits, spans: &Spans) -> Result<(), String> {
    let head = transmit.head_len;
    if head > limits.head {
        return Err(format!("a head of {head} bytes, where {} have room", limits.head));
    }
    if let Some(SumSlot { start, offset }) = transmit.checksum
        && u32::from(start) + u32::from(offset) + 2 > u32::from(head)
    {
        return Err(format!("a checksum slot at {start} + {offset}, outside a head of {head}"));
    }
    let only = transmit.sum_only;
    let Some(payload) = spans.total_len().checked_sub(u64::from(only)) else {
        return Err(format!("{only} bytes that are only summed, of {}", spans.total_len()));
    };
    if only > 0 && transmit.segment.is_some() {
        return Err(format!("{only} bytes that are only summed, behind segments"));
    }
    let len = u64::from(head) + payload;
    let most = match transmit.segment {
        None => u64::from(limits.unit),
        Some(segment) => {
            let size = u64::from(segment.size).max(1);
            if u64::from(head) + size > u64::from(limits.unit) {
                return Err(format!("segments of {size} bytes, where {} fit", limits.unit));
            }
            if payload.div_ceil(size) > u64::from(limits.segments) {
                return Err(format!("more than {} segments", limits.segments));
            }
            u64::from(limits.super_unit)
        }
    };
    if len > most {
        return Err(format!("a unit of {len} bytes, where {most} cross"));
    }
    Ok(())
}

/// Cuts a frame whose Ethernet, IP and TCP headers are `head_len` bytes long into frames of
/// `segment.size` bytes of payload, as an adapter with TSO does.
///
/// `None` where the headers are not what they should be.
fn cut(bytes: &[u8], head_len: usize, segment: Segment) -> Option<Vec<Vec<u8>>> {
    let (head, payload) = bytes.split_at_checked(head_len)?;
    let (long, behind) = Long::split(head)?;
    let is_meant = match segment.kind {
        SegmentKind::Tcp4 => long.is_ipv4(),
        SegmentKind::Tcp6 => !long.is_ipv4(),
    };
    (is_meant && behind.is_empty()).then_some(())?;
    let mut frames = Vec::new();
    long.cut(payload, segment.size.into(), |frame| frames.push(frame.to_vec()))?;
    Some(frames)
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use landfall_placement::checksum;

    use super::*;

    const ETHERNET_LEN: usize = 14;
    const TCP: u16 = 6;
    /// The flags of TCP, and those that only some segments may have.
    const FIN_PSH: u8 = 0x01 | 0x08;
    const CWR: u8 = 0x80;

    fn word(bytes: &[u8], at: usize) -> Option<u16> {
        let bytes = bytes.get(at..)?.first_chunk()?;
        Some(u16::from_be_bytes(*bytes))
    }

    fn put(bytes: &mut [u8], at: usize, value: u16) {
        bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }

    #[test]
    fn a_checksum_goes_into_its_slot() {
        let mut bytes = *b"head..............payload";
        SumSlot { start: 4, offset: 2 }.fill(&mut bytes, InternetSum::new());
        assert_eq!(checksum::sum_of(&bytes[4..]), 0xffff - checksum::sum_of(b".."));
    }

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
