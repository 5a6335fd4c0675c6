//! One entry of the region table: a state that threads change without a lock,
//! and what was lent.
//!
//! The state is one atomic number: generation, phase and count of pins. A slot
//! goes Free → Live (lend) → Revoked (revoke) → Free in the next generation
//! (take back), and after its last generation to Retired, so that a name never
//! comes to mean something else. Pins are added only while Live; what was lent
//! leaves the slot only while Revoked without pins.

use core::cell::UnsafeCell;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, OnceLock};

use landfall_placement::RegionId;

use super::grant::Window;
use super::{AccessError, Memory, SharedMemory};

/// What keeps lent memory alive.
pub(super) enum Backing {
    /// To be given back.
    Own(Memory),
    /// Kept mapped.
    Shared(#[expect(dead_code, reason = "only to be dropped")] SharedMemory),
    /// Of a driver, whose memory it stays.
    Mapped(#[expect(dead_code, reason = "only to be dropped")] Arc<dyn Send + Sync>),
}

/// What a slot holds while it is granted.
pub(super) struct Lent {
    pub(super) window: Window,
    pub(super) backing: Backing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing is granted in this generation yet.
    Free,
    /// Granted.
    Live,
    /// The grant ended; the memory was not taken back yet.
    Revoked,
    /// All generations are used up.
    Retired,
}

/// The state of a slot, unpacked.
#[derive(Clone, Copy)]
pub(super) struct State(u64);

impl State {
    const PINS: u64 = (1 << 30) - 1;
    /// Nobody has it pinned, and nobody shall: see [`Slot::seize`].
    const SEIZED: u64 = Self::PINS;

    const fn new(generation: u32, phase: Phase) -> Self {
        Self((generation as u64) << 32 | (phase as u64) << 30)
    }

    const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(super) const fn phase(self) -> Phase {
        match self.0 >> 30 & 3 {
            0 => Phase::Free,
            1 => Phase::Live,
            2 => Phase::Revoked,
            _ => Phase::Retired,
        }
    }

    pub(super) const fn pins(self) -> u64 {
        self.0 & Self::PINS
    }

    /// Does `id` name what is granted here?
    #[inline]
    pub(super) fn check_live(self, id: RegionId) -> Result<(), AccessError> {
        let live = Self::new(id.generation, Phase::Live).0;
        if self.0 & !Self::PINS == live { Ok(()) } else { Err(self.why_not_live(id)) }
    }

    /// Does `id` name what is granted, or was revoked and is still here?
    pub(super) fn check_held(self, id: RegionId) -> Result<(), AccessError> {
        match self.check_live(id) {
            Err(AccessError::Revoked(_)) => Ok(()),
            other => other,
        }
    }

    #[cold]
    fn why_not_live(self, id: RegionId) -> AccessError {
        match (id.generation.cmp(&self.generation()), self.phase()) {
            // No slot ever had it: the name is a default, not an old grant.
            _ if id.generation == 0 => AccessError::Unknown(id),
            (core::cmp::Ordering::Less, _) | (_, Phase::Retired) => AccessError::Stale(id),
            (core::cmp::Ordering::Equal, Phase::Revoked) => AccessError::Revoked(id),
            _ => AccessError::Unknown(id),
        }
    }
}

/// An entry of the region table.
pub(super) struct Slot {
    state: AtomicU64,
    /// Read while pinned or under the table's lock; written under the table's
    /// lock while Free, or Revoked without pins.
    lent: UnsafeCell<Option<Lent>>,
}

// SAFETY: `lent` is guarded by `state` and the table's lock, as said above.
unsafe impl Sync for Slot {}
// SAFETY: all that a slot holds may move between threads.
unsafe impl Send for Slot {}

impl Slot {
    pub(super) const fn new(generation: u32) -> Self {
        Self {
            state: AtomicU64::new(State::new(generation, Phase::Free).0),
            lent: UnsafeCell::new(None),
        }
    }

    #[inline]
    pub(super) fn state(&self) -> State {
        State(self.state.load(Acquire))
    }

    /// Free → Live.
    ///
    /// # Safety
    /// The caller holds the table's lock, and the slot is Free.
    pub(super) unsafe fn grant(&self, lent: Lent) -> u32 {
        let generation = self.state().generation();
        // SAFETY: a Free slot has no pins and gets none; the lock keeps others out.
        unsafe { *self.lent.get() = Some(lent) };
        self.state.store(State::new(generation, Phase::Live).0, Release);
        generation
    }

    /// Counts one more user, which keeps what was lent in the slot.
    #[inline]
    pub(super) fn pin(&self, id: RegionId) -> Result<(), AccessError> {
        let mut state = State(self.state.load(Relaxed));
        loop {
            state.check_live(id)?;
            if state.pins() == State::SEIZED {
                // For as long as a few system calls take.
                std::thread::yield_now();
                state = State(self.state.load(Relaxed));
                continue;
            }
            if state.pins() == State::SEIZED - 1 {
                return Err(AccessError::TooManyPins(id));
            }
            match self.state.compare_exchange_weak(state.0, state.0 + 1, Acquire, Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => state = State(now),
            }
        }
    }

    /// Counts one user less. True: that was the last one, and somebody may
    /// wait for the memory.
    ///
    /// # Safety
    /// The caller has pinned the slot, and unpins it once.
    #[must_use]
    #[inline]
    pub(super) unsafe fn unpin(&self) -> bool {
        let before = State(self.state.fetch_sub(1, Release));
        before.pins() == 1 && before.phase() == Phase::Revoked
    }

    /// Keeps everybody from pinning the slot, if nobody has it pinned. Returns
    /// whether that is so; anyone who asks for a pin meanwhile waits.
    pub(super) fn seize(&self, id: RegionId) -> Result<bool, AccessError> {
        let live = State::new(id.generation, Phase::Live).0;
        let seized = live | State::SEIZED;
        match self.state.compare_exchange(live, seized, Acquire, Relaxed) {
            Ok(_) => Ok(true),
            Err(now) => State(now).check_live(id).map(|()| false),
        }
    }

    /// Lets others pin it again. True: it was revoked meanwhile, and somebody
    /// may wait for the memory.
    ///
    /// # Safety
    /// The caller has seized the slot, and lets go once.
    #[must_use]
    pub(super) unsafe fn let_go(&self) -> bool {
        State(self.state.fetch_sub(State::SEIZED, Release)).phase() == Phase::Revoked
    }

    /// The window of a granted slot.
    ///
    /// # Safety
    /// The caller has pinned the slot, or holds the table's lock while the
    /// slot is Live or Revoked.
    #[inline]
    pub(super) unsafe fn lent(&self) -> Option<&Lent> {
        // SAFETY: while that holds nobody writes it.
        unsafe { (*self.lent.get()).as_ref() }
    }

    /// Live → Revoked: pins stay, no new ones come.
    pub(super) fn revoke(&self, id: RegionId) -> Result<(), AccessError> {
        let mut state = State(self.state.load(Relaxed));
        loop {
            state.check_live(id)?;
            let revoked = State::new(id.generation, Phase::Revoked).0 | state.pins();
            match self.state.compare_exchange_weak(state.0, revoked, Acquire, Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => state = State(now),
            }
        }
    }

    /// Revoked → Free in the next generation, or Retired. Returns what was lent,
    /// and whether the slot can be granted again; `None` while pins are held.
    ///
    /// # Safety
    /// The caller holds the table's lock, and the slot is Revoked.
    pub(super) unsafe fn clear(&self) -> Option<(Lent, bool)> {
        let state = self.state();
        if state.pins() != 0 {
            return None;
        }
        // SAFETY: Revoked without pins stays so while the lock is held; the
        // acquire above saw all that the last user did.
        let lent = unsafe { (*self.lent.get()).take() }?;
        let next = match state.generation().checked_add(1) {
            Some(generation) => State::new(generation, Phase::Free),
            None => State::new(state.generation(), Phase::Retired),
        };
        self.state.store(next.0, Release);
        Some((lent, next.phase() == Phase::Free))
    }
}

/// Slots that stay where they are while their number grows: each part is twice
/// as long as the one before, so the lookup is a shift and nothing is copied.
pub(super) struct Slots {
    parts: [OnceLock<Box<[Slot]>>; Self::PARTS],
    first_generation: u32,
}

impl Slots {
    const FIRST: u32 = 64;
    const PARTS: usize = 27;

    pub(super) fn new(first_generation: u32) -> Self {
        Self { parts: [const { OnceLock::new() }; Self::PARTS], first_generation }
    }

    /// In which part a slot is, and where in it.
    #[inline]
    const fn place(index: u32) -> (usize, usize) {
        let shifted = index as u64 + Self::FIRST as u64;
        let part = shifted.ilog2() - Self::FIRST.ilog2();
        (part as usize, (shifted - ((Self::FIRST as u64) << part)) as usize)
    }

    /// The slot, if its part was ever needed.
    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&Slot> {
        let (part, at) = Self::place(index);
        self.parts.get(part)?.get()?.get(at)
    }

    /// The slot; makes its part if it is the first of it.
    pub(super) fn get_or_make(&self, index: u32) -> &Slot {
        let (part, at) = Self::place(index);
        let make = || {
            let len = (Self::FIRST as usize) << part;
            (0..len).map(|_| Slot::new(self.first_generation)).collect()
        };
        &self.parts[part].get_or_init(make)[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_has_a_place_of_its_own() {
        assert_eq!(Slots::place(0), (0, 0));
        assert_eq!(Slots::place(63), (0, 63));
        assert_eq!(Slots::place(64), (1, 0));
        assert_eq!(Slots::place(191), (1, 127));
        assert_eq!(Slots::place(192), (2, 0));
        let (part, at) = Slots::place(u32::MAX);
        assert!(part < Slots::PARTS && at < 64 << part);
    }
}
