//! Which process this is: the one that has the tables, or a child that only borrows them.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::kernel;

static OWNER: AtomicU32 = AtomicU32::new(0);
static EPOCH: AtomicU32 = AtomicU32::new(0);

/// To be called when the library comes to life, and in each child of a fork.
pub(crate) fn begin() {
    OWNER.store(kernel::process(), Ordering::Relaxed);
    EPOCH.fetch_add(1, Ordering::Relaxed);
}

/// Another number in each process that came by fork.
pub(crate) fn epoch() -> u32 {
    EPOCH.load(Ordering::Relaxed)
}

/// Whose the tables are.
pub(crate) fn owner() -> u32 {
    OWNER.load(Ordering::Relaxed)
}

/// Whether the tables are this process's own. A child of `vfork` runs in its parent's
/// memory until it calls `exec`: what it closes is closed for itself, not for the parent.
pub(crate) fn owns_the_tables() -> bool {
    OWNER.load(Ordering::Relaxed) == kernel::process()
}
