//! Sending: poll the engine, gather, fill in checksums, cut, report.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use landfall_placement::{
    Engine, Instant, PathId, PathLimits, Peer, Span, Spans, SumSlot, Transmit, checksum,
};

use super::EngineNode;
use super::segment::cut;
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
        for index in 0..self.paths.len() {
            let Some(limits) = self.paths[index] else { continue };
            let port = PortId(index as u16);
            while *budget > 0 {
                if self.outgoing.len() >= self.config.send_ring.max(1) {
                    return; // Goes on when the first of them is sent.
                }
                if !out.has_room(port) {
                    out.call_when_room(port);
                    break;
                }
                let mut head = vec![0; usize::from(limits.head)];
                spans.clear();
                let path = PathId(port.0);
                let transmit = self.engine.poll_transmit(now, path, &mut head, &mut spans);
                let Some(transmit) = transmit else { break };
                *budget -= 1;
                self.counters.transmits += 1;
                if let Err(what) = keeps_limits(&transmit, &limits, &spans) {
                    return out.fail(what);
                }
                head.truncate(usize::from(transmit.head_len));
                let due = now + self.config.send_delay;
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
            self.engine.handle_sent(now, ticket);
        }
    }

    fn send_one(&mut self, unit: Outgoing, out: &mut Outbox<'_>) {
        let Outgoing { port, head: mut bytes, spans, transmit, .. } = unit;
        for span in spans {
            let Ok(payload) = self.memory.read(span) else {
                self.counters.unsendable += 1;
                return;
            };
            bytes.extend_from_slice(payload);
        }
        let pieces = match transmit.segment {
            Some(segment) => cut(&bytes, usize::from(transmit.head_len), segment),
            None => {
                if let Some(slot) = transmit.checksum {
                    fill_in(&mut bytes, slot);
                }
                bytes.truncate(bytes.len().saturating_sub(transmit.sum_only as usize));
                Some(vec![bytes])
            }
        };
        let Some(pieces) = pieces else {
            self.counters.unsendable += 1;
            return;
        };
        // Frames with their addresses among their bytes have none beside them.
        let from = match transmit.to {
            Peer::Unaddressed => Peer::Unaddressed,
            _ => self.config.address.unwrap_or(out.node().peer()),
        };
        for bytes in pieces {
            self.counters.frames += 1;
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

/// Fills in a checksum as an adapter does; the slot lies within the bytes.
fn fill_in(bytes: &mut [u8], SumSlot { start, offset }: SumSlot) {
    let start = usize::from(start);
    let slot = start + usize::from(offset);
    let sum = checksum::checksum(&bytes[start..]);
    // Zero would mean "no checksum" in UDP; all ones is the same number (RFC 768).
    let sum = if sum == 0 { 0xffff } else { sum };
    bytes[slot..slot + 2].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_goes_into_its_slot() {
        let mut bytes = *b"head..............payload";
        fill_in(&mut bytes, SumSlot { start: 4, offset: 2 });
        assert_eq!(checksum::sum_of(&bytes[4..]), 0xffff - checksum::sum_of(b".."));
    }
}
