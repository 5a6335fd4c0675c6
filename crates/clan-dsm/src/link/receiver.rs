//! The receiving half of a link: which frame is next, which came too early, and
//! what is to be acknowledged.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use arrayvec::ArrayVec;
use landfall_placement::{Duration, Instant, Refusal, Serial32};

use crate::wire::frame::{Frame, MAX_BODY};

/// A lone frame is acknowledged after this time, if nothing else takes the
/// acknowledgement along.
const ACK_DELAY: Duration = Duration::from_millis(1);

/// How many frames one acknowledgement covers (RFC 9000, 13.2.2, has two, too).
const ACK_FRAMES: u32 = 2;

/// How many buffers wait to be used again.
const MOST_SPARE: usize = 32;

/// What to do with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameDecision {
    Next,
    Early,
}

/// A frame that was kept.
#[derive(Debug)]
pub(crate) struct HeldFrame {
    unit: Vec<u8>,
}

impl HeldFrame {
    /// The frame. It was looked at before it was kept; so `None` never comes.
    pub(crate) fn frame(&self) -> Option<Frame<'_>> {
        Frame::parse(&self.unit, self.unit.len() as u32).ok()
    }
}

/// The receiving half.
#[derive(Debug)]
pub(crate) struct Receiver {
    /// All frames before this one are in place.
    applied: Serial32,
    /// All frames before this one are on their way to their place.
    taken: Serial32,
    /// A kept frame is being deposited: what comes now must wait for it.
    is_depositing: bool,
    /// Frames from `taken` on that came early. The last is there.
    early: VecDeque<Option<Vec<u8>>>,
    early_bytes: usize,
    spare: Vec<Vec<u8>>,
    frames: u32,
    most_bytes: usize,
    marks: u8,
    /// Frames in place that were not acknowledged, and since when.
    owed: u32,
    owed_since: Instant,
    /// An acknowledgement is to go at once.
    is_urgent: bool,
    /// It waited for company in vain.
    is_late: bool,
}

impl Receiver {
    pub(crate) const fn new(frames: u16, most_bytes: usize) -> Self {
        Self {
            applied: Serial32(0),
            taken: Serial32(0),
            is_depositing: false,
            early: VecDeque::new(),
            early_bytes: 0,
            spare: Vec::new(),
            frames: frames as u32,
            most_bytes,
            marks: 0,
            owed: 0,
            owed_since: Instant::ZERO,
            is_urgent: false,
            is_late: false,
        }
    }

    /// The same, where this frame is the first.
    pub(crate) fn starting_at(frames: u16, most_bytes: usize, seq: Serial32) -> Self {
        Self { applied: seq, taken: seq, ..Self::new(frames, most_bytes) }
    }

    /// All frames before this one are not meant for this side: what was kept of them is
    /// dropped. `false` while one is on its way to its place. It never steps back.
    pub(crate) fn skip_to(&mut self, seq: Serial32) -> bool {
        if !self.is_settled() || self.is_depositing {
            return false;
        }
        if seq.precedes(self.taken) {
            return true;
        }
        let skipped = seq.since(self.taken) as usize;
        for kept in self.early.drain(..skipped.min(self.early.len())).flatten() {
            self.early_bytes = self.early_bytes.saturating_sub(kept.len());
        }
        (self.taken, self.applied) = (seq, seq);
        true
    }

    /// Is this frame the next? Nothing is taken by asking.
    pub(crate) fn look(&mut self, seq: Serial32, len: u32) -> Result<FrameDecision, Refusal> {
        if seq.precedes(self.taken) {
            let is_recent = self.taken.since(seq) <= self.frames;
            // The sender does not know that it arrived.
            self.is_urgent |= is_recent && seq.precedes(self.applied);
            return Err(if is_recent { Refusal::Duplicate } else { Refusal::OutOfBounds });
        }
        if seq.since(self.applied) >= self.frames {
            return Err(Refusal::OutOfBounds);
        }
        let ahead = seq.since(self.taken) as usize;
        if matches!(self.early.get(ahead), Some(Some(_))) {
            self.is_urgent = true;
            return Err(Refusal::Duplicate);
        }
        if ahead > 0 {
            // A gap: its sender should hear of it.
            self.is_urgent = true;
            let fits = len as usize <= self.most_bytes.saturating_sub(self.early_bytes);
            return if fits { Ok(FrameDecision::Early) } else { Err(Refusal::NoRoom) };
        }
        Ok(if self.is_depositing { FrameDecision::Early } else { FrameDecision::Next })
    }

    /// The next frame goes straight to its place.
    pub(crate) fn accept(&mut self, is_marked: bool) {
        self.marks = self.marks.wrapping_add(u8::from(is_marked));
        self.advance();
    }

    fn advance(&mut self) -> Option<Vec<u8>> {
        self.taken = self.taken.plus(1);
        self.early.pop_front().flatten()
    }

    /// The last frame that was accepted has not come after all, and has to come again.
    pub(crate) fn take_back(&mut self) {
        if self.applied == self.taken {
            return;
        }
        self.taken = self.taken.minus(1);
        if !self.early.is_empty() {
            self.early.push_front(None);
        }
        // Its sender should hear of the gap.
        self.is_urgent = true;
    }

    /// Keeps a frame, whole, until it is its turn. Returns whether it was kept now.
    pub(crate) fn keep(
        &mut self,
        seq: Serial32,
        unit: &[u8],
        is_marked: bool,
    ) -> Result<(), Refusal> {
        self.look(seq, unit.len() as u32)?;
        let ahead = seq.since(self.taken) as usize;
        let mut kept = self.spare.pop().unwrap_or_default();
        kept.clear();
        kept.extend_from_slice(unit);
        self.early_bytes += kept.len();
        while self.early.len() <= ahead {
            self.early.push_back(None);
        }
        self.early[ahead] = Some(kept);
        self.marks = self.marks.wrapping_add(u8::from(is_marked));
        Ok(())
    }

    /// The next frame, if it was kept, and all before it are in place.
    pub(crate) fn next_kept(&mut self) -> Option<HeldFrame> {
        if self.taken != self.applied || self.is_depositing {
            return None;
        }
        self.early.front()?.as_ref()?;
        let unit = self.advance()?;
        self.early_bytes = self.early_bytes.saturating_sub(unit.len());
        self.is_depositing = true;
        Some(HeldFrame { unit })
    }

    /// Could [`Self::next_kept`] give something?
    pub(crate) fn has_next_kept(&self) -> bool {
        self.taken == self.applied
            && !self.is_depositing
            && matches!(self.early.front(), Some(Some(_)))
    }

    /// A kept frame is done with.
    pub(crate) fn give_back(&mut self, kept: HeldFrame) {
        if self.spare.len() < MOST_SPARE {
            self.spare.push(kept.unit);
        }
    }

    /// The first of the frames under way is in place.
    pub(crate) fn handle_applied(&mut self, now: Instant) {
        if self.applied == self.taken {
            return;
        }
        self.is_depositing = false;
        self.applied = self.applied.plus(1);
        if self.owed == 0 {
            self.owed_since = now;
        }
        self.owed += 1;
    }

    /// Is nothing that was accepted still on its way to its place?
    pub(crate) fn is_settled(&self) -> bool {
        self.applied == self.taken
    }

    /// An acknowledgement was asked for.
    pub(crate) const fn hurry(&mut self) {
        self.is_urgent = true;
    }

    /// Is it time for an acknowledgement that nothing else takes along?
    pub(crate) const fn wants_ack(&self) -> bool {
        self.is_urgent || self.owed >= ACK_FRAMES
    }

    /// When an acknowledgement goes that found no company.
    pub(crate) fn ack_at(&self) -> Option<Instant> {
        (self.owed > 0 && !self.is_urgent).then(|| self.owed_since + ACK_DELAY)
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.ack_at().is_some_and(|at| at <= now) {
            (self.is_urgent, self.is_late) = (true, true);
        }
    }

    /// What a header says.
    pub(crate) fn ack(&self) -> (u32, u64) {
        (self.applied.0, self.sack_word(0))
    }

    /// An acknowledgement leaves. Returns whether it waited for long.
    pub(crate) fn note_acked(&mut self) -> bool {
        (self.owed, self.is_urgent) = (0, false);
        core::mem::take(&mut self.is_late)
    }

    pub(crate) const fn marks(&self) -> u8 {
        self.marks
    }

    /// Bits for 64 frames, from frame `applied + 1 + 64 * nth` on.
    fn sack_word(&self, nth: usize) -> u64 {
        if self.early.is_empty() {
            return 0;
        }
        // Frame `taken + j` has bit `j + taken - applied - 1`.
        let shift = self.taken.since(self.applied) as usize;
        let mut word = 0;
        for bit in 0..64 {
            let Some(ahead) = (nth * 64 + bit + 1).checked_sub(shift) else { continue };
            match self.early.get(ahead) {
                Some(Some(_)) => word |= 1 << bit,
                Some(None) => {}
                None => break,
            }
        }
        word
    }

    /// The words behind the first, for the body of an acknowledgement.
    pub(crate) fn more_sack(&self) -> ArrayVec<u8, MAX_BODY> {
        let mut body = ArrayVec::new();
        let bits = self.early.len() + self.taken.since(self.applied) as usize;
        for nth in 1..=(bits.saturating_sub(2) / 64).min(MAX_BODY / 8) {
            body.extend(self.sack_word(nth).to_be_bytes());
        }
        body
    }
}
