//! Parts that are read while others are written.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::super::{AccessError, LendRefusal, LentParts, Memory, Regions, Rights, TakeBackError};

const PART: usize = 256;

fn parts(regions: &Regions, len: usize) -> LentParts {
    LentParts::lend(regions, Memory::zeroed(len), PART, Rights::READ | Rights::WRITE).unwrap()
}

#[test]
fn what_is_read_is_not_written_and_all_else_is() {
    let regions = Regions::new(4);
    let parts = parts(&regions, 3 * PART + 10);
    assert_eq!(parts.count(), 4);
    let region = parts.region();
    regions.write(&region.span(PART as u64, 3), b"abc").unwrap();
    let guard = parts.read(1).unwrap();
    assert_eq!((guard.len(), &guard[..3]), (PART, &b"abc"[..]));
    for (at, len) in [(PART, 1), (2 * PART - 1, 1), (PART - 1, 2), (0, 3 * PART)] {
        let span = region.span(at as u64, len as u32);
        assert_eq!(regions.write(&span, &vec![1; len]), Err(AccessError::OnLoan(span)));
    }
    regions.write(&region.span(2 * PART as u64, 3), b"xyz").unwrap();
    let (again, beyond) = (parts.read(1), parts.read(4));
    assert!(matches!(again, Err(TakeBackError::Access(AccessError::OnLoan(_)))));
    assert!(matches!(beyond, Err(TakeBackError::Access(AccessError::OutOfBounds { .. }))));
    assert_eq!(parts.read(3).unwrap().len(), 10, "the last is shorter");
    // It is as it was, and can be written again.
    assert_eq!(&guard[..4], b"abc\0");
    drop(guard);
    regions.write(&region.span(PART as u64, 3), b"ABC").unwrap();
    assert_eq!(&parts.read(1).unwrap()[..3], b"ABC");
}

#[test]
fn a_part_that_somebody_has_pinned_is_not_read() {
    let regions = Regions::new(4);
    let parts = parts(&regions, PART);
    let pinned = regions.pin(parts.region()).unwrap();
    assert!(matches!(parts.read(0), Err(TakeBackError::StillInUse { .. })));
    drop(pinned);
    assert!(parts.read(0).is_ok());
}

#[test]
fn a_guard_keeps_its_bytes_when_the_grant_has_ended() {
    let regions = Regions::new(4);
    let parts = parts(&regions, PART);
    let region = parts.region();
    regions.write(&region.span(0, 3), b"abc").unwrap();
    let guard = parts.read(0).unwrap();
    drop(parts);
    assert!(regions.write(&region.span(0, 1), b"!").is_err());
    assert_eq!(&guard[..3], b"abc");
    assert_eq!(regions.held(), 0);
}

#[test]
fn parts_that_would_share_a_word_are_refused() {
    let regions = Regions::new(4);
    for part in [0, 1, 63, 100] {
        let refused = LentParts::lend(&regions, Memory::zeroed(1024), part, Rights::ALL);
        assert_eq!(refused.unwrap_err(), LendRefusal::BadPart(part));
    }
}

/// A writer on another thread never changes what is being read.
#[test]
fn nobody_writes_what_is_read() {
    let regions = Regions::new(4);
    let parts = parts(&regions, 2 * PART);
    let is_over = AtomicBool::new(false);
    let rounds = if cfg!(miri) { 20 } else { 2_000 };
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut fill = 0u8;
            while !is_over.load(Ordering::Relaxed) {
                fill = fill.wrapping_add(1);
                for at in [0, PART as u64] {
                    let _ = regions.write(&parts.region().span(at, PART as u32), &[fill; PART]);
                }
            }
        });
        for round in 0..rounds {
            // The writer has it pinned for all of the time, on one processor.
            let Ok(guard) = parts.read(round % 2) else { continue };
            let first = guard[0];
            assert!(guard.iter().all(|byte| *byte == first), "it was written meanwhile");
            let before = guard.to_vec();
            thread::yield_now();
            assert!(*guard == before[..], "it was written meanwhile");
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
