//! The blocks of a ring: each at any time either the kernel's or this process's.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use landfall_placement::{RegionId, Span};
use socket2::Socket;

use super::heard::HeardFrames;
use crate::memory::{LendRefusal, Mapping, Regions, Rights};

/// Where the words of a block's header are (`struct tpacket_block_desc`).
const STATUS: usize = 8;
const FRAME_COUNT: usize = 12;
const FIRST_FRAME: usize = 16;

/// The memory of a ring, which it and its blocks have in common.
pub(super) struct Shared {
    socket: Socket,
    mapping: Arc<Mapping>,
    block_size: usize,
    station: [u8; 6],
    regions: Regions,
    region: RegionId,
    /// Blocks that were taken and not dropped.
    held: Box<[AtomicBool]>,
    cut: AtomicU64,
}

impl Shared {
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
        Ok(Self { socket, mapping, block_size, station, regions, region, held, cut })
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
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
        self.held.iter().filter(|held| held.load(Ordering::Relaxed)).count()
    }

    pub(super) fn cut(&self) -> u64 {
        self.cut.load(Ordering::Relaxed)
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

impl Drop for Shared {
    fn drop(&mut self) {
        // Who still has the region pinned keeps the memory mapped, which is all
        // that it needs; the grant ends in any case.
        let _ = self.regions.take_back_shared(self.region, Duration::ZERO);
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
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
    shared: Arc<Shared>,
    index: usize,
    frames: u32,
    first: u32,
}

impl Block {
    /// Takes a block, if the kernel has handed it over and nobody holds it.
    pub(super) fn take(shared: &Arc<Shared>, index: usize) -> Option<Self> {
        // In this order: who drops a block gives it to the kernel first.
        if shared.is_held(index) {
            return None;
        }
        let status = shared.header(index, STATUS).load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        shared.held[index].store(true, Ordering::Relaxed);
        let word = |at| shared.header(index, at).load(Ordering::Relaxed);
        let (frames, first) = (word(FRAME_COUNT), word(FIRST_FRAME));
        Some(Self { shared: Arc::clone(shared), index, frames, first })
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
    /// where a header makes no sense.
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

#[cfg(test)]
mod tests;
