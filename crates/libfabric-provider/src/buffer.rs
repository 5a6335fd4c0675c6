//! [`Buffer`]: memory of the program that an operation uses until it completes.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use landfall_transport::memory::MappedMemory;
use libc::iovec;

/// This many pieces an operation takes: `iov_limit`.
pub(crate) const MOST_PIECES: usize = 4;

/// Some bytes of the program.
#[derive(Clone, Copy, Debug)]
struct Piece {
    base: *mut u8,
    len: usize,
}

/// What an operation sends from, or receives into: up to four pieces of the program's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer {
    pieces: [Piece; MOST_PIECES],
    count: usize,
}

// SAFETY: addresses alone; who made it has promised that they may be used until the end of the
// operation, by whatever thread.
unsafe impl Send for Buffer {}
// SAFETY: nothing changes behind a shared reference but the program's bytes, which are the
// operation's until it completes.
unsafe impl Sync for Buffer {}

impl Buffer {
    const EMPTY: Piece = Piece { base: std::ptr::null_mut(), len: 0 };

    /// One piece.
    ///
    /// # Safety
    /// As long as this value or a copy of it is used there are `len` bytes at `base`, which may
    /// be read; they may be written if anything is written by way of this value. Nobody else
    /// writes them meanwhile, nor reads what is written.
    pub(crate) const unsafe fn new(base: *const c_void, len: usize) -> Self {
        let mut pieces = [Self::EMPTY; MOST_PIECES];
        pieces[0] = Piece { base: base.cast_mut().cast(), len };
        Self { pieces, count: 1 }
    }

    /// Several pieces; nothing where they are too many.
    ///
    /// # Safety
    /// `count` pieces are at `pieces`; what [`new`](Self::new) says holds for each of them.
    pub(crate) unsafe fn of_pieces(pieces: *const iovec, count: usize) -> Option<Self> {
        let mut buffer = Self { pieces: [Self::EMPTY; MOST_PIECES], count };
        if count > MOST_PIECES || (count > 0 && pieces.is_null()) {
            return None;
        }
        for (at, piece) in buffer.pieces.iter_mut().take(count).enumerate() {
            // SAFETY: the caller says that there are that many.
            let from = unsafe { *pieces.add(at) };
            *piece = Piece { base: from.iov_base.cast(), len: from.iov_len };
        }
        Some(buffer)
    }

    /// How many bytes there are.
    pub(crate) fn len(&self) -> usize {
        self.pieces().iter().map(|piece| piece.len).sum()
    }

    /// The address of the first, for completions that tell it.
    pub(crate) fn address(&self) -> usize {
        self.pieces[0].base as usize
    }

    fn pieces(&self) -> &[Piece] {
        &self.pieces[..self.count]
    }

    /// The bytes from `skip` on, `most` at most, piece by piece.
    pub(crate) fn read(&self, skip: usize, most: usize, mut each: impl FnMut(&[u8])) {
        for (base, len) in self.parts(skip, most) {
            // SAFETY: bytes of the program that the operation may read, and nobody writes.
            each(unsafe { std::slice::from_raw_parts(base, len) });
        }
    }

    /// The same to be written.
    pub(crate) fn write(&self, skip: usize, most: usize, mut each: impl FnMut(&mut [u8])) {
        for (base, len) in self.parts(skip, most) {
            // SAFETY: bytes of the program that are the operation's own until it completes.
            each(unsafe { std::slice::from_raw_parts_mut(base, len) });
        }
    }

    /// A copy of the first `most` bytes.
    pub(crate) fn to_vec(self, most: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(most.min(self.len()));
        self.read(0, most, |piece| bytes.extend_from_slice(piece));
        bytes
    }

    /// Writes `bytes` to the start, as many as there is room for.
    pub(crate) fn fill(&self, bytes: &[u8]) {
        let mut rest = bytes;
        self.write(0, bytes.len(), |piece| {
            let (now, later) = rest.split_at(piece.len().min(rest.len()));
            piece[..now.len()].copy_from_slice(now);
            rest = later;
        });
    }

    /// The first `at` bytes, and the others.
    pub(crate) fn split_at(self, at: usize) -> (Self, Self) {
        let (mut first, mut second) = (self, self);
        let mut left = at;
        for (first, second) in first.pieces.iter_mut().zip(&mut second.pieces) {
            let len = first.len.min(left);
            left -= len;
            first.len = len;
            // Within the piece.
            second.base = second.base.wrapping_add(len);
            second.len -= len;
        }
        (first, second)
    }

    fn parts(&self, skip: usize, most: usize) -> impl Iterator<Item = (*mut u8, usize)> {
        let (mut skip, mut most) = (skip, most);
        self.pieces().iter().filter_map(move |piece| {
            let skipped = skip.min(piece.len);
            skip -= skipped;
            let len = most.min(piece.len - skipped);
            most -= len;
            // Within the piece.
            (len > 0).then(|| (piece.base.wrapping_add(skipped), len))
        })
    }

    /// The first `most` bytes as memory that can be registered, and where in it they are.
    /// Nothing where they are in several pieces, or none.
    pub(crate) fn map(&self, most: usize) -> Option<(MappedMemory, Range<u64>)> {
        let mut parts = self.parts(0, most);
        let (base, len) = parts.next()?;
        if parts.next().is_some() {
            return None;
        }
        // SAFETY: what who made this buffer has promised.
        unsafe { map(base, len) }
    }
}

/// Bytes as memory that can be registered: from the word that the first is in to the word that
/// the last is in, and where in it they are. Words at the edges hold other bytes as well; those
/// are never read nor written, for grants are of the bytes, and edges are merged in by
/// compare-and-swap.
///
/// # Safety
/// Until the memory is no longer registered there are `len` bytes at `base`, which may be read,
/// and may be written if anything is; nobody makes a reference to them meanwhile.
pub(crate) unsafe fn map(base: *mut u8, len: usize) -> Option<(MappedMemory, Range<u64>)> {
    const WORD: usize = 8;
    let lead = base as usize % WORD;
    let words = NonNull::new(base.wrapping_sub(lead))?;
    let whole = (lead + len).next_multiple_of(WORD);
    // SAFETY: a word lies in one page, so where one of its bytes is mapped all are. The
    // program keeps the bytes until the operation completes, or the region is closed.
    let memory = unsafe { MappedMemory::new(words, whole, Arc::new(())) };
    Some((memory, lead as u64..(lead + len) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_one_row_of_bytes() {
        let (mut one, mut two) = ([1_u8, 2, 3], [4_u8, 5]);
        let pieces = [
            iovec { iov_base: one.as_mut_ptr().cast(), iov_len: 3 },
            iovec { iov_base: std::ptr::null_mut(), iov_len: 0 },
            iovec { iov_base: two.as_mut_ptr().cast(), iov_len: 2 },
        ];
        // SAFETY: both arrays outlive the buffer, and are used by way of it only.
        let buffer = unsafe { Buffer::of_pieces(pieces.as_ptr(), 3) }.unwrap();
        assert_eq!((buffer.len(), buffer.to_vec(4)), (5, vec![1, 2, 3, 4]));
        let (first, second) = buffer.split_at(4);
        assert_eq!((first.to_vec(9), second.to_vec(9)), (vec![1, 2, 3, 4], vec![5]));
        let mut seen = Vec::new();
        buffer.read(2, 2, |piece| seen.push(piece.to_vec()));
        assert_eq!(seen, [vec![3], vec![4]]);
        buffer.fill(&[9, 8, 7, 6]);
        assert_eq!(buffer.to_vec(9), [9, 8, 7, 6, 5]);
        assert!(buffer.map(5).is_none(), "two pieces");
        let (memory, at) = buffer.map(3).unwrap();
        assert_eq!((at.end - at.start, memory.len() % 8), (3, 0));
    }

    #[test]
    fn too_many_pieces_are_refused() {
        let pieces = [iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; 5];
        // SAFETY: there are five, of no bytes.
        assert!(unsafe { Buffer::of_pieces(pieces.as_ptr(), 5) }.is_none());
    }
}
