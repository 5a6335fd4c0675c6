//! The memory that frames lie in (UMEM): chunks of one length, each at any time
//! either this process's or the kernel's.

use std::io;
use std::sync::Arc;

use crate::memory::{HUGE_PAGE, Mapping};

/// In front of each frame that it receives the kernel leaves so much room
/// (`XDP_PACKET_HEADROOM`).
const HEADROOM: u32 = 256;

/// The memory of all frames of a socket.
#[derive(Debug)]
pub(super) struct Frames {
    mapping: Arc<Mapping>,
    chunk: u32,
    /// Chunks whose frames may be written, to be sent.
    free: Vec<u64>,
    /// This many of those there are.
    most: usize,
}

impl Frames {
    /// Memory for this many frames each way, in chunks of this length. The first
    /// half is for what comes, the rest for what leaves.
    pub(super) fn new(each_way: u32, chunk: u32) -> io::Result<Self> {
        let half = u64::from(each_way) * u64::from(chunk);
        let len = usize::try_from(2 * half).map_err(io::Error::other)?;
        let mapping = Arc::new(Mapping::anonymous(len.next_multiple_of(HUGE_PAGE), true)?);
        // The lowest last, so that they are taken in order.
        let free: Vec<u64> =
            (0..each_way).rev().map(|n| half + u64::from(n) * u64::from(chunk)).collect();
        let most = free.len();
        Ok(Self { mapping, chunk, free, most })
    }

    /// How the kernel is told of it.
    pub(super) fn registration(&self) -> libc::xdp_umem_reg {
        libc::xdp_umem_reg {
            addr: self.mapping.base().as_ptr() as u64,
            len: self.mapping.len() as u64,
            chunk_size: self.chunk,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        }
    }

    /// How much of a frame that comes lies in one chunk.
    pub(super) const fn received_in_one(chunk: u32) -> u32 {
        chunk - HEADROOM
    }

    /// The memory of all frames.
    pub(super) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// How much of it, from its start on, is for frames that come.
    pub(super) fn received_len(&self) -> usize {
        self.most * self.chunk as usize
    }

    /// How long a chunk is.
    pub(super) const fn chunk(&self) -> u32 {
        self.chunk
    }

    /// The chunk that an address is in.
    pub(super) fn chunk_of(&self, address: u64) -> u64 {
        address - address % u64::from(self.chunk)
    }

    /// Are there this many chunks to be written?
    pub(super) fn has(&self, chunks: usize) -> bool {
        self.free.len() >= chunks
    }

    /// Takes a chunk to write a frame to.
    pub(super) fn take(&mut self) -> Option<u64> {
        self.free.pop()
    }

    /// A frame was sent. What is no chunk of those that leave is not believed.
    pub(super) fn give_back(&mut self, address: u64) {
        let chunk = self.chunk_of(address);
        if chunk < self.mapping.len() as u64 && self.free.len() < self.most {
            self.free.push(chunk);
        }
    }

    /// The bytes that a descriptor names, if they lie within one chunk.
    ///
    /// # Safety
    /// They are this process's: the kernel has handed them over and does not
    /// have them back, and nobody writes them while the slice lives.
    pub(super) unsafe fn received(&self, address: u64, len: u32) -> Option<&[u8]> {
        let (at, len) = self.checked(address, len)?;
        // SAFETY: within the mapping, initialised by the kernel at the latest
        // when it made the pages; the caller vouches for the rest.
        Some(unsafe { std::slice::from_raw_parts(self.mapping.base().add(at).as_ptr(), len) })
    }

    /// The bytes of a chunk that was taken.
    ///
    /// # Safety
    /// It was taken, and not yet handed to the kernel.
    pub(super) unsafe fn writable(&mut self, chunk: u64, len: u32) -> Option<&mut [u8]> {
        let (at, len) = self.checked(chunk, len)?;
        // SAFETY: within the mapping, initialised when the pages were made;
        // the caller vouches that nobody else uses them, and `self` is borrowed.
        Some(unsafe { std::slice::from_raw_parts_mut(self.mapping.base().add(at).as_ptr(), len) })
    }

    fn checked(&self, address: u64, len: u32) -> Option<(usize, usize)> {
        let end = (address % u64::from(self.chunk)) + u64::from(len);
        let within = end <= u64::from(self.chunk)
            && address.checked_add(u64::from(len))? <= self.mapping.len() as u64;
        within.then_some((usize::try_from(address).ok()?, len as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_taken_once_and_come_back() {
        let mut frames = Frames::new(4, 2048).unwrap();
        let taken: Vec<u64> = std::iter::from_fn(|| frames.take()).collect();
        assert_eq!(taken, [8192, 10_240, 12_288, 14_336]);
        assert!(!frames.has(1));
        for address in taken {
            frames.give_back(address + 7);
        }
        assert!(frames.has(4) && !frames.has(5));
        frames.give_back(8192);
        assert!(!frames.has(5), "there are no more than there were");
    }

    #[test]
    fn nothing_outside_of_a_chunk_is_read() {
        let frames = Frames::new(4, 2048).unwrap();
        let len = frames.mapping.len() as u64;
        let is_there = |address, len| {
            // SAFETY: the kernel knows nothing of this memory, and nobody writes it.
            unsafe { frames.received(address, len) }.is_some()
        };
        assert!(is_there(0, 2048) && is_there(2048 + 256, 1792) && is_there(len - 1, 1));
        for (address, len) in
            [(1, 2048), (2047, 2), (len, 0), (len, 1), (len - 1, 2), (u64::MAX, 1), (u64::MAX, 0)]
        {
            let nothing_there = len == 0 && address == frames.mapping.len() as u64;
            assert!(!is_there(address, len) || nothing_there, "{len} at {address}");
        }
    }
}
