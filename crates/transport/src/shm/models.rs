//! The protocols of this module in every order that threads and their memory can
//! take: `RUSTFLAGS="--cfg loom" cargo test -p landfall-transport --release
//! --no-default-features --lib shm::models`.
//!
//! They are the functions that run in earnest, over the words of `loom`.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

use super::Word;
use super::ring::{Emptied, Filled};
use super::wake::{announce, awaited, retract};
use super::watched::filter::Filter;

fn words<const N: usize>() -> Arc<[AtomicU64; N]> {
    Arc::new(std::array::from_fn(|_| AtomicU64::new(0)))
}

/// A tripwire is armed while its word is written: the owner sees the word, or the
/// writer sees the tripwire.
#[test]
fn no_store_slips_between_arming_and_looking() {
    loom::model(|| {
        // Data, bits, summary.
        let shared = words::<3>();
        let writer = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let [data, bits, summary] = &*shared;
                data.store(1, Release);
                Filter::<AtomicU64>::settle();
                let filter = Filter::new(std::slice::from_ref(bits), std::slice::from_ref(summary));
                filter.hears(&(5..6))
            })
        };
        let [data, bits, summary] = &*shared;
        Filter::new(std::slice::from_ref(bits), std::slice::from_ref(summary)).set(&(5..6));
        Filter::<AtomicU64>::settle();
        let seen = data.load(Acquire) == 1;
        let told = writer.join().unwrap();
        assert!(seen || told, "the store was missed");
    });
}

/// The same for a long write, which asks the summary first.
#[test]
fn no_long_store_slips_through_the_summary() {
    loom::model(|| {
        // Data, three words of bits, summary.
        let shared = words::<5>();
        let writer = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let [data, bits @ .., summary] = &*shared;
                data.store(1, Release);
                Filter::<AtomicU64>::settle();
                Filter::new(bits, std::slice::from_ref(summary)).hears(&(1..191))
            })
        };
        let [data, bits @ .., summary] = &*shared;
        Filter::new(bits, std::slice::from_ref(summary)).set(&(100..101));
        Filter::<AtomicU64>::settle();
        let seen = data.load(Acquire) == 1;
        assert!(writer.join().unwrap() || seen, "the store was missed");
    });
}

/// Two writers, one tripwire that is disarmed and armed again between.
#[test]
fn arming_again_is_as_safe_as_arming() {
    loom::model(|| {
        let shared = words::<4>();
        let spawn = |index: usize| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let [.., bits, summary] = &*shared;
                shared[index].store(1, Release);
                Filter::<AtomicU64>::settle();
                let filter = Filter::new(std::slice::from_ref(bits), std::slice::from_ref(summary));
                filter.hears(&(5..6))
            })
        };
        let writer = spawn(0);
        let [one, _, bits, summary] = &*shared;
        let filter = Filter::new(std::slice::from_ref(bits), std::slice::from_ref(summary));
        filter.set(&(5..6));
        filter.clear(&(5..6));
        filter.set(&(5..6));
        Filter::<AtomicU64>::settle();
        let seen = one.load(Acquire) == 1;
        assert!(writer.join().unwrap() || seen, "the store was missed");
    });
}

/// Who announces that it sleeps and then finds no work is signalled.
#[test]
fn nobody_sleeps_over_work() {
    loom::model(|| {
        // Work, doorbell.
        let shared = words::<2>();
        let worker = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let [work, bell] = &*shared;
                work.store(1, Release);
                awaited(bell) != 0
            })
        };
        let [work, bell] = &*shared;
        announce(bell, 1);
        AtomicU64::fence(std::sync::atomic::Ordering::SeqCst);
        let seen = work.load(Acquire) == 1;
        let signalled = worker.join().unwrap();
        assert!(seen || signalled, "it sleeps and nobody wakes it");
    });
}

/// Two that ring at once: at least one signals after the work of both is there, or
/// the sleeper sees it.
#[test]
fn two_that_ring_at_once_leave_nobody_asleep() {
    loom::model(|| {
        let shared = words::<4>();
        let ring = |index: usize| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared[index].store(1, Release);
                if awaited(&shared[2]) != 0 {
                    // The signal, and what it carries with it.
                    shared[3].fetch_add(1, AcqRel);
                }
            })
        };
        let ringers = [ring(0), ring(1)];
        let [first, second, bell, signals] = &*shared;
        announce(bell, 1);
        AtomicU64::fence(std::sync::atomic::Ordering::SeqCst);
        let seen = first.load(Acquire) + second.load(Acquire);
        ringers.into_iter().for_each(|ringer| ringer.join().unwrap());
        let signals = signals.load(Acquire);
        assert!(signals <= 1, "one announcement is answered once");
        assert!(seen == 2 || signals == 1, "it sleeps over work");
    });
}

/// A thread sleeps at the word of a doorbell, and tasks at its eventfd: each that finds no
/// work is woken where it sleeps. The kernel puts the thread to sleep only if the word is
/// still what the thread saw; and a thread that finds work takes back its own announcement
/// only.
#[test]
fn each_is_woken_where_it_sleeps() {
    loom::model(|| {
        // Work, doorbell, what was woken.
        let shared = words::<3>();
        let worker = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let [work, bell, woken] = &*shared;
                work.store(1, Release);
                woken.store(awaited(bell), Release);
            })
        };
        let tasks = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let [work, bell, _] = &*shared;
                announce(bell, 1);
                AtomicU64::fence(std::sync::atomic::Ordering::SeqCst);
                work.load(Acquire) == 1
            })
        };
        let [work, bell, woken] = &*shared;
        let held = announce(bell, 2);
        AtomicU64::fence(std::sync::atomic::Ordering::SeqCst);
        let found = work.load(Acquire) == 1;
        if found {
            retract(bell, 2);
        }
        // What the kernel looks at before it lets the thread sleep. A wake that is sent
        // later finds it asleep.
        let sleeps = !found && bell.load(Acquire) == held;
        let task_found = tasks.join().unwrap();
        worker.join().unwrap();
        let woken = woken.load(Acquire);
        assert!(!sleeps || woken & 2 != 0, "the thread sleeps over work");
        assert!(task_found || woken & 1 != 0, "the task sleeps over work");
    });
}

/// What comes out of a ring was written whole, in order, and is not overwritten
/// before its room was given back.
#[test]
fn a_ring_of_two_passes_records_whole() {
    loom::model(|| {
        // Filled, emptied, two slots of two words.
        let shared = words::<6>();
        let producer = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let [filled_word, emptied_word, slots @ ..] = &*shared;
                let mut filled = Filled::new(2);
                for next in 1..=3 {
                    if filled.known_room() == 0 && filled.look(emptied_word).unwrap() == 0 {
                        return;
                    }
                    let at = (filled.count() % 2) as usize * 2;
                    slots[at].store(next, Relaxed);
                    slots[at + 1].store(next * 10, Relaxed);
                    filled.add(1);
                    if next != 1 {
                        filled.publish(filled_word);
                    }
                }
            })
        };
        let [filled_word, emptied_word, slots @ ..] = &*shared;
        let (mut emptied, mut last) = (Emptied::new(2), 0);
        for _ in 0..3 {
            if emptied.known() == 0 && emptied.look(filled_word).unwrap() == 0 {
                thread::yield_now();
                continue;
            }
            let at = (emptied.count() % 2) as usize * 2;
            let record = (slots[at].load(Relaxed), slots[at + 1].load(Relaxed));
            assert_eq!(record, (last + 1, (last + 1) * 10));
            last += 1;
            emptied.add(1);
            emptied.publish(emptied_word);
        }
        producer.join().unwrap();
    });
}
