//! [`EngineLock`]: the lock around an engine, and a queue for those who finds it taken.
//!
//! A thread that has the lock may be in a system call. A thread that wants something of the
//! engine, and no answer, **submits** it: it leaves it in the queue, looks whether the lock is
//! free, and goes on if it is not. Anyone who has the lock serves the queue when it gets it, and
//! **looks once more when it has let go**. So one of the two finds what was left: the thread
//! that left it saw the lock taken, thus it was let go later, and what was left is seen then.
//!
//! Each side writes one word and reads the other's: both have a full fence in between.

use std::sync::{PoisonError, TryLockError};

use super::submissions::Submissions;
use super::sync::{AtomicU32, Mutex, MutexGuard, Ordering, fence};

/// A lock around an engine, with a queue for who finds it taken.
#[derive(Debug)]
pub(super) struct EngineLock<T, S> {
    state: Mutex<T>,
    submissions: Submissions<S>,
    /// Threads that wait for the lock: those who only drive let them pass.
    wanting: AtomicU32,
}

impl<T, S> EngineLock<T, S> {
    /// With a queue of this many places; a power of two.
    pub(super) fn new(state: T, places: usize) -> Self {
        Self {
            state: Mutex::new(state),
            submissions: Submissions::new(places),
            wanting: AtomicU32::new(0),
        }
    }

    /// Waits for the lock, before those who only drive.
    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        self.wanting.fetch_add(1, Ordering::SeqCst);
        let state = self.lock_to_drive();
        self.wanting.fetch_sub(1, Ordering::SeqCst);
        state
    }

    /// Waits for the lock, to make a turn.
    pub(super) fn lock_to_drive(&self) -> MutexGuard<'_, T> {
        // A thread that panicked under it left nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock, if nobody has it.
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Does anybody wait for it?
    pub(super) fn is_wanted(&self) -> bool {
        self.wanting.load(Ordering::SeqCst) > 0
    }

    /// Leaves something in the queue, for those who has the lock. If nobody has, the caller has
    /// it now, and serves the queue.
    ///
    /// # Errors
    /// What did not fit.
    pub(super) fn submit(&self, item: S) -> Result<Option<MutexGuard<'_, T>>, S> {
        self.leave(item)?;
        Ok(self.try_lock())
    }

    /// Leaves something in the queue, for a thread that will be told to take the lock.
    ///
    /// # Errors
    /// What did not fit.
    pub(super) fn leave(&self, item: S) -> Result<(), S> {
        self.submissions.push(item)?;
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// The oldest of what was left. The guard shows that no other thread takes it.
    pub(super) fn next(&self, _: &MutexGuard<'_, T>) -> Option<S> {
        self.submissions.pop()
    }

    /// Was anything left?
    pub(super) fn has_submissions(&self) -> bool {
        !self.submissions.is_empty()
    }

    /// Lets go. Returns the lock again where something was left meanwhile that nobody else
    /// serves: the caller does.
    #[must_use = "what was left waits for it"]
    pub(super) fn release<'a>(&'a self, state: MutexGuard<'a, T>) -> Option<MutexGuard<'a, T>> {
        drop(state);
        self.take_for_others()
    }

    /// The lock for what was left while it was taken, by anyone who has let go of it. Nothing:
    /// nothing was left, or anyone who has the lock now looks after us.
    pub(super) fn take_for_others(&self) -> Option<MutexGuard<'_, T>> {
        fence(Ordering::SeqCst);
        if self.submissions.is_empty() { None } else { self.try_lock() }
    }
}
