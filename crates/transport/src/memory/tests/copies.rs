//! Copies of every length between every two places: the right bytes, no others,
//! and no word in halves.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use landfall_placement::{WordFunction, WordOp, WordWidth};

use crate::memory::{AccessError, Memory, Piece, Pins, Regions, Rights};

const RW: Rights = Rights::from_bits(3);
const LEN: usize = if cfg!(miri) { 256 } else { 2048 };

/// Bytes of which no two neighbours are alike.
fn numbered(salt: usize) -> Vec<u8> {
    (0..LEN).map(|at| (at * 7 + at / 256 * 13 + salt) as u8).collect()
}

/// Lengths around those where another way of copying begins.
fn lengths() -> Vec<usize> {
    if cfg!(miri) {
        return vec![0, 1, 9, 73];
    }
    (0..150).chain([191, 192, 193, 500, 511, 512, 513, 600, 1472, 1480]).collect()
}

/// Where copies begin and end in a word, and in a cache line.
fn places() -> &'static [usize] {
    if cfg!(miri) { &[0, 3, 8] } else { &[0, 1, 4, 7, 8, 13, 34, 42, 56, 63, 64, 100] }
}

#[test]
fn the_right_bytes_arrive_and_their_neighbours_stay() {
    let regions = Regions::new(2);
    let (source, before) = (numbered(1), numbered(101));
    let from = regions.lend(Memory::from_bytes(&source), RW).unwrap();
    let to = regions.lend(Memory::from_bytes(&before), RW).unwrap();
    let (whole, mut after) = (to.span(0, LEN as u32), vec![0; LEN]);
    let mut pins = Pins::new(&regions);
    for len in lengths() {
        for &at in places() {
            for &offset in places() {
                let mut expected = before.clone();
                expected[offset..offset + len].copy_from_slice(&source[at..at + len]);
                let (span, target) =
                    (from.span(at as u64, len as u32), to.span(offset as u64, len as u32));

                pins.copy_in(&whole, &before).unwrap();
                pins.copy(&span, &target).unwrap();
                pins.peek(&whole, &mut after).unwrap();
                assert!(after == expected, "copy: {len} from {at} to {offset}");

                pins.copy_in(&whole, &before).unwrap();
                pins.copy_in(&target, &source[at..at + len]).unwrap();
                pins.copy_out(&whole, &mut after).unwrap();
                assert!(after == expected, "copy_in: {len} from {at} to {offset}");

                after.copy_from_slice(&before);
                pins.copy_out(&span, &mut after[offset..offset + len]).unwrap();
                assert!(after == expected, "copy_out: {len} from {at} to {offset}");
            }
        }
    }
}

#[test]
fn copies_within_a_region_go_both_ways() {
    let regions = Regions::new(1);
    let source = numbered(5);
    let id = regions.lend(Memory::from_bytes(&source), RW).unwrap();
    let mut pins = Pins::new(&regions);
    let (half, len) = (LEN / 2, LEN / 2 - 40);
    let (low, high) = (id.span(33, len as u32), id.span(half as u64 + 3, len as u32));
    pins.copy(&high, &low).unwrap();
    pins.copy(&low, &id.span(half as u64 + 20, len as u32)).unwrap();
    pins.release();
    let memory = regions.take_back(id).unwrap();
    assert_eq!(memory[33..33 + len], source[half + 3..half + 3 + len]);
    assert_eq!(memory[half + 20..half + 20 + len], source[half + 3..half + 3 + len]);
    assert_eq!(memory[33 + len..half + 20], source[33 + len..half + 20]);
}

#[test]
fn a_copy_checks_both_ends() {
    let regions = Regions::new(4);
    let lend = |rights| regions.lend(Memory::zeroed(64), rights).unwrap();
    let (read, write) = (lend(Rights::READ), lend(Rights::WRITE));
    let mut pins = Pins::new(&regions);
    pins.copy(&read.span(0, 64), &write.span(0, 64)).unwrap();
    let forbidden = |error| matches!(error, Err(AccessError::Forbidden { .. }));
    assert!(forbidden(pins.copy(&read.span(0, 8), &read.span(8, 8))));
    assert!(forbidden(pins.copy(&write.span(0, 8), &write.span(8, 8))));
    assert!(forbidden(pins.peek(&write.span(0, 8), &mut [0; 8])));
    let beyond = |error| matches!(error, Err(AccessError::OutOfBounds { .. }));
    assert!(beyond(pins.copy(&read.span(57, 8), &write.span(0, 8))));
    assert!(beyond(pins.copy(&read.span(0, 8), &write.span(57, 8))));
    let unequal = pins.copy(&read.span(0, 8), &write.span(0, 9));
    assert!(matches!(unequal, Err(AccessError::WrongLength { buffer: 8, .. })));
    // What is held for a copy is held for a look, also when it was revoked.
    regions.revoke(read).unwrap();
    assert_eq!(pins.peek(&read.span(0, 8), &mut [0; 8]), Err(AccessError::Revoked(read)));
    pins.release();
    regions.take_back(read).unwrap();
    assert_eq!(pins.peek(&read.span(0, 8), &mut [0; 8]), Err(AccessError::Stale(read)));
    // A look at what is not held leaves nothing held.
    let seen = lend(Rights::READ);
    pins.peek(&seen.span(0, 8), &mut [0; 8]).unwrap();
    regions.try_take_back(seen).unwrap();
}

/// Stops the other thread, also when an assertion fails.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn no_copy_shows_half_a_word_where_words_begin_alike() {
    const WORDS: usize = 40;
    let rounds = if cfg!(miri) { 5 } else { 20_000 };
    let regions = Regions::new(2);
    let memory = || Memory::zeroed(WORDS * 8 + 64);
    let (shared, other) =
        (regions.lend(memory(), Rights::ALL).unwrap(), regions.lend(memory(), RW).unwrap());
    let stop = AtomicBool::new(false);
    let is_whole = |bytes: &[u8]| {
        bytes.as_chunks::<8>().0.iter().all(|word| word.iter().all(|byte| *byte == word[0]))
    };
    // Not at a multiple of sixteen: a vector is not what counts, a word is.
    let span = shared.span(24, (WORDS * 8) as u32);
    thread::scope(|scope| {
        let _stop = StopAtEnd(&stop);
        scope.spawn(|| {
            let mut pins = Pins::new(&regions);
            let mut value = 0u8;
            while !stop.load(Ordering::Relaxed) {
                value = value.wrapping_add(1);
                // By words and by copies in turn.
                for word in 0..WORDS as u64 {
                    let function = WordFunction::Swap(u64::from_ne_bytes([value; 8]));
                    let (offset, width) = (24 + word * 8, WordWidth::Eight);
                    let op = WordOp { region: shared, offset, width, function };
                    let old = pins.word(&op).unwrap().to_ne_bytes();
                    assert!(is_whole(&old), "{old:?}");
                }
                value = value.wrapping_add(1);
                pins.copy_in(&span, &[value; WORDS * 8]).unwrap();
            }
        });
        let mut pins = Pins::new(&regions);
        let mut seen = [0; WORDS * 8];
        for _ in 0..rounds {
            pins.copy_out(&span, &mut seen).unwrap();
            assert!(is_whole(&seen), "{seen:?}");
            let copy = other.span(40, span.len);
            pins.copy(&span, &copy).unwrap();
            pins.copy_out(&copy, &mut seen).unwrap();
            assert!(is_whole(&seen), "{seen:?}");
        }
    });
}

/// The last word of a copy from memory may be the flag of all before it, as that of a copy
/// from a slice may: also where the blocks of the copy cross lines of the cache.
#[test]
fn the_last_word_of_a_copy_is_seen_last() {
    const WORDS: usize = 32;
    let rounds: u64 = if cfg!(miri) { 5 } else { 50_000 };
    let (from, to) = (Piece::private(WORDS * 8), Piece::private(WORDS * 8 + 64));
    for at in [0, 8, 56] {
        let flag = at + WORDS as u64 * 8 - 8;
        to.copy_in(0, &[0; WORDS * 8 + 64]).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=rounds {
                    for word in 0..WORDS as u64 {
                        from.store(word * 8, round).unwrap();
                    }
                    to.copy_from(at, &from, 0..WORDS as u64 * 8).unwrap();
                }
            });
            let mut seen = 0;
            while seen < rounds {
                seen = to.load(flag).unwrap();
                for word in 0..WORDS as u64 - 1 {
                    let found = to.load(at + word * 8).unwrap();
                    assert!(found >= seen, "word {word} holds {found}, and the flag {seen}");
                }
            }
        });
    }
}
