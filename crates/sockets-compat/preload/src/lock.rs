//! A lock in memory that processes share, and that outlives its holder.
//!
//! The word is the holder's thread number, or zero. Whoever waits for it looks now and
//! then whether that thread is still there, and takes over from one that was killed: what
//! the lock protects are counters that are moved by one store, and so are never half done.
//! From one that keeps it for ever it is taken, too: a peer that writes nonsense here makes
//! its own connection slow, and nothing else.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::kernel;

/// Set while somebody sleeps for it. (Thread numbers are below 2²² in Linux.)
const WANTED: u32 = 1 << 31;
/// A holder has it for the length of a copy. Who still has it after so long may be gone.
const PATIENCE_MS: u32 = 20;
const SPINS: u32 = 200;
/// Nobody copies for so long, stopped or starved as he may be.
const LONGEST: Duration = Duration::from_secs(3);

/// Held until it is dropped.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    word: &'a AtomicU32,
    me: u32,
}

/// Takes a lock that processes share, at the latest after [`LONGEST`].
pub(crate) fn hold(word: &AtomicU32) -> Held<'_> {
    hold_within(word, Some(LONGEST))
}

fn hold_within(word: &AtomicU32, longest: Option<Duration>) -> Held<'_> {
    let me = my_number();
    if word.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_err() {
        wait_for(word, me, longest);
    }
    Held { word, me }
}

#[cold]
fn wait_for(word: &AtomicU32, me: u32, longest: Option<Duration>) {
    for _ in 0..SPINS {
        std::hint::spin_loop();
        if word.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return;
        }
    }
    let (mut first, mut begun) = (0, Instant::now());
    loop {
        let seen = word.load(Ordering::Relaxed);
        let holder = seen & !WANTED;
        if holder != first {
            (first, begun) = (holder, Instant::now());
        }
        let is_kept = longest.is_some_and(|longest| begun.elapsed() >= longest);
        // Who takes it here cannot know whether others still sleep: it wakes one later.
        if (holder == 0 || is_kept || !kernel::is_alive(holder))
            && word
                .compare_exchange(seen, me | WANTED, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        {
            return;
        }
        if seen & WANTED != 0
            || word
                .compare_exchange(seen, seen | WANTED, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            let _ = kernel::sleep_on(word, seen | WANTED, PATIENCE_MS);
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let free = |from: u32| {
            self.word.compare_exchange(from, 0, Ordering::Release, Ordering::Relaxed).is_ok()
        };
        // Else it was taken from us, and is another's.
        if !free(self.me) && free(self.me | WANTED) {
            kernel::wake(self.word, 1);
        }
    }
}

/// A value of this process that one thread at a time has.
#[derive(Debug)]
pub(crate) struct Locked<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the lock lets one thread in at a time.
unsafe impl<T: Send> Sync for Locked<T> {}

impl<T> Locked<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { word: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// Does something with the value.
    pub(crate) fn with<R>(&self, job: impl FnOnce(&mut T) -> R) -> R {
        // Nobody writes nonsense here: who has it gives it back.
        let _held = hold_within(&self.word, None);
        // SAFETY: under the lock.
        job(unsafe { &mut *self.value.get() })
    }

    /// In a child of a fork: who held it in the parent is not here.
    pub(crate) fn free_after_fork(&self) {
        self.word.store(0, Ordering::Relaxed);
    }
}

/// The thread's number, asked for once; a forked child asks anew.
fn my_number() -> u32 {
    thread_local! {
        static NUMBER: std::cell::Cell<(u32, u32)> = const { std::cell::Cell::new((0, 0)) };
    }
    let epoch = crate::process::epoch();
    let (known, in_epoch) = NUMBER.get();
    if known != 0 && in_epoch == epoch {
        return known;
    }
    let number = kernel::thread();
    NUMBER.set((number, epoch));
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lets_one_in_at_a_time() {
        let sum = Locked::new(0_u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..20_000).for_each(|_| sum.with(|sum| *sum += 1)));
            }
        });
        assert_eq!(sum.with(|sum| *sum), 80_000);
        assert_eq!(sum.word.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_holder_that_never_ends_is_followed_and_frees_nothing_of_another() {
        let word = AtomicU32::new(0);
        let late = hold(&word);
        let short = Some(Duration::from_millis(30));
        let next = std::thread::scope(|scope| {
            let next = || std::mem::forget(hold_within(&word, short));
            scope.spawn(next).join().unwrap();
            word.load(Ordering::Relaxed)
        });
        assert_ne!(next & !WANTED, late.me);
        drop(late);
        assert_eq!(word.load(Ordering::Relaxed), next);
    }

    #[test]
    fn a_holder_that_is_gone_is_followed() {
        let gone = std::thread::spawn(kernel::thread).join().unwrap();
        // The kernel takes a moment to forget a thread that was joined.
        while kernel::is_alive(gone) {
            std::thread::yield_now();
        }
        for word in [AtomicU32::new(gone), AtomicU32::new(gone | WANTED)] {
            drop(hold(&word));
            assert_eq!(word.load(Ordering::Relaxed), 0);
        }
    }
}
