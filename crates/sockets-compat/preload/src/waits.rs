//! Whether the calls of an end wait (`O_NONBLOCK`), remembered: a call of the kernel less
//! for each that finds nothing.
//!
//! The flag belongs to the open file, which all processes that have this end share; so the
//! memory of it lies beside the ring. Who changes the flag makes it forgotten, and whoever
//! asked the kernel before that remembers nothing: the upper bits count the changes.

use std::sync::atomic::{AtomicU32, Ordering};

const YES: u32 = 1;
const NO: u32 = 2;
const KNOWN: u32 = YES | NO;
const CHANGE: u32 = 4;

/// Whether calls wait; `ask` asks the kernel.
pub(crate) fn do_they(word: &AtomicU32, ask: impl FnOnce() -> bool) -> bool {
    let seen = word.load(Ordering::Acquire);
    match seen & KNOWN {
        YES => true,
        NO => false,
        _ => {
            let waits = ask();
            let known = (seen & !KNOWN) | if waits { YES } else { NO };
            let _ = word.compare_exchange(seen, known, Ordering::AcqRel, Ordering::Relaxed);
            waits
        }
    }
}

/// The flag has just been changed, or may have been.
pub(crate) fn forget(word: &AtomicU32) {
    let mut seen = word.load(Ordering::Relaxed);
    loop {
        let next = (seen & !KNOWN).wrapping_add(CHANGE);
        match word.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => seen = now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_asked_once_for_each_change() {
        let word = AtomicU32::new(0);
        for answer in [true, false, true] {
            forget(&word);
            assert_eq!(do_they(&word, || answer), answer);
            assert_eq!(do_they(&word, || unreachable!("it is known")), answer);
        }
    }

    #[test]
    fn an_answer_from_before_a_change_is_not_remembered() {
        let word = AtomicU32::new(0);
        let answer = do_they(&word, || {
            forget(&word);
            true
        });
        assert!(answer);
        assert!(!do_they(&word, || false), "the kernel was not asked again");
    }
}
