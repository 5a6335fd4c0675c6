//! How many processes may have the `epoll` sets that this one had when it forked.
//!
//! A child has the kernel's sets in common with its parent, and what it waits for on one it takes
//! away from the other. Most children never wait there: redis writes its file to disk in one, and
//! ends. So what does not go together with two who wait ([`crate::interest`], its pipe) is given up before a
//! fork, and may come again once every child has ended and has not waited on a set of its parent's.
//!
//! The count lies in memory that all of them share. A child that is killed, or becomes another
//! program, takes nothing from it: then things stay as they are after a fork.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use crate::kernel;

/// Processes that have come by forks from the first that had sets, and that one; null before its fork.
static COUNT: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());
/// This process has waited on a set that it had when it came, or has said that it ends.
static STAYS: AtomicBool = AtomicBool::new(false);

fn count() -> Option<&'static AtomicU32> {
    // SAFETY: a page of zeros that is mapped for ever.
    unsafe { COUNT.load(Ordering::Acquire).as_ref() }
}

/// Before a fork of one who has sets.
pub(crate) fn grows() {
    if count().is_none() {
        // Without memory for it nothing comes again.
        let Ok(page) = kernel::map_common(size_of::<AtomicU32>()) else { return };
        let page: *mut AtomicU32 = page.cast();
        // SAFETY: mapped just now, and as all pages begin.
        unsafe { (*page).store(1, Ordering::Relaxed) };
        COUNT.store(page, Ordering::Release);
    }
    if let Some(count) = count() {
        count.fetch_add(1, Ordering::AcqRel);
    }
}

/// In the child: it may wait yet, and may leave.
pub(crate) fn after_fork() {
    STAYS.store(false, Ordering::Relaxed);
}

/// This process waits on a set that came with it: its parent is never alone with that again.
pub(crate) fn stays() {
    STAYS.store(true, Ordering::Relaxed);
}

/// This process ends, and waits on nothing any more.
pub(crate) fn leaves() {
    if !STAYS.swap(true, Ordering::Relaxed)
        && let Some(count) = count()
    {
        count.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Whether no other process has the sets that this one has.
pub(crate) fn is_alone() -> bool {
    count().is_some_and(|count| count.load(Ordering::Acquire) == 1)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A child of the test, which does this and ends, and has ended when this returns.
    pub(crate) fn in_a_child(does: impl FnOnce()) {
        grows();
        // SAFETY: the child does what needs no lock and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            after_fork();
            does();
            // SAFETY: it ends, past all that would clean up for the parent.
            unsafe { libc::_exit(0) };
        }
        // SAFETY: a child of ours.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    }
}
