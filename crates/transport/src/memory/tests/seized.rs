//! Moments at which nobody has a region pinned, and what is on loan.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use landfall_placement::{RegionId, WordFunction, WordOp, WordWidth};

use super::memory::{AccessError, Loans, Memory, Pins, Regions, Rights, TakeBackError};

fn lent(regions: &Regions) -> RegionId {
    regions.lend(Memory::zeroed(4096), Rights::ALL).unwrap()
}

#[test]
fn what_is_pinned_is_not_seized_and_what_is_seized_waits() {
    let regions = Regions::new(4);
    let id = lent(&regions);
    let mut pins = Pins::new(&regions);
    pins.copy_in(&id.span(0, 5), b"hello").unwrap();
    assert!(regions.seize(id).unwrap().is_none(), "it is pinned");
    pins.release();
    let seized = regions.seize(id).unwrap().unwrap();
    assert!(regions.seize(id).unwrap().is_none(), "it is seized");
    let (done, waiting) = (Arc::new(AtomicBool::new(false)), regions.clone());
    let flag = Arc::clone(&done);
    let writer = thread::spawn(move || {
        waiting.write(&id.span(0, 5), b"there").unwrap();
        flag.store(true, Ordering::Release);
    });
    thread::sleep(Duration::from_millis(5));
    assert!(!done.load(Ordering::Acquire), "it has to wait");
    drop(seized);
    writer.join().unwrap();
    assert_eq!(&regions.take_back(id).unwrap()[..5], b"there");
}

#[test]
fn a_stale_name_seizes_nothing() {
    let regions = Regions::new(4);
    let id = lent(&regions);
    assert!(matches!(regions.seize(RegionId::new(99, 1)), Err(AccessError::Unknown(_))));
    regions.revoke(id).unwrap();
    assert!(matches!(regions.seize(id), Err(AccessError::Revoked(_))));
    regions.take_back(id).unwrap();
    assert!(matches!(regions.seize(id), Err(AccessError::Stale(_))));
}

#[test]
fn a_region_that_is_revoked_while_it_is_seized_is_given_back_after() {
    let regions = Regions::new(4);
    let id = lent(&regions);
    let seized = regions.seize(id).unwrap().unwrap();
    let in_use = regions.try_take_back(id);
    assert!(matches!(in_use, Err(TakeBackError::StillInUse { .. })));
    let table = regions.clone();
    let waiting = thread::spawn(move || table.take_back(id).unwrap().len());
    thread::sleep(Duration::from_millis(5));
    drop(seized);
    assert_eq!(waiting.join().unwrap(), 4096);
}

#[test]
fn what_is_on_loan_is_read_but_not_written() {
    let regions = Regions::new(4);
    // The words of any memory that outlives the region; here it is heap.
    let memory: Arc<[std::sync::atomic::AtomicU64]> = (0..1024).map(|_| 0u64.into()).collect();
    let loans = Arc::new(Loans::new(2, 4096));
    // Of all the words, not of the first alone.
    let base = NonNull::from(&*memory).cast();
    let owner = Arc::new((memory, Arc::clone(&loans)));
    // SAFETY: 8192 bytes that start at a multiple of eight, kept by the owner as
    // the loans are, and used through the region only.
    let id = unsafe {
        regions.lend_with_loans((base, 8192), Rights::ALL, NonNull::from(&*loans), owner)
    }
    .unwrap();
    let mut pins = Pins::new(&regions);
    let word = |offset| WordOp {
        region: id,
        offset,
        width: WordWidth::Eight,
        function: WordFunction::Add(1),
    };
    assert!(loans.lend(1));
    for span in [id.span(4096, 1), id.span(8191, 1), id.span(4000, 97), id.span(0, 8192)] {
        let bytes = vec![1; span.len as usize];
        assert_eq!(pins.copy_in(&span, &bytes), Err(AccessError::OnLoan(span)));
        assert_eq!(pins.resolve(&span, Rights::WRITE), Err(AccessError::OnLoan(span)));
        assert!(pins.resolve(&span, Rights::READ).is_ok());
    }
    assert!(matches!(pins.word(&word(4096)), Err(AccessError::OnLoan(_))));
    assert_eq!(pins.word(&word(4088)), Ok(0));
    pins.copy_in(&id.span(0, 4096), &[1; 4096]).unwrap();
    let beyond = id.span(8000, 200);
    assert!(matches!(pins.resolve(&beyond, Rights::WRITE), Err(AccessError::OutOfBounds { .. })));
    loans.end(1);
    pins.copy_in(&id.span(4000, 97), &[1; 97]).unwrap();
    drop(pins);
    assert!(matches!(regions.take_back(id), Err(TakeBackError::Shared(_))));
    regions.take_back_shared(id, Duration::ZERO).unwrap();
}
