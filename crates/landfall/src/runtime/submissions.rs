//! [`Submissions`]: a bounded queue of what was asked for while another thread had the lock.
//!
//! Any thread puts in; anyone who has the lock takes out. Each place has a word that says whose
//! turn it is (D. Vyukov's bounded queue): a thread that has claimed a place fills it, and
//! says so. So nobody ever waits for a place's mutex; it is there because this crate has no
//! `unsafe` code.

use std::fmt;
use std::sync::PoisonError;

use super::sync::{AtomicUsize, Mutex, Ordering};

/// What was asked for while another thread had the lock, up to a bound.
pub(super) struct Submissions<S> {
    places: Box<[Place<S>]>,
    /// How many were ever put in, and taken out.
    put: AtomicUsize,
    taken: AtomicUsize,
}

struct Place<S> {
    /// `n`: the `n`th item may be put here. `n + 1`: it is here.
    turn: AtomicUsize,
    item: Mutex<Option<S>>,
}

impl<S> Submissions<S> {
    /// With this many places: a power of two, and at least two, for of a single place nobody
    /// could tell whether it is full or free.
    pub(super) fn new(places: usize) -> Self {
        assert!(places.is_power_of_two() && places >= 2, "{places} places will not do");
        let place = |n| Place { turn: AtomicUsize::new(n), item: Mutex::new(None) };
        Self {
            places: (0..places).map(place).collect(),
            put: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
        }
    }

    fn place(&self, n: usize) -> &Place<S> {
        &self.places[n & (self.places.len() - 1)]
    }

    /// Puts something in.
    ///
    /// # Errors
    /// What did not fit.
    pub(super) fn push(&self, item: S) -> Result<(), S> {
        let mut n = self.put.load(Ordering::Relaxed);
        loop {
            let place = self.place(n);
            let turn = place.turn.load(Ordering::Acquire);
            // Counters wrap around, so that what counts is their distance.
            match turn.wrapping_sub(n) as isize {
                0 => match self.put.compare_exchange_weak(
                    n,
                    n.wrapping_add(1),
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => {
                        *place.item.lock().unwrap_or_else(PoisonError::into_inner) = Some(item);
                        place.turn.store(n.wrapping_add(1), Ordering::Release);
                        return Ok(());
                    }
                    Err(now) => n = now,
                },
                ..0 => return Err(item),
                _ => n = self.put.load(Ordering::Relaxed),
            }
        }
    }

    /// Takes the oldest item. One thread at a time does: it has the lock.
    pub(super) fn pop(&self) -> Option<S> {
        let n = self.taken.load(Ordering::Relaxed);
        let place = self.place(n);
        if place.turn.load(Ordering::Acquire) != n.wrapping_add(1) {
            return None;
        }
        let item = place.item.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.taken.store(n.wrapping_add(1), Ordering::Relaxed);
        place.turn.store(n.wrapping_add(self.places.len()), Ordering::Release);
        item
    }

    /// Is there nothing to take? Without the lock the answer may be old by the time it is
    /// there; a thread that puts something in behind it looks at the lock after that.
    pub(super) fn is_empty(&self) -> bool {
        let n = self.taken.load(Ordering::Relaxed);
        self.place(n).turn.load(Ordering::Acquire) != n.wrapping_add(1)
    }
}

impl<S> fmt::Debug for Submissions<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submissions").field("places", &self.places.len()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_full_queue_gives_back_what_did_not_fit() {
        let queue = Submissions::new(2);
        for round in 0..5 {
            assert!(queue.is_empty());
            assert_eq!((queue.push(round), queue.push(round + 1)), (Ok(()), Ok(())));
            assert_eq!(queue.push(99), Err(99));
            assert!(!queue.is_empty());
            assert_eq!((queue.pop(), queue.pop()), (Some(round), Some(round + 1)));
            assert_eq!(queue.pop(), None);
        }
    }

    #[test]
    fn of_many_threads_nothing_is_lost_and_each_keeps_its_order() {
        const EACH: usize = 5_000;
        const THREADS: usize = 4;
        let (queue, is_over) = (Submissions::new(8), AtomicBool::new(false));
        let mut next = [0; THREADS];
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (queue, is_over) = (&queue, &is_over);
                scope.spawn(move || {
                    for n in 0..EACH {
                        let mut item = (thread, n);
                        while let Err(back) = queue.push(item) {
                            assert!(!is_over.load(Ordering::Relaxed), "nobody takes it");
                            item = back;
                            std::thread::yield_now();
                        }
                    }
                });
            }
            let start = std::time::Instant::now();
            while next != [EACH; THREADS] {
                if start.elapsed().as_secs() > 60 {
                    is_over.store(true, Ordering::Relaxed);
                    panic!("{next:?}");
                }
                match queue.pop() {
                    Some((thread, n)) => {
                        assert_eq!(n, next[thread]);
                        next[thread] += 1;
                    }
                    None => std::thread::yield_now(),
                }
            }
        });
        assert_eq!(queue.pop(), None);
    }
}
