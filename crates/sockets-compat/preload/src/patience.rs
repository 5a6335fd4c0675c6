//! How long one looks at memory before one sleeps; and [`SleepLimit`]: how long one may sleep in
//! the kernel where that cannot tell all that is waited for.
//!
//! To look is best while the other end runs on another core and answers soon; where cores
//! are few and wanted, it keeps the very one from running whom one waits for. Nobody knows
//! beforehand which it is, so the time grows with each success and shrinks with each
//! failure; one that has come down to nothing is tried again now and then.
//!
//! Whether the calls of an end wait (`O_NONBLOCK`), remembered: a call of the kernel less
//! for each that finds nothing.
//!
//! The flag belongs to the open file, which all processes that have this end share; so the
//! memory of it lies beside the ring. Who changes the flag makes it forgotten, and anyone who
//! asked the kernel before that remembers nothing: the upper bits count the changes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// As long as sleeping and being woken takes: to look for longer can save no more.
const MOST_NS: u32 = 50_000;
const FIRST_NS: u32 = 20_000;
const LEAST_NS: u32 = 2_000;
/// After this many waits without a look one is tried again.
const TRY_AGAIN: u32 = 64;
/// The clock is asked after this many looks: each costs little beside the clock, as a rule.
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

    /// Whether to look has not been worth it lately.
    pub(crate) fn is_spent(&self) -> bool {
        self.nanoseconds.load(Ordering::Relaxed) < LEAST_NS
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

/// The longest sleep before one has to look by oneself again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SleepLimit {
    longest: Option<Duration>,
    /// What the kernel would tell is known already, and would end each sleep at once.
    pub(crate) is_blind: bool,
}

impl SleepLimit {
    /// The kernel tells all: as long as it takes.
    pub(crate) const NONE: Self = Self { longest: None, is_blind: false };
    /// Something may come at any moment.
    pub(crate) const SHORT: Self = Self::of(Duration::from_millis(1));
    /// The same, past what the kernel says of this descriptor.
    pub(crate) const BLIND: Self = Self { is_blind: true, ..Self::SHORT };

    pub(crate) const fn of(longest: Duration) -> Self {
        Self { longest: Some(longest), is_blind: false }
    }

    /// One that is good for both.
    pub(crate) fn and(self, other: Self) -> Self {
        let longest = match (self.longest, other.longest) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        Self { longest, is_blind: self.is_blind || other.is_blind }
    }

    /// How long that is, where so much time is left.
    pub(crate) fn within(self, left: Option<Duration>) -> Option<Duration> {
        self.and(Self { longest: left, is_blind: false }).longest
    }
}

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
        let mut look = |patience: &Patience| {
            assert!(!patience.look_for(None, || {
                looks += 1;
                false
            }));
            (looks, patience.nanoseconds.load(Ordering::Relaxed))
        };
        let mut before = (0, FIRST_NS);
        while !patience.is_spent() {
            let after = look(&patience);
            assert!(after.0 > before.0 && after.1 == before.1 / 2, "{before:?}, {after:?}");
            before = after;
        }
        let in_vain = TRY_AGAIN / 4;
        for _ in 0..in_vain {
            assert_eq!(look(&patience), before, "it was worth nothing");
        }
        // But it is tried again, and then worth it.
        let tries = (0..=TRY_AGAIN).position(|_| patience.look_for(None, || true));
        assert_eq!(tries, Some((TRY_AGAIN - in_vain) as usize));
        assert!(patience.look_for(None, || true));
    }

    #[test]
    fn the_shortest_counts() {
        let second = SleepLimit::of(Duration::from_secs(1));
        assert_eq!(second.and(SleepLimit::NONE), second);
        assert_eq!(SleepLimit::NONE.and(second).and(SleepLimit::SHORT), SleepLimit::SHORT);
        assert_eq!(second.and(SleepLimit::BLIND), SleepLimit::BLIND);
        assert_eq!(SleepLimit::NONE.within(None), None);
        assert_eq!(SleepLimit::NONE.within(Some(Duration::ZERO)), Some(Duration::ZERO));
        assert_eq!(second.within(Some(Duration::from_secs(2))), Some(Duration::from_secs(1)));
    }

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
