//! [`PollSlot`]: the one place where a thread sleeps at the descriptors.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use landfall_placement::Instant;
use landfall_transport::Bell;
use landfall_transport::driver::Interest;

/// The place, and the bell that wakes anyone who has it.
#[derive(Debug)]
pub(super) struct PollSlot {
    bell: Arc<Bell>,
    is_taken: AtomicBool,
    /// It is the runtime's own thread that sleeps there.
    is_own: AtomicBool,
}

impl PollSlot {
    pub(super) fn new(bell: Bell) -> Self {
        Self {
            bell: Arc::new(bell),
            is_taken: AtomicBool::new(false),
            is_own: AtomicBool::new(false),
        }
    }

    /// Takes the place, if nobody has it. Rings are heard from here on.
    pub(super) fn take(&self) -> Option<PollGuard<'_>> {
        if self.is_taken.swap(true, Ordering::Acquire) {
            return None;
        }
        self.bell.arm();
        Some(PollGuard(self))
    }

    pub(super) fn is_taken(&self) -> bool {
        self.is_taken.load(Ordering::SeqCst)
    }

    /// Wakes anyone who sleeps there. Where nobody does it costs a look at one atomic.
    #[inline]
    pub(super) fn ring(&self) {
        self.bell.ring();
    }

    /// A thread that waits for something wants the place of the own thread.
    pub(super) fn ask_for(&self) {
        if self.is_own.load(Ordering::SeqCst) {
            self.bell.ring();
        }
    }

    pub(super) fn set_own(&self, is_own: bool) {
        self.is_own.store(is_own, Ordering::SeqCst);
    }

    pub(super) const fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }
}

/// A guard: its holder has the poll slot until it is dropped.
#[derive(Debug)]
pub(super) struct PollGuard<'a>(&'a PollSlot);

impl Drop for PollGuard<'_> {
    fn drop(&mut self) {
        self.0.bell.silence();
        self.0.is_taken.store(false, Ordering::Release);
    }
}

/// What a thread in the poll slot sleeps for.
#[derive(Debug)]
pub(super) struct Sleeper {
    pub(super) until: Option<Instant>,
    pub(super) interests: Vec<Interest>,
}

impl Sleeper {
    /// Does it sleep for the wrong things, now that these are right?
    pub(super) fn is_stale(&self, until: Option<Instant>, interests: &[Interest]) -> bool {
        let is_sooner = match (until, self.until) {
            (Some(wake), Some(until)) => wake < until,
            (wake, None) => wake.is_some(),
            (None, Some(_)) => false,
        };
        is_sooner || interests != self.interests
    }
}
