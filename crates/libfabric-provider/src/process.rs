//! [`Origin`]: the process that something was opened in. A child of a fork has a copy of all that
//! its parent has opened, and must not use it: the two would say different things on one
//! connection, and the threads that may hold a lock are not there.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many forks lead from the first process to this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The process in which something was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin(u32);

impl Origin {
    /// This process.
    pub(crate) fn here() -> Self {
        static COUNTS: Once = Once::new();
        // SAFETY: the handler is there as long as this library is: libc forgets it with that.
        COUNTS.call_once(|| unsafe {
            libc::pthread_atfork(None, None, Some(count));
        });
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Is this the process, and not a child of it?
    pub(crate) fn is_here(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}

/// Runs in each child, before anything else does.
unsafe extern "C" fn count() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}
