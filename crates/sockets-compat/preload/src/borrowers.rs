//! Who else is in this process's memory, or has a copy of it that libc does not know of.
//!
//! A child of `vfork` runs in its parent's memory until it calls `exec`, and what it closes is
//! closed for itself alone. One of a bare `clone` has a copy of the tables, in which nobody has
//! counted it. The number of the process tells them from who has the tables, but the kernel is
//! asked for it only where there may be one of them: a connection that lasts one request would
//! pay for it four times, and each `close` of a file once.
//!
//! Children in this memory are counted where they are made ([`crate::calls`]), and a copy
//! of this memory lacks one page, whichever way it was made (`MADV_WIPEONFORK`).

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::kernel;

/// Children of `vfork` and `clone` that may be in this memory now.
pub(crate) static BORROWERS: AtomicU32 = AtomicU32::new(0);
/// A word that is one here, and zero in copies of this memory; null where no kernel does that.
static MARK: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

/// This memory is this process's own from here on: it has just begun, or libc has forked it.
pub(crate) fn begin() {
    BORROWERS.store(0, Ordering::Relaxed);
    // Elsewhere nobody counts children of `vfork`.
    let counts = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));
    if counts && MARK.load(Ordering::Relaxed).is_null() {
        let page = kernel::map_wiped_in_children().unwrap_or(std::ptr::null_mut());
        MARK.store(page.cast(), Ordering::Relaxed);
    }
    if let Some(mark) = mark() {
        mark.store(1, Ordering::Relaxed);
    }
}

fn mark() -> Option<&'static AtomicU32> {
    // SAFETY: a page that is aligned for it, and stays.
    unsafe { MARK.load(Ordering::Relaxed).as_ref() }
}

/// Whether nobody but this process is in its memory, for certain.
pub(crate) fn are_none() -> bool {
    mark().is_some_and(|mark| mark.load(Ordering::Relaxed) == 1)
        && BORROWERS.load(Ordering::Relaxed) == 0
}

/// A child in this memory, while this lives.
pub(crate) struct Borrower(());

impl Borrower {
    /// One that a call with these flags of `clone` makes; `None` if it makes none.
    pub(crate) fn made_with(flags: u64) -> Option<Self> {
        let has = |flag: i32| flags & u64::from(flag.cast_unsigned()) != 0;
        (has(libc::CLONE_VM) && !has(libc::CLONE_THREAD)).then(|| {
            BORROWERS.fetch_add(1, Ordering::Relaxed);
            Self(())
        })
    }

    /// Nobody says when it goes.
    pub(crate) fn stays(self) {
        std::mem::forget(self);
    }
}

impl Drop for Borrower {
    fn drop(&mut self) {
        BORROWERS.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One for all, since what it is about is this process's.
    #[test]
    fn a_copy_of_this_memory_and_a_child_in_it_are_told_from_who_has_it() {
        assert!(!are_none(), "nobody has begun");
        begin();
        assert!(are_none());
        let threads = libc::CLONE_VM | libc::CLONE_THREAD;
        for flags in [libc::SIGCHLD, threads] {
            assert!(Borrower::made_with(flags as u64).is_none());
        }
        let child = Borrower::made_with((libc::CLONE_VM | libc::SIGCHLD) as u64);
        assert!(!are_none());
        drop(child);
        assert!(are_none());

        // SAFETY: the child looks at two words, and ends.
        let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
        if child == 0 {
            let code = i32::from(are_none());
            // SAFETY: a number.
            unsafe { libc::_exit(code) };
        }
        let mut status = -1;
        // SAFETY: a place for it.
        assert_eq!(i64::from(unsafe { libc::waitpid(child as i32, &mut status, 0) }), child);
        assert_eq!(status, 0, "a copy of this memory has the mark");
        assert!(are_none());
        Borrower::made_with(libc::CLONE_VM as u64).unwrap().stays();
        assert!(!are_none());
        begin();
        assert!(are_none(), "a child of a fork has no child yet");
    }
}
