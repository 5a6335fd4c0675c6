//! The blocks of a ring, each at any time either the kernel's or this process's, and the
//! frames in them: to be read where they lie, or as they were heard.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use landfall_placement::{RegionId, Span};
use socket2::Socket;

use super::tags::untag;
use crate::memory::{LendRefusal, Mapping, Regions, Rights};

/// Where the words of a block's header are (`struct tpacket_block_desc`).
const STATUS: usize = 8;
/// In the status of a block that was claimed: the kernel sets no such bit there.
const CLAIMED: u32 = 1 << 27;
const FRAME_COUNT: usize = 12;
const FIRST_FRAME: usize = 16;

/// The memory of a ring, which it and its blocks have in common.
pub(super) struct RingMemory {
    socket: Socket,
    mapping: Arc<Mapping>,
    block_size: usize,
    station: [u8; 6],
    regions: Regions,
    region: RegionId,
    /// Blocks that were taken and not dropped.
    held: Box<[AtomicBool]>,
    held_count: AtomicUsize,
    cut: AtomicU64,
    /// Frames have a tag in their bytes, and are to have none.
    is_tagged: bool,
}

impl RingMemory {
    /// Lends the memory of a ring that is divided into blocks of this size, a
    /// number of whole pages.
    pub(super) fn new(
        socket: Socket,
        mapping: Arc<Mapping>,
        block_size: usize,
        station: [u8; 6],
        regions: &Regions,
    ) -> Result<Self, LendRefusal> {
        let owner = Arc::clone(&mapping);
        // SAFETY: a mapping starts on a page; the slot keeps it. Without the
        // right to write nobody but the kernel does, and that only in blocks
        // that are its own, while references are made to bytes of others only.
        let lent =
            unsafe { regions.lend_mapped(mapping.base(), mapping.len(), Rights::READ, owner) };
        let held = (0..mapping.len() / block_size).map(|_| AtomicBool::new(false)).collect();
        let cut = AtomicU64::new(0);
        let (regions, region) = (regions.clone(), lent?);
        let held_count = AtomicUsize::new(0);
        let is_tagged = false;
        let memory = Self {
            socket,
            mapping,
            block_size,
            station,
            regions,
            region,
            held,
            held_count,
            cut,
            is_tagged,
        };
        Ok(memory)
    }

    /// Frames have a tag in their bytes, which is taken away with each block.
    pub(super) fn takes_tags_away(&mut self, is_tagged: bool) {
        self.is_tagged = is_tagged;
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    pub(super) const fn block_size(&self) -> usize {
        self.block_size
    }

    pub(super) fn blocks(&self) -> usize {
        self.held.len()
    }

    pub(super) fn region(&self) -> RegionId {
        self.region
    }

    pub(super) fn station(&self) -> [u8; 6] {
        self.station
    }

    pub(super) fn is_held(&self, block: usize) -> bool {
        self.held[block].load(Ordering::Acquire)
    }

    pub(super) fn held(&self) -> usize {
        self.held_count.load(Ordering::Relaxed)
    }

    pub(super) fn cut(&self) -> u64 {
        self.cut.load(Ordering::Relaxed)
    }

    /// Takes a block that is the kernel's away from it, and nobody holds it: it passes it by. One
    /// that it fills at this moment it hands over all the same.
    pub(super) fn claim(&self, block: usize) {
        let status = self.header(block, STATUS);
        let (kernel, claimed) = (libc::TP_STATUS_KERNEL, libc::TP_STATUS_USER | CLAIMED);
        let _ = status.compare_exchange(kernel, claimed, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Gives it back, if it was claimed.
    pub(super) fn unclaim(&self, block: usize) {
        let status = self.header(block, STATUS);
        let (kernel, claimed) = (libc::TP_STATUS_KERNEL, libc::TP_STATUS_USER | CLAIMED);
        let _ = status.compare_exchange(claimed, kernel, Ordering::Release, Ordering::Relaxed);
    }

    /// A word of a block's header. `at` is one of the constants above.
    fn header(&self, block: usize, at: usize) -> &AtomicU32 {
        let is_word = at.is_multiple_of(size_of::<AtomicU32>()) && at < self.block_size;
        assert!(block < self.blocks() && is_word, "no word at {at} of block {block}");
        // SAFETY: an aligned word of a block, and blocks are within the mapping;
        // both sides use it as an atomic.
        unsafe { self.mapping.base().add(block * self.block_size + at).cast().as_ref() }
    }
}

impl Drop for RingMemory {
    fn drop(&mut self) {
        // Who still has the region pinned keeps the memory mapped, which is all
        // that it needs; the grant ends in any case.
        let _ = self.regions.take_back_shared(self.region, Duration::ZERO);
    }
}

impl fmt::Debug for RingMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingMemory")
            .field("region", &self.region)
            .field("blocks", &self.blocks())
            .field("block_size", &self.block_size)
            .field("held", &self.held())
            .finish_non_exhaustive()
    }
}

/// A block of frames. It goes back to the kernel when it is dropped, and blocks
/// may go back in any order.
pub struct Block {
    shared: Arc<RingMemory>,
    index: usize,
    frames: u32,
    first: u32,
}

impl Block {
    /// Takes a block, if the kernel has handed it over and nobody holds it.
    pub(super) fn take(shared: &Arc<RingMemory>, index: usize) -> Option<Self> {
        // In this order: who drops a block gives it to the kernel first.
        if shared.is_held(index) {
            return None;
        }
        let status = shared.header(index, STATUS).load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 || status & CLAIMED != 0 {
            return None;
        }
        shared.held[index].store(true, Ordering::Relaxed);
        shared.held_count.fetch_add(1, Ordering::Relaxed);
        let word = |at| shared.header(index, at).load(Ordering::Relaxed);
        let (frames, first) = (word(FRAME_COUNT), word(FIRST_FRAME));
        let mut block = Self { shared: Arc::clone(shared), index, frames, first };
        if shared.is_tagged {
            block.take_tags_away();
        }
        Some(block)
    }

    /// Takes the tag of each frame away: its stations move up to what is behind the tag.
    fn take_tags_away(&mut self) {
        let (frames, first) = (self.frames, self.first as usize);
        let (start, len) = (self.index * self.shared.block_size, self.shared.block_size);
        let base = self.shared.mapping.base();
        // SAFETY: as in `bytes`, and the block was just taken: nobody has a reference to its
        // bytes yet, and the kernel reads none of them again. The ring is mapped to be written.
        let bytes = unsafe { std::slice::from_raw_parts_mut(base.add(start).as_ptr(), len) };
        untag(bytes, frames, first);
    }

    /// The frames, in the order in which they came.
    ///
    /// ```compile_fail,E0505
    /// # use landfall_transport::ring::Block;
    /// # fn read(block: Block) {
    /// let frame = block.frames().next();
    /// drop(block); // The kernel may write there again.
    /// println!("{frame:?}");
    /// # }
    /// ```
    #[must_use]
    pub fn frames(&self) -> Frames<'_> {
        Frames { block: self, left: self.frames, at: self.first as usize }
    }

    /// The frames as they were heard, whole or cut, with the time: for recording.
    #[must_use]
    pub fn heard(&self) -> HeardFrames<'_> {
        HeardFrames::new(self.bytes(), self.frames, self.first as usize)
    }

    /// How many frames the kernel put here.
    #[must_use]
    pub fn frame_count(&self) -> u32 {
        self.frames
    }

    /// Which block of the ring it is.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// The bytes that a span of the ring's region names; `None` if they are not all
    /// of this block.
    #[must_use]
    pub fn bytes_of(&self, span: &Span) -> Option<&[u8]> {
        let block_start = (self.index * self.shared.block_size) as u64;
        let start = usize::try_from(span.offset.checked_sub(block_start)?).ok()?;
        let end = start.checked_add(span.len as usize)?;
        let is_here = span.region == self.shared.region;
        self.bytes().get(start..end).filter(|_| is_here)
    }

    /// The bytes of the block.
    fn bytes(&self) -> &[u8] {
        let (start, len) = (self.index * self.shared.block_size, self.shared.block_size);
        // SAFETY: within the mapping, which the block keeps, and initialised by
        // the kernel when it made the pages. The kernel has handed the block
        // over and does not write to it before `drop` gives it back; nobody
        // else may write to the ring at all.
        unsafe { std::slice::from_raw_parts(self.shared.mapping.base().add(start).as_ptr(), len) }
    }

    /// Names bytes of the block.
    fn span(&self, bytes: &Range<usize>) -> Span {
        let start = self.index * self.shared.block_size + bytes.start;
        self.shared.region.span(start as u64, bytes.len() as u32)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let status = self.shared.header(self.index, STATUS);
        // All reads of the block come before it is the kernel's.
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.shared.held[self.index].store(false, Ordering::Release);
        self.shared.held_count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block")
            .field("index", &self.index)
            .field("frames", &self.frames)
            .finish_non_exhaustive()
    }
}

/// A frame that lies in a block, from its Ethernet header on.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Its bytes.
    pub bytes: &'a [u8],
    /// The same as a part of the ring's region: good while the block is held.
    pub span: Span,
    /// Its transport checksum is known to be right, or was never computed since
    /// the frame did not leave this machine.
    pub verified: bool,
}

/// The frames of a block.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    block: &'a Block,
    left: u32,
    at: usize,
}

impl<'a> Frames<'a> {
    /// The next frame, and whether all of it is there. None at the end, and
    /// where a header is invalid.
    fn step(&mut self) -> Option<(Frame<'a>, bool)> {
        self.left = self.left.checked_sub(1)?;
        let bytes = self.block.bytes();
        let header = Header::read(bytes.get(self.at..)?)?;
        let start = self.at + usize::from(header.frame_at);
        let range = start..start + header.here as usize;
        let frame = Frame {
            bytes: bytes.get(range.clone())?,
            span: self.block.span(&range),
            verified: header.status & (libc::TP_STATUS_CSUMNOTREADY | libc::TP_STATUS_CSUM_VALID)
                != 0,
        };
        // The last frame of a block has none behind it.
        self.left = if header.to_next == 0 { 0 } else { self.left };
        self.at += header.to_next as usize;
        Some((frame, header.here == header.len))
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Frame<'a>;

    fn next(&mut self) -> Option<Frame<'a>> {
        loop {
            let Some((frame, is_whole)) = self.step() else {
                self.left = 0;
                return None;
            };
            if is_whole {
                return Some(frame);
            }
            self.block.shared.cut.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.left as usize))
    }
}

/// What stands before each frame (`struct tpacket3_hdr`).
pub(super) struct Header {
    pub(super) to_next: u32,
    /// When it was heard, since 1970.
    pub(super) seconds: u32,
    pub(super) nanoseconds: u32,
    /// How much of the frame is here.
    pub(super) here: u32,
    /// How long it was.
    pub(super) len: u32,
    pub(super) status: u32,
    pub(super) frame_at: u16,
}

impl Header {
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let header: &[u8; 28] = bytes.first_chunk()?;
        let (words, _) = header.as_chunks::<4>();
        let [to_next, seconds, nanoseconds, here, len, status, [a, b, _, _]] = words else {
            return None;
        };
        Some(Self {
            to_next: u32::from_ne_bytes(*to_next),
            seconds: u32::from_ne_bytes(*seconds),
            nanoseconds: u32::from_ne_bytes(*nanoseconds),
            here: u32::from_ne_bytes(*here),
            len: u32::from_ne_bytes(*len),
            status: u32::from_ne_bytes(*status),
            frame_at: u16::from_ne_bytes([*a, *b]),
        })
    }
}

/// Where the kernel says how a frame came: behind `struct tpacket3_hdr`, in the
/// `sll_pkttype` of a `struct sockaddr_ll`.
const PACKET_TYPE: usize = 48 + 10;

/// A frame as it was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedFrame<'a> {
    /// Its first bytes, or all.
    pub bytes: &'a [u8],
    /// How long it was.
    pub len: u32,
    /// When, since the beginning of 1970.
    pub at: Duration,
    /// It left the interface here; others came in.
    pub is_leaving: bool,
}

/// The frames of a block, as they were heard.
#[derive(Clone, Debug)]
pub struct HeardFrames<'a> {
    block: &'a [u8],
    left: u32,
    at: usize,
}

impl<'a> HeardFrames<'a> {
    pub(super) const fn new(block: &'a [u8], frames: u32, first: usize) -> Self {
        Self { block, left: frames, at: first }
    }

    fn step(&mut self) -> Option<ReceivedFrame<'a>> {
        self.left = self.left.checked_sub(1)?;
        let here = self.block.get(self.at..)?;
        let header = Header::read(here)?;
        let start = usize::from(header.frame_at);
        let bytes = here.get(start..start + header.here as usize)?;
        let way = u32::from(*here.get(PACKET_TYPE)?);
        // The last frame of a block has none behind it.
        self.left = if header.to_next == 0 { 0 } else { self.left };
        self.at += header.to_next as usize;
        Some(ReceivedFrame {
            bytes,
            len: header.len,
            at: Duration::new(header.seconds.into(), header.nanoseconds.min(999_999_999)),
            is_leaving: way == u32::from(libc::PACKET_OUTGOING),
        })
    }
}

impl<'a> Iterator for HeardFrames<'a> {
    type Item = ReceivedFrame<'a>;

    /// The next one; none at the end, and where a header is invalid.
    fn next(&mut self) -> Option<ReceivedFrame<'a>> {
        let next = self.step();
        if next.is_none() {
            self.left = 0;
        }
        next
    }
}

/// Blocks in memory that a test fills as the kernel would.
#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use socket2::{Domain, Type};

    use super::super::frames::*;

    const SIZE: usize = 4096;
    const FIRST: usize = 48;

    fn ring_of_two() -> (Arc<RingMemory>, Regions) {
        let file = crate::memory::SharedMemory::create("ring", 2 * SIZE as u64).unwrap();
        let fd: OwnedFd = file.fd().try_clone_to_owned().unwrap();
        let mapping = Arc::new(Mapping::shared_at(fd.as_fd(), 0, 2 * SIZE).unwrap());
        let regions = Regions::new(4);
        // Any socket: nobody asks it for anything.
        let socket = Socket::new(Domain::UNIX, Type::DGRAM, None).unwrap();
        (Arc::new(RingMemory::new(socket, mapping, SIZE, [2; 6], &regions).unwrap()), regions)
    }

    /// Writes a word of a block, as the kernel does.
    fn write(shared: &RingMemory, block: usize, at: usize, word: u32) {
        assert!(at.is_multiple_of(4) && at < SIZE);
        shared.header(block, at).store(word, Ordering::Relaxed);
    }

    /// Puts frames of these lengths into a block and hands it over.
    fn fill(shared: &RingMemory, block: usize, lens: &[u32]) {
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
        assert_eq!(
            first.frames().map(|frame| frame.bytes.len()).collect::<Vec<_>>(),
            [60, 1514, 61]
        );
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
    fn a_block_that_was_claimed_is_passed_by_and_one_that_was_filled_meanwhile_is_not() {
        let (shared, _regions) = ring_of_two();
        (0..2).for_each(|block| shared.claim(block));
        assert!(Block::take(&shared, 0).is_none() && Block::take(&shared, 1).is_none());
        // The kernel was filling the second, and hands it over.
        fill(&shared, 1, &[60]);
        let second = Block::take(&shared, 1).unwrap();
        shared.claim(1);
        shared.unclaim(1);
        assert_eq!((second.frames().count(), shared.held()), (1, 1), "it is held, and stays so");
        drop(second);
        (0..2).for_each(|block| shared.unclaim(block));
        for block in 0..2 {
            assert!(Block::take(&shared, block).is_none(), "it is the kernel's");
            fill(&shared, block, &[61]);
            assert_eq!(Block::take(&shared, block).unwrap().frame_count(), 1);
        }
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
}
