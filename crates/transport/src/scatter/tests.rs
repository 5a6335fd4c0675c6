//! The lists and their memory, with bytes scattered by hand where the kernel would.

use landfall_placement::{RegionId, Span};

use super::{Descriptor, FRAME_MAX, HEAD_SLOT, PostError, Posted};
use crate::memory::{AccessError, Memory, Regions, Rights, TakeBackError};

const PAGE: u32 = 4096;

/// A table with some pages, and a list of as many descriptors.
fn posted(slots: usize) -> (Regions, RegionId, Posted) {
    let regions = Regions::new(8);
    let pages = Memory::zeroed(slots * PAGE as usize);
    let pages = regions.lend(pages, Rights::READ | Rights::WRITE).unwrap();
    let posted = Posted::new(&regions, slots).unwrap();
    (regions, pages, posted)
}

/// Does what the kernel does with frames.
fn arrive(posted: &mut Posted, frames: &[&[u8]]) {
    // SAFETY: what they name is written below, and nothing else.
    let headers = unsafe { posted.headers() };
    assert!(frames.len() <= headers.len(), "the kernel takes no more than are posted");
    for (header, frame) in headers.iter_mut().zip(frames) {
        let mut rest = *frame;
        for nth in 0..header.msg_hdr.msg_iovlen {
            // SAFETY: a posted header names this many pieces.
            let piece = unsafe { *header.msg_hdr.msg_iov.add(nth) };
            let (bytes, behind) = rest.split_at(rest.len().min(piece.iov_len));
            if !bytes.is_empty() {
                // SAFETY: a posted piece has room for this many bytes, and
                // nobody has a reference to them.
                unsafe { piece.iov_base.cast::<u8>().copy_from(bytes.as_ptr(), bytes.len()) };
            }
            rest = behind;
        }
        header.msg_len = (frame.len() - rest.len()) as u32;
        header.msg_hdr.msg_flags = if rest.is_empty() { 0 } else { libc::MSG_TRUNC };
    }
    posted.came(frames.len());
}

fn bytes(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + salt * 31) as u8).collect()
}

/// Puts a frame together again from the places where its parts are.
fn gathered(posted: &mut Posted, slot: u16, descriptor: &Descriptor) -> Vec<u8> {
    let spill = posted.spill();
    let (lens, memory) = posted.burst();
    let len = lens[usize::from(slot)];
    let mut frame = memory.head(slot).to_vec();
    let in_place = descriptor.place.split_at(len - frame.len() as u32).0;
    let spilled = len - frame.len() as u32 - in_place.len;
    for span in [in_place, spill.span(u64::from(slot) * u64::from(FRAME_MAX), spilled)] {
        let mut part = vec![0; span.len as usize];
        memory.read(&span, &mut part).unwrap();
        frame.extend(part);
    }
    frame
}

#[test]
fn every_byte_of_a_frame_is_where_its_descriptor_says() {
    let (_, pages, mut posted) = posted(3);
    let lengths = [1, 33, 34, 35, 100, 1513, 1514, 1515, 3000];
    for (salt, len) in lengths.into_iter().enumerate() {
        let places = [(34, 1480), (0, 0), (256, 7)].into_iter().zip(0..);
        let list: [Descriptor; 3] = core::array::from_fn(|nth| {
            let ((head_len, place), page) = places.clone().nth(nth).unwrap();
            Descriptor { head_len, place: pages.span(page * u64::from(PAGE), place) }
        });
        posted.post(list).unwrap();
        let frames: [Vec<u8>; 3] = core::array::from_fn(|nth| bytes(len, salt + nth));
        arrive(&mut posted, &frames.each_ref().map(|frame| &frame[..]));
        assert_eq!(posted.lens(), [len as u32; 3]);
        for (slot, (descriptor, frame)) in list.iter().zip(&frames).enumerate() {
            let head = len.min(usize::from(descriptor.head_len));
            assert_eq!(posted.head(slot as u16), &frame[..head]);
            assert_eq!(gathered(&mut posted, slot as u16, descriptor), *frame, "{len} {slot}");
        }
    }
}

#[test]
fn copies_go_from_anywhere_to_a_region() {
    let (_, pages, mut posted) = posted(2);
    let frame = bytes(2500, 3);
    let place = pages.span(100, 1000);
    posted.post([Descriptor { head_len: 200, place }]).unwrap();
    arrive(&mut posted, &[&frame]);
    let (heads, spill, to) = (posted.heads(), posted.spill(), pages.span(4096, 2500));
    let mut memory = posted.memory();
    let parts = [heads.span(0, 200), place, spill.span(0, 1300)];
    let mut rest = to;
    for part in parts {
        let (target, behind) = rest.split_at(part.len);
        memory.copy(&part, &target).unwrap();
        rest = behind;
    }
    let mut copied = vec![0; 2500];
    memory.read(&to, &mut copied).unwrap();
    assert_eq!(copied, frame);
    assert_eq!(memory.bytes_copied(), 2500);
}

#[test]
fn slots_are_read_only_and_known_to_nobody_else() {
    let (regions, pages, mut posted) = posted(1);
    let (head, page) = (posted.heads().span(0, 8), pages.span(0, 8));
    let beyond = posted.heads().span(u64::from(HEAD_SLOT) - 7, 8);
    let mut memory = posted.memory();
    let forbidden = AccessError::Forbidden {
        region: head.region,
        needed: Rights::WRITE,
        granted: Rights::READ,
    };
    assert_eq!(memory.copy(&page, &head), Err(forbidden));
    assert_eq!(memory.write(&head, &[0; 8]), Err(forbidden));
    let out_of_bounds = AccessError::OutOfBounds { span: beyond, len: u64::from(HEAD_SLOT) };
    assert_eq!(memory.copy(&beyond, &page), Err(out_of_bounds));
    let never = Span { offset: u64::MAX, ..head };
    assert!(matches!(memory.read(&never, &mut [0; 8]), Err(AccessError::OutOfBounds { .. })));
    let short = AccessError::WrongLength { span: head, buffer: 7 };
    assert_eq!(memory.read(&head, &mut [0; 7]), Err(short));
    assert!(matches!(
        regions.read(&head, &mut [0; 8]),
        Err(AccessError::OutOfBounds { len: 0, .. })
    ));
    drop(posted);
    assert_eq!(regions.held(), 1, "the names went with the slots");
}

#[test]
fn what_is_posted_cannot_be_taken_back() {
    let (regions, pages, mut posted) = posted(1);
    posted.post([Descriptor { head_len: 34, place: pages.span(0, 100) }]).unwrap();
    assert!(matches!(regions.try_take_back(pages), Err(TakeBackError::StillInUse { .. })));
    // Revoked by now, but good memory until the list is given up.
    arrive(&mut posted, &[&bytes(134, 1)]);
    posted.release();
    let memory = regions.take_back(pages).unwrap();
    assert_eq!(memory[..100], bytes(134, 1)[34..]);
    let stale = posted.post([Descriptor { head_len: 34, place: pages.span(0, 100) }]);
    assert_eq!(stale, Err(PostError::Place { nth: 0, why: AccessError::Stale(pages) }));
    assert!(posted.posted() == 0, "nothing is posted");
}

#[test]
fn wrong_lists_are_refused() {
    let (_, pages, mut posted) = posted(2);
    let good = Descriptor { head_len: 256, place: pages.span(0, 1) };
    assert_eq!(posted.post([good, good]), Ok(2));
    let long = Descriptor { head_len: 257, ..good };
    let too_long = PostError::HeadTooLong { nth: 1, head_len: 257 };
    assert_eq!(posted.post([good, long]), Err(too_long));
    assert!(posted.posted() == 0, "nothing is posted");
    assert_eq!(posted.post([]), Ok(0));
    assert!(posted.posted() == 0);
}

#[test]
fn a_list_is_used_up_by_a_burst_and_not_by_silence() {
    let (_, _, mut posted) = posted(2);
    let nothing = Descriptor { head_len: 256, place: Span::default() };
    posted.post([nothing, nothing]).unwrap();
    arrive(&mut posted, &[&bytes(300, 1), &bytes(10, 2)]);
    assert_eq!(posted.lens(), [300, 10]);
    assert!(posted.posted() == 0);
    posted.post([nothing, nothing]).unwrap();
    arrive(&mut posted, &[]);
    assert!(posted.lens().is_empty() && posted.head(0).is_empty() && posted.head(1).is_empty());
    assert_eq!(posted.posted(), 2, "still posted");
}

#[test]
fn a_frame_that_was_cut_short_is_none() {
    let (_, _, mut posted) = posted(2);
    let nothing = Descriptor { head_len: 256, place: Span::default() };
    posted.post([nothing, nothing]).unwrap();
    let whole = bytes(FRAME_MAX as usize + 256, 1);
    arrive(&mut posted, &[&[&whole[..], &[1]].concat(), &whole]);
    assert_eq!(posted.lens(), [0, whole.len() as u32]);
    assert!(posted.head(0).is_empty());
    assert_eq!(gathered(&mut posted, 1, &nothing), whole);
}

#[test]
fn an_untried_descriptor_is_not_a_frame_that_was_cut_short() {
    let (_, _, mut posted) = posted(2);
    let nothing = Descriptor { head_len: 256, place: Span::default() };
    posted.post([nothing, nothing]).unwrap();
    // SAFETY: the kernel's answers are noted, and nothing that they name.
    let headers = unsafe { posted.headers() };
    for (header, (len, flags)) in headers.iter_mut().zip([(0, 0), (60, libc::MSG_TRUNC)]) {
        (header.msg_len, header.msg_hdr.msg_flags) = (len, flags);
    }
    let burst = posted.came(2);
    assert_eq!((burst.frames, burst.cut_short), (1, 1));
    assert_eq!(posted.lens(), [0, 0]);
}

#[cfg(feature = "io-uring")]
#[test]
fn memory_that_the_kernel_may_still_write_is_never_used_again() {
    if cfg!(miri) {
        // It stays for good, which Miri would call a leak.
        return;
    }
    let (regions, pages, mut posted) = posted(1);
    let descriptor = Descriptor { head_len: 34, place: pages.span(0, 100) };
    posted.post([descriptor]).unwrap();
    let (head, spill) = (posted.heads().span(0, 1), posted.spill().span(0, 1));
    posted.abandon();
    assert_eq!(posted.post([descriptor]), Ok(0));
    for span in [head, spill] {
        let read = posted.memory().read(&span, &mut [0]);
        assert!(matches!(read, Err(AccessError::OutOfBounds { len: 0, .. })));
    }
    posted.release();
    assert!(matches!(regions.try_take_back(pages), Err(TakeBackError::StillInUse { .. })));
}

#[test]
fn no_more_is_posted_than_makes_sense() {
    let (_, _, mut posted) = posted(100);
    let list = || std::iter::repeat(Descriptor { head_len: 9, place: Span::default() });
    let frame: &[u8] = &[1; 9];
    // Twice as many as came, between sixteen and the number of slots.
    let mut worth = 16;
    for came in [1, 10, 20, 40, 80, 100, 0, 100, 3, 1] {
        assert_eq!(posted.post(list()), Ok(worth), "before {came} came");
        let came = came.min(worth);
        arrive(&mut posted, &vec![frame; came]);
        worth = if came == 0 { worth } else { (2 * came).clamp(16, 100) };
    }
}
