//! What crosses the bus: payloads and frames to the host, and from it.

use landfall_placement::{Duration, Instant, Span};

use super::Adapter;
use crate::firmware::{Firmware, HostMemory};
use crate::machine::bridge::Fed;
use crate::machine::dma::Dma;
use crate::machine::inbound::{FrameProgress, HostWrite, Pending};
use crate::machine::parts::{Engines, time_of};

/// So long before a moment.
const fn before(at: Instant, time: Duration) -> Instant {
    Instant::from_nanos(at.as_nanos().saturating_sub(time.as_nanos() as u64))
}

impl<F: Firmware> Adapter<'_, F> {
    /// When the next write to the host may begin.
    pub(super) fn takes_at(&self) -> Instant {
        match self.bridge.has_fifo() {
            true => self.bridge.takes_at(),
            false => self.dma[0].free_at().max(self.bridge.takes_at()),
        }
    }

    pub(super) fn dma_out(&self) -> &Dma {
        match self.costs.engines {
            Engines::One => &self.dma[0],
            Engines::Two => &self.dma[1],
        }
    }

    /// DMA engines that are free take up what waits.
    pub(super) fn begin_moves(&mut self, now: Instant) -> bool {
        let mut is_busy = false;
        if self.parts.inbound.next_to_move().is_some_and(|from| from <= now)
            && self.takes_at() <= now
        {
            is_busy = self.begin_inbound(now);
        }
        if let Some((slot, from)) = self.parts.outbound.next_to_move()
            && from <= now
            && self.dma_out().free_at() <= now
        {
            let (bytes, pieces) = self.parts.outbound.size_of(slot);
            let engine = usize::from(self.costs.engines == Engines::Two);
            let until =
                self.dma.get_mut(engine).map(|dma| dma.begin(now, bytes, pieces, &mut self.bus));
            // What is not stored is on the link while it is still being fetched.
            let ahead = time_of(bytes, self.costs.cut_through);
            let until = until.map_or(now, |until| before(until, ahead).max(now));
            self.parts.outbound.begin(until);
            is_busy = true;
        }
        is_busy
    }

    /// False: the bridge of the host takes nothing now.
    fn begin_inbound(&mut self, now: Instant) -> bool {
        let inbound = &mut self.parts.inbound;
        let Some(pending) = inbound.queue.get_mut(inbound.begun) else { return false };
        let (bytes, pieces, place) = match pending.cargo {
            HostWrite::Payload { slot, .. } => {
                let spans = inbound.spans.get(usize::from(slot));
                let place = spans.and_then(|spans| spans.first()).copied();
                let (bytes, pieces) =
                    spans.map_or((0, 0), |spans| (spans.total_len(), spans.len() as u32));
                (bytes, pieces, place)
            }
            HostWrite::Frame { slot, .. } => (inbound.slots.bytes(slot).len() as u64, 1, None),
            HostWrite::Answer(_) => (0, 0, None),
        };
        if place.is_some()
            && let Fed::Refused(later) = self.bridge.feed(now, bytes, &self.bus)
        {
            self.delay_moves(now, later);
            return false;
        }
        let mut until = now;
        if pieces > 0 {
            // What is not stored has crossed the bus while it came, as far as that was free.
            let ahead = match self.costs.cut_through {
                0 => Duration::ZERO,
                _ => time_of(bytes, self.costs.bus.rate),
            };
            let from = before(now, ahead);
            let is_joined = place.is_some_and(|place| self.bridge.joins(from, &place));
            until = match is_joined {
                true => self.dma[0].go_on(from, bytes, &mut self.bus),
                false => self.dma[0].begin(self.bridge.begins(from), bytes, pieces, &mut self.bus),
            };
            until = until.max(now);
            if let Some(place) = place {
                let place = Span { len: u32::try_from(bytes).unwrap_or(u32::MAX), ..place };
                until = self.bridge.wrote(until, &place, is_joined, &self.bus);
            }
        }
        let inbound = &mut self.parts.inbound;
        if let Some(pending) = inbound.queue.get_mut(inbound.begun) {
            pending.stand = FrameProgress::Moving(until);
            inbound.begun += 1;
        }
        true
    }

    /// What is under way to the host is there so much later.
    fn delay_moves(&mut self, now: Instant, later: Duration) {
        let inbound = &mut self.parts.inbound;
        for nth in inbound.landed..inbound.begun {
            if let Some(Pending { stand: FrameProgress::Moving(until), .. }) =
                inbound.queue.get_mut(nth)
                && *until > now
            {
                *until += later;
            }
        }
    }

    /// What DMA engines have moved is there.
    pub(super) fn finish_moves(&mut self, now: Instant, memory: &mut impl HostMemory) -> bool {
        let mut is_busy = false;
        for nth in self.parts.inbound.landed..self.parts.inbound.begun {
            let Some(pending) = self.parts.inbound.queue.get(nth).copied() else { break };
            match pending.stand {
                FrameProgress::Moving(until) if until <= now => {}
                FrameProgress::Moving(_) => break,
                _ => continue,
            }
            let is_in_place = self.put(&pending.cargo, memory);
            if let Some(pending) = self.parts.inbound.queue.get_mut(nth) {
                pending.stand = FrameProgress::Moved { is_in_place };
            }
            is_busy = true;
        }
        if self.parts.outbound.next_to_land().is_some_and(|until| until <= now) {
            self.parts.outbound.land(memory);
            is_busy = true;
        }
        is_busy
    }

    /// Writes what was moved to where it belongs.
    fn put(
        &mut self,
        cargo: &HostWrite<F::Token, F::Report>,
        memory: &mut impl HostMemory,
    ) -> bool {
        let inbound = &mut self.parts.inbound;
        match *cargo {
            HostWrite::Answer(_) => true,
            HostWrite::Frame { slot, buffer } => {
                let bytes = inbound.slots.bytes(slot);
                for (place, byte) in self.parts.buffers.bytes_mut(buffer).iter_mut().zip(bytes) {
                    *place = *byte;
                }
                inbound.slots.free(slot);
                self.counters.to_host += 1;
                true
            }
            HostWrite::Payload { slot, at, .. } => {
                let Some(spans) = inbound.spans.get(usize::from(slot)) else { return false };
                let payload = inbound.slots.bytes(slot).get(usize::from(at)..).unwrap_or(&[]);
                let is_whole = spans.total_len() <= payload.len() as u64;
                // All of it or nothing, as far as can be said beforehand.
                if !is_whole || !spans.iter().all(|span| memory.is_writable(*span)) {
                    return false;
                }
                let mut rest = payload;
                spans.iter().all(|span| {
                    let Some((part, behind)) = rest.split_at_checked(span.len as usize) else {
                        return false;
                    };
                    rest = behind;
                    memory.write(*span, part)
                })
            }
        }
    }
}
