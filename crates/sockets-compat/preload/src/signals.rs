//! What the program wants of its signals: whether a call that one interrupts goes on.
//!
//! The kernel knows, and does it for calls of its own. One wait is not the kernel's call,
//! but a few of them: that of a sender for room. It asks here.

use std::sync::atomic::{AtomicU64, Ordering};

/// A bit for each signal whose handler ends the calls that it interrupts.
static ENDING: AtomicU64 = AtomicU64::new(0);

/// Those that a thread brings upon itself, and not while it waits. Languages set handlers of
/// their own for some of them in every program.
const FAULTS: [i32; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP];

/// A handler was set, with these flags; `is_handler` unless it is the default or nothing.
pub(crate) fn was_set(signal: i32, flags: i32, is_handler: bool) {
    let Some(bit) = u32::try_from(signal - 1).ok().and_then(|at| 1_u64.checked_shl(at)) else {
        return;
    };
    if FAULTS.contains(&signal) {
        return;
    }
    if is_handler && flags & libc::SA_RESTART == 0 {
        ENDING.fetch_or(bit, Ordering::Relaxed);
    } else {
        ENDING.fetch_and(!bit, Ordering::Relaxed);
    }
}

/// Whether no handler wants calls to end. Where some do and others do not, a call ends: it
/// is what programs with such handlers are made for.
pub(crate) fn all_restart() -> bool {
    ENDING.load(Ordering::Relaxed) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_languages_do_about_faults_ends_no_calls() {
        was_set(libc::SIGSEGV, libc::SA_SIGINFO, true);
        assert!(all_restart());
        was_set(libc::SIGUSR1, libc::SA_SIGINFO, true);
        assert!(!all_restart());
        was_set(libc::SIGUSR1, libc::SA_RESTART, true);
        assert!(all_restart());
    }
}
