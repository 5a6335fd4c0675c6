//! Blocks in memory that a test fills as the kernel would.

use std::os::fd::{AsFd, OwnedFd};

use socket2::{Domain, Type};

use super::*;

const SIZE: usize = 4096;
const FIRST: usize = 48;

fn ring_of_two() -> (Arc<Shared>, Regions) {
    let file = crate::memory::SharedMemory::create("ring", 2 * SIZE as u64).unwrap();
    let fd: OwnedFd = file.fd().try_clone_to_owned().unwrap();
    let mapping = Arc::new(Mapping::shared_at(fd.as_fd(), 0, 2 * SIZE).unwrap());
    let regions = Regions::new(4);
    // Any socket: nobody asks it for anything.
    let socket = Socket::new(Domain::UNIX, Type::DGRAM, None).unwrap();
    (Arc::new(Shared::new(socket, mapping, SIZE, [2; 6], &regions).unwrap()), regions)
}

/// Writes a word of a block, as the kernel does.
fn write(shared: &Shared, block: usize, at: usize, word: u32) {
    assert!(at.is_multiple_of(4) && at < SIZE);
    shared.header(block, at).store(word, Ordering::Relaxed);
}

/// Puts frames of these lengths into a block and hands it over.
fn fill(shared: &Shared, block: usize, lens: &[u32]) {
    let mut at = FIRST;
    for len in lens {
        let next = 96 + len.next_multiple_of(16);
        for (nth, word) in [next, 0, 0, *len, *len, 0, 82].into_iter().enumerate() {
            write(shared, block, at + 4 * nth, word);
        }
        write(shared, block, at + 80, len.rotate_left(16));
        at += next as usize;
    }
    write(shared, block, FRAME_COUNT, lens.len() as u32);
    write(shared, block, FIRST_FRAME, FIRST as u32);
    shared.header(block, STATUS).store(libc::TP_STATUS_USER, Ordering::Release);
}

#[test]
fn blocks_go_back_in_any_order_and_are_not_taken_twice() {
    let (shared, _regions) = ring_of_two();
    assert!(Block::take(&shared, 0).is_none(), "it is the kernel's");
    fill(&shared, 0, &[60, 1514, 61]);
    fill(&shared, 1, &[]);
    let first = Block::take(&shared, 0).unwrap();
    let second = Block::take(&shared, 1).unwrap();
    assert_eq!(first.frames().map(|frame| frame.bytes.len()).collect::<Vec<_>>(), [60, 1514, 61]);
    assert!(Block::take(&shared, 0).is_none(), "it is held");
    assert_eq!((second.frames().count(), shared.held()), (0, 2));
    drop(second);
    assert!(Block::take(&shared, 1).is_none(), "it is the kernel's again");
    assert!(shared.is_held(0) && !shared.is_held(1));
    drop(first);
    fill(&shared, 0, &[64]);
    assert_eq!(Block::take(&shared, 0).unwrap().frames().count(), 1);
}

#[test]
fn a_span_names_the_bytes_of_its_frame() {
    let (shared, regions) = ring_of_two();
    fill(&shared, 1, &[60, 70]);
    let block = Block::take(&shared, 1).unwrap();
    for frame in block.frames() {
        let mut bytes = vec![0; frame.span.len as usize];
        regions.read(&frame.span, &mut bytes).unwrap();
        assert_eq!(bytes, frame.bytes);
        assert!(regions.write(&frame.span, &bytes).is_err(), "it is the kernel's to write");
    }
    let region = shared.region();
    drop(shared);
    assert!(regions.pin(region).is_ok(), "a block keeps the grant");
    drop(block);
    assert!(regions.pin(region).is_err());
    assert_eq!(regions.held(), 0);
}

#[test]
fn headers_that_make_no_sense_end_the_block() {
    let (shared, _regions) = ring_of_two();
    // The word of the first frame's header, what it says, and the frames left.
    for (word, value, left) in [
        (0, u32::MAX, 1),
        (0, SIZE as u32 - 4, 1),
        (3, u32::MAX, 0),
        (3, SIZE as u32, 0),
        (6, 0xffff, 0),
    ] {
        fill(&shared, 0, &[100, 100]);
        write(&shared, 0, FIRST + 4 * word, value);
        if word == 3 {
            write(&shared, 0, FIRST + 16, value);
        }
        let block = Block::take(&shared, 0).unwrap();
        assert_eq!(block.frames().count(), left, "word {word} says {value}");
    }
    fill(&shared, 0, &[100]);
    write(&shared, 0, FRAME_COUNT, u32::MAX);
    let block = Block::take(&shared, 0).unwrap();
    assert!(block.frames().count() < SIZE);
    drop(block);
    fill(&shared, 0, &[100]);
    write(&shared, 0, FIRST_FRAME, u32::MAX);
    assert_eq!(Block::take(&shared, 0).unwrap().frames().count(), 0);
}

#[test]
fn a_frame_that_was_cut_does_not_come_out_and_is_counted() {
    let (shared, _regions) = ring_of_two();
    fill(&shared, 0, &[100, 200, 300]);
    let second = FIRST + 96 + 112;
    write(&shared, 0, second + 16, 9000);
    let block = Block::take(&shared, 0).unwrap();
    let lens: Vec<_> = block.frames().map(|frame| frame.bytes.len()).collect();
    assert_eq!((lens, shared.cut()), (vec![100, 300], 1));
}
