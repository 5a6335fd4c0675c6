//! How long one looks at memory before one sleeps.
//!
//! To look is best while the other end runs on another core and answers soon; where cores
//! are few and wanted, it keeps the very one from running whom one waits for. Nobody knows
//! beforehand which it is, so the time grows with each success and shrinks with each
//! failure; one that has come down to nothing is tried again now and then.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// As long as sleeping and being woken takes: to look for longer can save no more.
const MOST_NS: u32 = 50_000;
const FIRST_NS: u32 = 20_000;
const LEAST_NS: u32 = 2_000;
/// After so many waits without a look one is tried again.
const TRY_AGAIN: u32 = 64;
/// The clock is asked after so many looks: each costs little beside the clock, as a rule.
const LOOKS_AT_ONCE: u32 = 16;

/// The time that was worth it so far.
#[derive(Debug)]
pub(crate) struct Patience {
    nanoseconds: AtomicU32,
    waits_without: AtomicU32,
}

impl Patience {
    pub(crate) const fn new() -> Self {
        Self { nanoseconds: AtomicU32::new(FIRST_NS), waits_without: AtomicU32::new(0) }
    }

    /// As it was in the beginning.
    pub(crate) fn reset(&self) {
        self.nanoseconds.store(FIRST_NS, Ordering::Relaxed);
    }

    /// Looks for as long as it has been worth it; whether it came.
    pub(crate) fn look_for(
        &self,
        limit: Option<Duration>,
        mut has_come: impl FnMut() -> bool,
    ) -> bool {
        let mut worth = self.nanoseconds.load(Ordering::Relaxed);
        if worth < LEAST_NS {
            if self.waits_without.fetch_add(1, Ordering::Relaxed) < TRY_AGAIN {
                return false;
            }
            self.waits_without.store(0, Ordering::Relaxed);
            // Whole, since who sleeps at the other end answers late the first time.
            worth = MOST_NS;
        }
        let until = Duration::from_nanos(worth.into());
        let until = limit.map_or(until, |limit| limit.min(until));
        let begin = Instant::now();
        // Fewer at first: a look at a thousand connections takes longer than all the patience.
        let mut looks = 1;
        loop {
            for _ in 0..looks {
                if has_come() {
                    self.nanoseconds.store((worth * 2).min(MOST_NS), Ordering::Relaxed);
                    return true;
                }
                std::hint::spin_loop();
            }
            if begin.elapsed() >= until {
                self.nanoseconds.store(worth / 2, Ordering::Relaxed);
                return false;
            }
            looks = (looks * 2).min(LOOKS_AT_ONCE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_takes_longer_than_the_patience_is_the_last() {
        let mut looks = 0;
        assert!(!Patience::new().look_for(None, || {
            looks += 1;
            std::thread::sleep(2 * Duration::from_nanos(MOST_NS.into()));
            false
        }));
        assert_eq!(looks, 1);
    }

    #[test]
    fn who_looks_in_vain_looks_for_less_and_less() {
        let patience = Patience::new();
        let mut looks = 0;
        for _ in 0..20 {
            assert!(!patience.look_for(None, || {
                looks += 1;
                false
            }));
        }
        let before = looks;
        assert!(!patience.look_for(None, || {
            looks += 1;
            false
        }));
        assert_eq!(looks, before, "it was worth nothing");
        // But it is tried again, and then worth it.
        let came = (0..=TRY_AGAIN).filter(|_| patience.look_for(None, || true)).count();
        assert!(came > 0);
        assert!(patience.look_for(None, || true));
    }
}
