//! [`Faulty`]: frames that get lost, doubled, late or damaged on their way out.

use std::collections::VecDeque;
use std::{fmt, io};

use landfall_placement::{Duration, Instant, Random, Seed, Span};

use super::{Outgoing, Socket};
use crate::fault::{FaultCounts, Faults};
use crate::memory::{Pins, Regions};

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It leaves as it is.
    Leaves,
    /// It never leaves.
    Lost,
    /// It leaves twice.
    Twice,
    /// It leaves once this many others have, or a few milliseconds have passed.
    Late(u32),
    /// It leaves with this bit flipped, counted from its first byte on; beyond
    /// its end, counted on from the first again.
    Flipped(u64),
}

/// Decides the fate of a frame: its number, from zero on, and its bytes.
type Decide = Box<dyn FnMut(u64, &[u8]) -> Fate + Send>;

/// Sends frames through a [`Socket`], to each its fate: for tests of what
/// receives them.
///
/// Frames are copied whole, so this is not for measuring. Bounded: at this many
/// frames held back it takes no more.
pub struct Faulty {
    decide: Decide,
    pins: Pins,
    /// To leave now.
    ready: VecDeque<Vec<u8>>,
    late: Vec<DelayedFrame>,
    /// Frames that were made ready, to measure how late others are.
    passed: u64,
    counts: FaultCounts,
}

/// A frame that leaves later.
struct DelayedFrame {
    frame: Vec<u8>,
    after: u64,
    due: Instant,
}

/// This many frames are held back at most.
const MOST_HELD: usize = 4096;
/// How long a late frame waits for successors that may never come.
const PATIENCE: Duration = Duration::from_millis(2);
/// By chance a late frame lets this many others pass, at most.
const STEPS_BACK: u64 = 16;

impl Faulty {
    /// Frames that lie in these regions meet the fate that is decided.
    pub fn new(regions: &Regions, decide: impl FnMut(u64, &[u8]) -> Fate + Send + 'static) -> Self {
        Self {
            decide: Box::new(decide),
            pins: Pins::new(regions),
            ready: VecDeque::new(),
            late: Vec::new(),
            passed: 0,
            counts: FaultCounts::default(),
        }
    }

    /// By chance, from a seed: loss, corruption, duplication and reordering, in
    /// this order. The delay and the loss at the receiver are not for here.
    #[must_use]
    pub fn by_chance(regions: &Regions, faults: Faults, seed: Seed) -> Self {
        let mut random = Random::new(seed);
        Self::new(regions, move |_, frame| {
            if random.chance(faults.loss) {
                Fate::Lost
            } else if random.chance(faults.corruption) {
                Fate::Flipped(random.below(frame.len() as u64 * 8))
            } else if random.chance(faults.duplication) {
                Fate::Twice
            } else if random.chance(faults.reordering) {
                Fate::Late(1 + random.below(STEPS_BACK) as u32)
            } else {
                Fate::Leaves
            }
        })
    }

    /// Like [`Socket::send`], but for what happens to the frames. With no
    /// frames, sends those whose time has come.
    ///
    /// # Errors
    /// As [`Socket::send`].
    pub fn send(
        &mut self,
        socket: &mut Socket,
        now: Instant,
        outgoing: &[Outgoing<'_>],
    ) -> io::Result<usize> {
        let mut taken = 0;
        for frame in outgoing {
            if self.ready.len() + self.late.len() >= MOST_HELD {
                break;
            }
            // What cannot be read would not be sent either.
            if let Some(bytes) = self.whole(frame) {
                self.meet_fate(now, bytes);
            }
            taken += 1;
        }
        self.pins.release();
        self.release_late(now);
        let nothing = Span::default();
        let slices: Vec<_> =
            self.ready.iter().map(|head| Outgoing { head, payload: nothing }).collect();
        let gone = socket.send(now, &slices)?;
        self.ready.drain(..gone);
        Ok(taken)
    }

    /// When to call [`send`](Self::send) next, with or without frames.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.late.iter().map(|late| late.due).min()
    }

    /// Frames that have not left yet.
    #[must_use]
    pub fn held(&self) -> usize {
        self.ready.len() + self.late.len()
    }

    /// What went wrong so far.
    #[must_use]
    pub const fn counts(&self) -> FaultCounts {
        self.counts
    }

    fn whole(&mut self, frame: &Outgoing<'_>) -> Option<Vec<u8>> {
        let mut bytes = frame.head.to_vec();
        if frame.payload.len > 0 {
            bytes.resize(frame.head.len() + frame.payload.len as usize, 0);
            self.pins.copy_out(&frame.payload, &mut bytes[frame.head.len()..]).ok()?;
        }
        Some(bytes)
    }

    fn meet_fate(&mut self, now: Instant, mut frame: Vec<u8>) {
        let number = self.counts.units;
        self.counts.units += 1;
        match (self.decide)(number, &frame) {
            Fate::Leaves => {}
            Fate::Lost => {
                self.counts.lost += 1;
                return;
            }
            Fate::Twice => {
                self.counts.duplicated += 1;
                self.leave(frame.clone());
            }
            Fate::Late(steps) => {
                self.counts.reordered += 1;
                let after = self.passed + u64::from(steps);
                self.late.push(DelayedFrame { frame, after, due: now + PATIENCE });
                return;
            }
            Fate::Flipped(bit) => {
                self.counts.corrupted += 1;
                let bits = frame.len() as u64 * 8;
                if let Some(bit) = bit.checked_rem(bits) {
                    frame[(bit / 8) as usize] ^= 1 << (bit % 8);
                }
            }
        }
        self.leave(frame);
    }

    /// Makes a frame ready, and those late ones that waited for it.
    fn leave(&mut self, frame: Vec<u8>) {
        self.ready.push_back(frame);
        self.passed += 1;
        let passed = self.passed;
        let due = self.late.extract_if(.., |late| late.after <= passed);
        self.ready.extend(due.map(|late| late.frame));
    }

    /// Makes late frames ready whose time has come.
    fn release_late(&mut self, now: Instant) {
        let due = self.late.extract_if(.., |late| late.due <= now);
        self.ready.extend(due.map(|late| late.frame));
    }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faulty")
            .field("held", &self.held())
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}
