//! Receiving: frames that the kernel put into the ring, copied once to their
//! places.

use std::io;

use landfall_placement::{Ecn, Engine, Instant, PathId, Peer};

use super::frames::Frames;
use super::ring::Reader;
use super::socket::Rings;
use super::{ETHERNET_HEADER, Framing};
use crate::driver::Counters;
use crate::exchange::{Arrival, Inbox, Loose, MAX_UNITS, Turn};
use crate::memory::{Pins, Regions};

/// The receiving half of a path.
pub(super) struct Receiver {
    inbox: Inbox,
    pins: Pins,
    station: [u8; 6],
    framing: Framing,
}

impl Receiver {
    pub(super) fn new(
        path: PathId,
        regions: &Regions,
        (station, framing): ([u8; 6], Framing),
    ) -> Self {
        let (inbox, pins) = (Inbox::new(path, 1, 0), Pins::new(regions));
        Self { inbox, pins, station, framing }
    }

    /// Hands what came to the engine, up to a batch. Gives the number of units.
    pub(super) fn receive<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        counters: &mut Counters,
        (rings, frames): (&mut Rings, &Frames),
    ) -> io::Result<u32> {
        let (mut units, mut packets) = (0, 0);
        while packets < MAX_UNITS {
            let Some(parts) = parts_of_next(&mut rings.receive) else { break };
            let mut loose = Loose::default();
            for nth in 0..parts {
                let Some(part) = rings.receive.peek(nth) else { break };
                // SAFETY: the kernel has handed it over in this ring, and gets
                // it back below, when nothing refers to it any more.
                let bytes = unsafe { frames.received(part.addr, part.len) };
                let bytes = bytes.ok_or_else(|| io::Error::other("a ring names no frame"))?;
                if !loose.push(bytes) {
                    return Err(io::Error::other("a frame has more parts than there can be"));
                }
            }
            units += self.hand_over(engine, now, counters, loose);
            for nth in 0..parts {
                let Some(part) = rings.receive.peek(nth) else { break };
                if !rings.fill.has_room(1) {
                    return Err(io::Error::other("a ring has more frames than there are"));
                }
                rings.fill.write(frames.chunk_of(part.addr));
            }
            rings.receive.take(parts);
            packets += 1;
        }
        self.pins.release();
        if packets == 0 {
            counters.empty_calls += 1;
            return Ok(0);
        }
        counters.receive_calls += 1;
        // In this order: the kernel finds room for each frame that it fills.
        rings.receive.give_back();
        rings.fill.show();
        Ok(units)
    }

    /// Hands a frame to the engine, if it is for this path.
    fn hand_over<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        counters: &mut Counters,
        mut frame: Loose<'_>,
    ) -> u32 {
        let Some(from) = self.sender(&frame) else {
            counters.malformed += 1;
            return 0;
        };
        // What is not the engine's; the header lies in one part.
        let _ = frame.strip(self.framing.header_len());
        let len = frame.len();
        let arrival = Arrival {
            len,
            unit_len: len.max(1),
            from,
            ecn: Ecn::NotCapable,
            coalesced: None,
            verified: false,
        };
        let mut turn = Turn { engine, now, pins: &mut self.pins, counters };
        self.inbox.settle_loose(&mut turn, &arrival, &frame)
    }

    /// Who sent a frame, if it is one for this path: to its station or, if it
    /// hears those, to a group.
    fn sender(&self, frame: &Loose<'_>) -> Option<Peer> {
        let header: &[u8; ETHERNET_HEADER] = frame.head(0, ETHERNET_HEADER).first_chunk()?;
        if !self.framing.takes(header, self.station) {
            return None;
        }
        let [_, _, _, _, _, _, from @ .., _, _] = *header;
        Some(match self.framing {
            Framing::Payload { .. } => Peer::Ethernet(from),
            Framing::Frames { .. } | Framing::Fragments => Peer::Unaddressed,
        })
    }
}

/// How many entries the next frame has, if all of it is there.
pub(super) fn parts_of_next(ring: &mut Reader<libc::xdp_desc>) -> Option<u32> {
    let mut parts = 0;
    loop {
        let part = ring.peek(parts)?;
        parts += 1;
        if part.options & libc::XDP_PKT_CONTD == 0 {
            return Some(parts);
        }
    }
}
