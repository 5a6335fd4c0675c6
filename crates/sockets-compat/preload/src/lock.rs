//! A lock in memory that processes share, and that outlives its holder.
//!
//! The word is the holder's thread number, or zero. Whoever waits for it looks now and
//! then whether that thread is still there, and takes over from one that was killed: what
//! the lock protects are counters that are moved by one store, and so are never half done.
//! A peer that writes nonsense here makes its own connection slow, and nothing else.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::kernel;

/// Set while somebody sleeps for it. (Thread numbers are below 2²² in Linux.)
const WANTED: u32 = 1 << 31;
/// A holder has it for the length of a copy. Who still has it after so long may be gone.
const PATIENCE_MS: u32 = 20;
const SPINS: u32 = 200;

/// Held until it is dropped.
#[derive(Debug)]
pub(crate) struct Held<'a>(&'a AtomicU32);

/// Takes the lock.
pub(crate) fn hold(word: &AtomicU32) -> Held<'_> {
    let me = my_number();
    if word.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_err() {
        wait_for(word, me);
    }
    Held(word)
}

#[cold]
fn wait_for(word: &AtomicU32, me: u32) {
    for _ in 0..SPINS {
        std::hint::spin_loop();
        if word.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return;
        }
    }
    loop {
        let seen = word.load(Ordering::Relaxed);
        let holder = seen & !WANTED;
        // Who takes it here cannot know whether others still sleep: it wakes one later.
        if (holder == 0 || !kernel::is_alive(holder))
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
        if self.0.swap(0, Ordering::Release) & WANTED != 0 {
            kernel::wake(self.0, 1);
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
        let _held = hold(&self.word);
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
