//! Memory shared with another process.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use landfall_placement::{WordFunction, WordOp, WordWidth};

use crate::memory::{
    AccessError, LendRefusal, Pins, Regions, Rights, SharedMemory, SharedMemoryError, TakeBackError,
};

#[test]
fn two_mappings_see_the_same_bytes() {
    let ours = SharedMemory::create("two mappings", 5000).unwrap();
    let theirs = SharedMemory::from_fd(ours.fd().try_clone_to_owned().unwrap()).unwrap();
    assert_eq!((ours.len(), theirs.len()), (5000, 5000));
    ours.copy_in(4990, b"0123456789").unwrap();
    let mut bytes = [0; 12];
    theirs.copy_out(4988, &mut bytes).unwrap();
    assert_eq!(&bytes, b"\0\x000123456789");
    let add = |memory: &SharedMemory| memory.word(4, WordWidth::Four, WordFunction::Add(5));
    assert_eq!(add(&ours).unwrap(), 0);
    assert_eq!(add(&theirs).unwrap(), 5);
}

#[test]
fn two_processes_count_together() {
    const COUNT: u64 = 20_000;
    let memory = SharedMemory::create("counter", 64).unwrap();
    let count = |memory: &SharedMemory| {
        (0..COUNT).all(|_| {
            memory.word(8, WordWidth::Eight, WordFunction::Add(1)).is_ok()
                && memory.word(20, WordWidth::Four, WordFunction::Add(1)).is_ok()
        })
    };
    // SAFETY: the child only calls what a child of a process with threads
    // may: atomic operations, which allocate nothing, `alarm` and `_exit`.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            // SAFETY: as above; the alarm ends a child that hangs.
            unsafe { libc::alarm(30) };
            let good = count(&memory);
            // SAFETY: as above.
            unsafe { libc::_exit(i32::from(!good)) }
        }
        child => {
            assert!(count(&memory));
            let mut status = -1;
            // SAFETY: our child, and room for its status.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "the child counted to its end");
        }
    }
    let load = |offset, width| memory.word(offset, width, WordFunction::Load).unwrap();
    assert_eq!(load(8, WordWidth::Eight), 2 * COUNT);
    assert_eq!(load(20, WordWidth::Four), 2 * COUNT);
    assert_eq!(load(16, WordWidth::Four), 0, "the neighbour in the same word");
}

#[test]
fn shared_memory_is_lent_in_parts() {
    let regions = Regions::new(3);
    let memory = SharedMemory::create("parts", 4096).unwrap();
    let id = regions.lend_shared(&memory, 1000..1100, Rights::ALL).unwrap();
    let overlapping = regions.lend_shared(&memory, 1096..2000, Rights::READ).unwrap();
    let mut pins = Pins::new(&regions);
    pins.copy_in(&id.span(97, 3), b"end").unwrap();
    assert!(matches!(
        pins.copy_in(&id.span(98, 3), b"end"),
        Err(AccessError::OutOfBounds { len: 100, .. })
    ));
    let mut bytes = [0; 4];
    pins.copy_out(&overlapping.span(0, 4), &mut bytes).unwrap();
    assert_eq!(&bytes, b"\0end");
    memory.copy_out(1096, &mut bytes).unwrap();
    assert_eq!(&bytes, b"\0end");

    // The memory is its owner's all the time: what ends is the grant.
    assert_eq!(regions.take_back(id).unwrap_err(), TakeBackError::Shared(id));
    let busy = regions.take_back_shared(id, Duration::ZERO).unwrap_err();
    assert!(matches!(busy, TakeBackError::StillInUse { .. }));
    pins.release();
    regions.take_back_shared(id, Duration::ZERO).unwrap();
    let load =
        WordOp { region: id, offset: 0, width: WordWidth::Four, function: WordFunction::Load };
    assert_eq!(regions.word(&load), Err(AccessError::Stale(id)));
}

#[test]
fn a_region_keeps_shared_memory_mapped() {
    let regions = Regions::new(1);
    let memory = SharedMemory::create("kept", 64).unwrap();
    let id = regions.lend_shared(&memory, 0..64, Rights::ALL).unwrap();
    drop(memory);
    regions.write(&id.span(60, 4), b"kept").unwrap();
    let mut bytes = [0; 4];
    regions.read(&id.span(60, 4), &mut bytes).unwrap();
    assert_eq!(&bytes, b"kept");
}

#[test]
fn own_memory_is_not_taken_back_as_shared() {
    let regions = Regions::new(1);
    let id = regions.lend(crate::memory::Memory::zeroed(8), Rights::READ).unwrap();
    let error = regions.take_back_shared(id, Duration::ZERO).unwrap_err();
    assert_eq!(error, TakeBackError::NotShared(id));
    assert_eq!(regions.len(id), Ok(8), "the grant goes on");
}

#[test]
fn parts_that_cannot_be_are_refused() {
    let regions = Regions::new(1);
    let memory = SharedMemory::create("refused", 100).unwrap();
    let lend = |part: std::ops::Range<u64>| regions.lend_shared(&memory, part, Rights::READ);
    assert_eq!(lend(4..50), Err(LendRefusal::Misaligned(4)));
    #[expect(clippy::reversed_empty_ranges, reason = "that is what is refused")]
    for part in [0..101, 16..8, 200..200, 0..u64::MAX] {
        let out = LendRefusal::OutOfBounds { start: part.start, end: part.end, len: 100 };
        assert_eq!(lend(part), Err(out));
    }
    assert_eq!(regions.lend_shared(&memory, 0..8, Rights::NONE), Err(LendRefusal::NoRights),);
    assert_eq!(regions.held(), 0);
    lend(96..100).unwrap();
    assert_eq!(lend(0..8), Err(LendRefusal::TableFull { max: 1 }));
}

#[test]
fn what_cannot_be_shared_is_refused() {
    let refused = |result: Result<SharedMemory, SharedMemoryError>| result.unwrap_err();
    assert!(matches!(refused(SharedMemory::create("", 0)), SharedMemoryError::Empty));
    assert!(matches!(refused(SharedMemory::create("a\0b", 8)), SharedMemoryError::Name));
    let long = "n".repeat(250);
    assert!(matches!(refused(SharedMemory::create(&long, 8)), SharedMemoryError::Name));
    assert!(matches!(
        refused(SharedMemory::create("", u64::MAX)),
        SharedMemoryError::TooLong(u64::MAX)
    ));
    assert!(SharedMemory::create("", i64::MAX as u64).is_err());
    for not_memory in ["/dev/null", "/proc/self/exe", "/"] {
        let file = OwnedFd::from(File::open(not_memory).unwrap());
        let error = refused(SharedMemory::from_fd(file));
        assert!(matches!(error, SharedMemoryError::NotSealable), "{not_memory}: {error}");
    }
}

#[test]
fn a_peer_cannot_take_the_bytes_away() {
    let memory = SharedMemory::create("sealed", 8192).unwrap();
    // SAFETY: an open descriptor and a number.
    let result = unsafe { libc::ftruncate(memory.fd().as_raw_fd(), 0) };
    assert_eq!(result, -1);
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EPERM));
    memory.copy_in(8191, b"!").unwrap();
}

#[test]
fn bounds_and_alignment_are_checked() {
    let memory = SharedMemory::create("bounds", 12).unwrap();
    for (offset, len) in [(0, 13), (12, 1), (u64::MAX, 1), (u64::MAX - 3, 8)] {
        let mut bytes = vec![0; len];
        let write = memory.copy_in(offset, &bytes).unwrap_err();
        let read = memory.copy_out(offset, &mut bytes).unwrap_err();
        for error in [write, read] {
            assert!(matches!(error, SharedMemoryError::OutOfBounds { size: 12, .. }), "{error}");
        }
    }
    let word = |offset, width| memory.word(offset, width, WordFunction::Store(1));
    assert!(matches!(
        word(8, WordWidth::Eight),
        Err(SharedMemoryError::OutOfBounds { offset: 8, .. })
    ));
    assert!(matches!(word(4, WordWidth::Eight), Err(SharedMemoryError::Misaligned { .. })));
    assert!(matches!(word(2, WordWidth::Four), Err(SharedMemoryError::Misaligned { .. })));
    assert_eq!(word(8, WordWidth::Four).unwrap(), 0);
}
