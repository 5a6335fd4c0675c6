//! [`Protocol`]: what a runtime drives.

use landfall_placement::{Engine, Instant};

use super::Paths;

/// An engine with its paths, and who waits for what of it: what is behind the lock of a
/// [`Runtime`](super::Runtime).
pub(crate) trait Protocol: Send + 'static {
    type Engine: Engine;
    /// What a call leaves to be done without the lock.
    type Deferred: Deferred;
    /// What is asked for without an answer: as data, so that it can wait in a queue while
    /// another thread has the lock.
    type Submission: Send;
    /// What is dropped at the end of all, without the lock and after the paths.
    type Cleanup: Send;

    fn engine(&self) -> &Self::Engine;
    fn paths(&self) -> &Paths<Self::Engine>;
    fn paths_mut(&mut self) -> &mut Paths<Self::Engine>;

    /// Does what was asked for. A turn follows.
    fn serve(&mut self, now: Instant, submission: Self::Submission);

    /// One turn of every path, and what came of it. Returns whether anything moved.
    fn turn(&mut self, now: Instant) -> bool;
    fn take_deferred(&mut self) -> Self::Deferred;

    /// Is there work that no descriptor and no timer tells of?
    fn has_work(&self) -> bool {
        false
    }

    /// When a turn makes sense, even if nothing comes.
    fn next_wake(&self) -> Option<Instant> {
        self.paths().next_wake(self.engine())
    }

    /// Nothing new begins; what is under way may end in peace.
    fn close(&mut self, now: Instant);
    /// Has it?
    fn is_closed(&self) -> bool;
    /// Enough was waited: what is not over ends now, and the other sides are told.
    fn abort(&mut self, now: Instant);
    /// Need the other sides nothing more of this one?
    fn is_quiet(&self) -> bool;
    /// The last of all: nothing moves any more, and anyone who waits is told.
    fn release(&mut self) -> Self::Cleanup;
}

/// What a call leaves to be done without the lock: wakers may run anything.
pub(crate) trait Deferred {
    fn run(self);
}
