//! The one queue from the arrival of a frame to the report of it.
//!
//! Whatever an adapter tells its host goes through here in the order in which
//! it came: payloads and whole frames on their way by DMA, and answers to
//! commands between them.

use landfall_placement::{Duration, Ecn, Instant, PathId, Peer, Spans};

use super::ring::{Ring, Store};
use super::slots::Slots;
use crate::firmware::Arrival;

/// What is known of a frame beside its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameInfo {
    /// The link it came over.
    pub path: PathId,
    /// From whom.
    pub from: Peer,
    /// Whether the network signalled congestion.
    pub ecn: Ecn,
}

/// What is on its way to the host.
#[derive(Clone, Copy, Debug)]
pub enum HostWrite<T, R> {
    /// A payload, from a place in a slot to the spans of that slot.
    Payload {
        /// The slot.
        slot: u16,
        /// Where in the frame it begins.
        at: u16,
        /// What to say to the firmware.
        token: T,
    },
    /// A whole frame, from a slot to a buffer of the host.
    Frame {
        /// The slot.
        slot: u16,
        /// The buffer.
        buffer: u16,
    },
    /// Nothing but the answer to a command.
    Answer(R),
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameProgress {
    /// A DMA engine may take it from then on.
    Waiting(Instant),
    /// It is there at that moment.
    Moving(Instant),
    /// It is there, or could not be put there; the firmware was not told.
    Moved {
        /// It is there.
        is_in_place: bool,
    },
    /// The host is told at that moment.
    Telling(Instant),
}

/// One thing on its way.
#[derive(Clone, Copy, Debug)]
pub struct Pending<T, R> {
    /// What.
    pub cargo: HostWrite<T, R>,
    /// How far.
    pub stand: FrameProgress,
    /// What the host is told of it.
    pub report: Option<R>,
    /// Whether it is interrupted for that.
    pub interrupts: bool,
    /// Whether that interrupt does not wait for others.
    pub is_urgent: bool,
}

impl<T, R> Pending<T, R> {
    /// On its way from that moment on.
    pub(super) const fn new(cargo: HostWrite<T, R>, from: Instant) -> Self {
        Self {
            cargo,
            stand: FrameProgress::Waiting(from),
            report: None,
            interrupts: false,
            is_urgent: false,
        }
    }
}

/// Frames that came, and what is on its way from them to the host.
#[derive(Debug)]
pub struct Inbound<'s, T, R> {
    /// Frames in SRAM, from the wire until they are the host's.
    pub slots: Slots<'s, FrameInfo>,
    /// For each slot, where its payload belongs.
    pub spans: Store<'s, Spans>,
    /// Slots that the firmware did not look at yet.
    pub arrivals: Ring<'s, u16>,
    /// What is on its way, in order.
    pub queue: Ring<'s, Pending<T, R>>,
    /// How many of them a DMA engine has begun with.
    pub(super) begun: usize,
    /// How many of them the firmware has seen land.
    pub(super) landed: usize,
}

impl<'s, T: Copy, R: Copy> Inbound<'s, T, R> {
    /// Empty, in this storage.
    #[must_use]
    pub fn new(
        slots: Slots<'s, FrameInfo>,
        spans: impl Into<Store<'s, Spans>>,
        arrivals: Ring<'s, u16>,
        queue: Ring<'s, Pending<T, R>>,
    ) -> Self {
        Self { slots, spans: spans.into(), arrivals, queue, begun: 0, landed: 0 }
    }

    /// Takes a frame from the wire, where there is room.
    #[inline]
    pub(super) fn take_in(&mut self, frame: &Arrival<'_>) -> bool {
        let about = FrameInfo { path: frame.path, from: frame.from, ecn: frame.ecn };
        if self.arrivals.room() == 0 {
            return false;
        }
        let Some(slot) = self.slots.take(frame.bytes.len(), about) else { return false };
        if let Some(place) = self.slots.bytes_mut(slot).get_mut(..frame.bytes.len()) {
            place.copy_from_slice(frame.bytes);
        }
        self.arrivals.push(slot)
    }

    /// How many things the host is going to be told of.
    #[inline]
    pub(super) fn promised(&self) -> usize {
        self.arrivals.len() + self.queue.len()
    }

    /// The first that no DMA engine has begun with, and since when it may be.
    #[inline]
    pub(super) fn next_to_move(&self) -> Option<Instant> {
        match self.queue.get(self.begun)?.stand {
            FrameProgress::Waiting(from) => Some(from),
            _ => None,
        }
    }

    /// When the first that is moving is there.
    #[inline]
    pub(super) fn next_to_land(&self) -> Option<Instant> {
        (self.landed..self.begun).find_map(|nth| match self.queue.get(nth)?.stand {
            FrameProgress::Moving(until) => Some(until),
            _ => None,
        })
    }

    /// Has the firmware something to hear of?
    #[inline]
    pub(super) fn has_landed(&self) -> bool {
        let first = self.queue.get(self.landed);
        self.landed < self.begun
            && first.is_some_and(|first| matches!(first.stand, FrameProgress::Moved { .. }))
    }

    /// When the host is told of the first.
    #[inline]
    pub(super) fn next_to_tell(&self) -> Option<Instant> {
        match self.queue.front()?.stand {
            FrameProgress::Telling(at) => Some(at),
            _ => None,
        }
    }

    /// Takes the first, of which the host is told.
    #[inline]
    pub(super) fn retire(&mut self) -> Option<Pending<T, R>> {
        let first = self.queue.pop()?;
        self.begun = self.begun.saturating_sub(1);
        self.landed = self.landed.saturating_sub(1);
        Some(first)
    }

    /// All is forgotten.
    pub(super) fn clear(&mut self) {
        self.slots.clear();
        self.arrivals.clear();
        self.queue.clear();
        self.begun = 0;
        self.landed = 0;
    }
}

// When the host is interrupted.

/// When reports lead to an interrupt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coalescing {
    /// Never: the host sees each report at once.
    #[default]
    Watched,
    /// Some time after the first report that the host must hear of, or once there
    /// are this many of them.
    After {
        /// How long the first waits.
        time: Duration,
        /// How many do not wait.
        reports: u32,
    },
}

/// The interrupt line of an adapter.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interrupt {
    coalescing: Coalescing,
    waiting: u32,
    due: Option<Instant>,
    raised: u64,
}

impl Interrupt {
    /// A line that is low.
    #[must_use]
    pub const fn new(coalescing: Coalescing) -> Self {
        Self { coalescing, waiting: 0, due: None, raised: 0 }
    }

    /// There is something that the host must hear of.
    pub fn request(&mut self, now: Instant) {
        self.waiting = self.waiting.saturating_add(1);
        let due = match self.coalescing {
            Coalescing::Watched => now,
            Coalescing::After { reports, .. } if self.waiting >= reports => now,
            Coalescing::After { time, .. } => now + time,
        };
        self.due = Some(self.due.map_or(due, |other| other.min(due)));
    }

    /// It must hear of it now.
    pub fn hurry(&mut self, now: Instant) {
        self.waiting = self.waiting.max(1);
        self.due = Some(self.due.map_or(now, |other| other.min(now)));
    }

    /// Is the host interrupted now? Then the line is low again.
    pub fn take(&mut self, now: Instant) -> bool {
        if self.due.is_none_or(|due| due > now) {
            return false;
        }
        self.raised += 1;
        self.waiting = 0;
        self.due = None;
        true
    }

    /// When it will be.
    #[must_use]
    pub const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Does the host see each report at once?
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.coalescing == Coalescing::Watched
    }

    /// How often the host was interrupted.
    #[must_use]
    pub const fn raised(&self) -> u64 {
        self.raised
    }

    /// What it would have been interrupted for is gone.
    pub fn reset(&mut self) {
        self.waiting = 0;
        self.due = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_wait_and_many_do_not() {
        let time = Duration::from_micros(100);
        let mut line = Interrupt::new(Coalescing::After { time, reports: 3 });
        let at = Instant::from_micros;
        assert!(!line.take(at(0)));
        line.request(at(0));
        line.request(at(50));
        assert_eq!((line.due(), line.take(at(99))), (Some(at(100)), false));
        assert!(line.take(at(100)) && !line.take(at(100)));
        for _ in 0..3 {
            line.request(at(200));
        }
        assert!(line.take(at(200)));
        line.request(at(300));
        line.hurry(at(310));
        assert!(line.take(at(310)));
        assert_eq!(line.raised(), 3);
    }
}
