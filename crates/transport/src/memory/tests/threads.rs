//! Several threads on one table. Every wait has a bound, and no test depends
//! on who is faster.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use landfall_placement::{RegionId, WordFunction, WordOp, WordWidth};

use crate::memory::{AccessError, Memory, Pins, Regions, Rights};

/// Longer than anything here can take on a machine that works.
const LIMIT: Duration = Duration::from_secs(60);

/// Waits until something is so.
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < LIMIT, "{what} did not come about");
        thread::yield_now();
    }
}

#[test]
fn invariant_1_take_back_waits_while_the_memory_is_in_use() {
    let regions = Regions::new(1);
    let id = regions.lend(Memory::zeroed(64), Rights::ALL).unwrap();
    let pinned = regions.pin(id).unwrap();
    let mut pins = Pins::new(&regions);
    pins.copy_in(&id.span(0, 4), b"turn").unwrap();
    thread::scope(|scope| {
        let (done, result) = mpsc::channel();
        let taker = regions.clone();
        scope.spawn(move || done.send(taker.take_back_within(id, LIMIT)).unwrap());
        until("the end of the grant", || regions.len(id) == Err(AccessError::Revoked(id)));
        // Held twice: neither of the two alone lets the memory go.
        assert!(result.try_recv().is_err());
        pins.release();
        assert!(result.try_recv().is_err());
        drop(pinned);
        let memory = result.recv_timeout(LIMIT).unwrap().unwrap();
        assert_eq!(&memory[..4], b"turn");
    });
}

#[test]
fn one_of_several_takers_gets_the_memory() {
    const TAKERS: usize = 4;
    let regions = Regions::new(1);
    for _ in 0..if cfg!(miri) { 2 } else { 200 } {
        let id = regions.lend(Memory::zeroed(8), Rights::ALL).unwrap();
        let pinned = regions.pin(id).unwrap();
        let start = Barrier::new(TAKERS + 1);
        let got = thread::scope(|scope| {
            let take = || {
                start.wait();
                regions.take_back_within(id, LIMIT)
            };
            let takers: Vec<_> = (0..TAKERS).map(|_| scope.spawn(take)).collect();
            start.wait();
            drop(pinned);
            takers
                .into_iter()
                .map(|taker| taker.join().unwrap())
                .filter(|got| {
                    got.as_ref().err().is_none_or(|error| {
                        assert_eq!(*error, AccessError::Stale(id).into());
                        false
                    })
                })
                .count()
        });
        assert_eq!(got, 1);
    }
}

/// Tells the workers to stop, also when a test fails.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Where the workers find the grant of the moment.
struct Board(AtomicU64);

impl Board {
    fn show(&self, id: RegionId) {
        self.0.store(u64::from(id.index) << 32 | u64::from(id.generation), Ordering::Relaxed);
    }

    fn read(&self) -> RegionId {
        let packed = self.0.load(Ordering::Relaxed);
        RegionId::new((packed >> 32) as u32, packed as u32)
    }
}

#[test]
fn invariant_1_memory_that_was_taken_back_is_written_by_nobody() {
    const WORKERS: usize = 3;
    let rounds = if cfg!(miri) { 3 } else { 500 };
    let regions = Regions::new(2);
    let board = Board(AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    let counted = AtomicU64::new(0);
    let mut found = 0;
    thread::scope(|scope| {
        let _stop = StopAtEnd(&stop);
        for worker in 0..WORKERS {
            let (regions, board, stop, counted) = (&regions, &board, &stop, &counted);
            scope.spawn(move || {
                let mut pins = Pins::new(regions);
                while !stop.load(Ordering::Relaxed) {
                    // One turn: both halves of a word are counted up, and
                    // everybody writes all over the rest.
                    for offset in [0, 4] {
                        let (width, function) = (WordWidth::Four, WordFunction::Add(1));
                        let op = WordOp { region: board.read(), offset, width, function };
                        if pins.word(&op).is_ok() {
                            counted.fetch_add(1, Ordering::Relaxed);
                        }
                        let span = op.region.span(9 + worker as u64, 40);
                        let _ = pins.copy_in(&span, &[worker as u8 + 1; 40]);
                    }
                    pins.release();
                    thread::yield_now();
                }
            });
        }
        for _ in 0..rounds {
            let id = regions.lend(Memory::zeroed(64), Rights::ALL).unwrap();
            let before = counted.load(Ordering::Relaxed);
            board.show(id);
            until("a turn", || counted.load(Ordering::Relaxed) != before);
            let memory = regions.take_back_within(id, LIMIT).unwrap();
            let copy = memory.to_vec();
            found += u64::from(u32::from_ne_bytes(copy[..4].try_into().unwrap()));
            found += u64::from(u32::from_ne_bytes(copy[4..8].try_into().unwrap()));
            assert!(copy[8..].iter().all(|byte| usize::from(*byte) <= WORKERS));
            assert_eq!(copy[8], 0);
            thread::yield_now();
            assert_eq!(&memory[..], &copy[..]);
        }
    });
    assert_eq!(found, counted.load(Ordering::Relaxed), "each count took effect once");
}

/// The last word of a copy is seen last, wherever the copy lies: it may be the flag of
/// what stands before it.
#[test]
fn the_last_word_of_a_copy_is_seen_last() {
    const WORDS: usize = 12;
    const ROUNDS: u64 = if cfg!(miri) { 20 } else { 200_000 };
    let regions = Regions::new(1);
    let id = regions.lend(Memory::zeroed(4096), Rights::ALL).unwrap();
    // The first blocks cross from one cache line into the next.
    let span = id.span(40, WORDS as u32 * 8);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut pins = Pins::new(&regions);
            for round in 1..=ROUNDS {
                pins.copy_in(&span, &round.to_le_bytes().repeat(WORDS)).unwrap();
            }
            is_over.store(true, Ordering::Release);
        });
        let pinned = regions.pin(id).unwrap();
        let word = |index: u64| {
            let mut bytes = [0; 8];
            pinned.copy_out(&id.span(40 + index * 8, 8), &mut bytes).unwrap();
            u64::from_le_bytes(bytes)
        };
        while !is_over.load(Ordering::Acquire) {
            let flag = word(WORDS as u64 - 1);
            for index in 0..WORDS as u64 - 1 {
                let seen = word(index);
                assert!(seen >= flag, "word {index} is of round {seen}, the flag of {flag}");
            }
        }
    });
}
