//! Memory of the application: alignment, splitting, and what cannot be had.

use crate::memory::{Memory, OutOfMemory, Pins, Regions, Rights};

#[test]
fn memory_starts_on_a_line_and_long_memory_on_a_page() {
    for (len, align) in [(0, 64), (1, 64), (4095, 64), (4096, 4096), (10_001, 4096)] {
        let memory = Memory::zeroed(len);
        assert_eq!((memory.len(), memory.as_ptr().align_offset(align)), (len, 0));
        assert!(memory.iter().all(|byte| *byte == 0));
    }
}

#[test]
fn more_than_there_can_be_is_an_error() {
    for len in [usize::MAX, usize::MAX - 63, isize::MAX as usize] {
        assert_eq!(Memory::try_zeroed(len).unwrap_err(), OutOfMemory { len });
    }
}

#[test]
fn parts_of_split_memory_are_lent_apart() {
    let bytes: Vec<u8> = (0..=199).collect();
    let (first, second) = Memory::from_bytes(&bytes).split_at(128).unwrap();
    assert_eq!((&first[..], &second[..]), (&bytes[..128], &bytes[128..]));
    let regions = Regions::new(1);
    let id = regions.lend(first, Rights::ALL).unwrap();
    let mut pins = Pins::new(&regions);
    pins.copy_in(&id.span(127, 1), b"!").unwrap();
    assert!(pins.copy_in(&id.span(128, 1), b"!").is_err(), "that is the other part");
    assert_eq!(&second[..], &bytes[128..]);
    drop(second);
    pins.release();
    assert_eq!(regions.take_back(id).unwrap()[127], b'!');
}

#[test]
fn memory_that_cannot_be_split_there_comes_back_whole() {
    for at in [1, 63, 65, 192, 201, usize::MAX] {
        let mut memory = Memory::zeroed(100);
        memory[99] = 7;
        let refused = memory.split_at(at).unwrap_err();
        assert!(refused.to_string().contains("multiple of 64"), "{refused}");
        assert_eq!(refused.into_memory()[99], 7);
    }
    let (none, all) = Memory::zeroed(128).split_at(0).unwrap();
    assert_eq!((none.len(), all.len()), (0, 128));
    let (all, none) = all.split_at(128).unwrap();
    assert_eq!((all.len(), none.len()), (128, 0));
}
