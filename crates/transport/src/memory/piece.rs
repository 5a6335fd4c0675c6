//! [`Piece`]: a part of shared memory as words, and [`PieceView`], the same to be
//! read only.
//!
//! What is checked once, when a piece is made, is not checked again at each use:
//! a use of a piece is one comparison and one access.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

use landfall_placement::{WordFunction, WordWidth};

use super::words::{self, WORD};
use super::{SharedMemory, SharedMemoryError, SharedView};

/// A part of shared memory that begins at a multiple of eight. Clones are the same
/// bytes, which stay mapped until the last clone is gone.
///
/// ```
/// use landfall_transport::memory::{Piece, SharedMemory};
///
/// let memory = SharedMemory::create("example", 4096)?;
/// let piece = Piece::of(&memory, 1024..2048)?;
/// piece.store(8, 42)?;
/// assert_eq!(piece.load(8)?, 42);
/// assert!(piece.load(1024).is_err(), "behind its end");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Piece {
    base: NonNull<AtomicU64>,
    len: usize,
    _keeper: Keeper,
}

/// What keeps the bytes where they are.
#[derive(Clone, Debug)]
#[expect(dead_code, reason = "they are kept, not used")]
enum Keeper {
    Shared(SharedMemory),
    View(SharedView),
    Private(Arc<[AtomicU64]>),
}

// SAFETY: it is an address of atomic words, with their owner, which is both.
unsafe impl Send for Piece {}
// SAFETY: all access is by atomics.
unsafe impl Sync for Piece {}

impl Piece {
    /// These bytes of shared memory.
    ///
    /// # Errors
    /// They are not all there, or do not begin at a multiple of eight.
    pub fn of(memory: &SharedMemory, part: Range<u64>) -> Result<Self, SharedMemoryError> {
        let all = Self {
            base: memory.base().cast(),
            len: memory.len() as usize,
            _keeper: Keeper::Shared(memory.clone()),
        };
        all.part(part)
    }

    /// All bytes of shared memory.
    #[must_use]
    pub fn whole(memory: &SharedMemory) -> Self {
        Self {
            base: memory.base().cast(),
            len: memory.len() as usize,
            _keeper: Keeper::Shared(memory.clone()),
        }
    }

    /// `len` bytes, all zero, for the threads of this process only.
    #[must_use]
    pub fn private(len: usize) -> Self {
        let words: Arc<[AtomicU64]> = (0..len.div_ceil(WORD)).map(|_| AtomicU64::new(0)).collect();
        let base = NonNull::from(&*words).cast();
        Self { base, len, _keeper: Keeper::Private(words) }
    }

    /// A part of this part.
    ///
    /// # Errors
    /// It is not all there, or does not begin at a multiple of eight.
    pub fn part(&self, part: Range<u64>) -> Result<Self, SharedMemoryError> {
        let Range { start, end } = part;
        if start > end || end > self.len() {
            let len = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX);
            return Err(SharedMemoryError::OutOfBounds { offset: start, len, size: self.len() });
        }
        if !start.is_multiple_of(WORD as u64) {
            return Err(SharedMemoryError::Misaligned { offset: start, width: WORD as u32 });
        }
        // SAFETY: within the bytes, or right behind them.
        let base = unsafe { self.base.add(start as usize / WORD) };
        Ok(Self { base, len: (end - start) as usize, _keeper: self._keeper.clone() })
    }

    /// How many bytes.
    #[must_use]
    #[inline]
    pub const fn len(&self) -> u64 {
        self.len as u64
    }

    /// Are there none?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The same bytes, to be read only.
    #[must_use]
    pub fn view(&self) -> PieceView {
        PieceView(self.clone())
    }

    /// Where the bytes lie, for other languages: they are there while this piece or a clone of
    /// it is. Others may write there at any moment, so it is no place for a slice.
    #[must_use]
    pub const fn address(&self) -> NonNull<u8> {
        self.base.cast()
    }

    /// Reads the word at a multiple of eight, and with it all that was written
    /// before it.
    ///
    /// # Errors
    /// It is not there.
    #[inline]
    pub fn load(&self, offset: u64) -> Result<u64, SharedMemoryError> {
        Ok(self.whole_word(offset)?.load(Acquire))
    }

    /// Writes the word at a multiple of eight, and publishes what was written
    /// before it.
    ///
    /// # Errors
    /// It is not there.
    #[inline]
    pub fn store(&self, offset: u64, value: u64) -> Result<(), SharedMemoryError> {
        self.whole_word(offset)?.store(value, Release);
        Ok(())
    }

    /// Copies bytes in. Anyone who sees an aligned word of them sees all that was
    /// written before it.
    ///
    /// # Errors
    /// They do not all fit.
    #[inline]
    pub fn copy_in(&self, offset: u64, bytes: &[u8]) -> Result<(), SharedMemoryError> {
        words::copy_in(self.words(), self.check(offset, bytes.len())?, bytes);
        Ok(())
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// They are not all there.
    #[inline]
    pub fn copy_out(&self, offset: u64, into: &mut [u8]) -> Result<(), SharedMemoryError> {
        words::copy_out(self.words(), self.check(offset, into.len())?, into);
        Ok(())
    }

    /// Copies bytes of another piece. If they are bytes of this one too they may
    /// mix.
    ///
    /// # Errors
    /// They are not all there, on one side or on the other.
    pub fn copy_from(
        &self,
        offset: u64,
        from: &Self,
        range: Range<u64>,
    ) -> Result<(), SharedMemoryError> {
        let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        let at = from.check(range.start, len)?;
        words::copy(from.words(), at, self.words(), self.check(offset, len)?, len);
        Ok(())
    }

    /// Copies bytes of memory that is only read here.
    ///
    /// # Errors
    /// They are not all there, on one side or on the other.
    pub fn copy_from_view(
        &self,
        offset: u64,
        from: &PieceView,
        range: Range<u64>,
    ) -> Result<(), SharedMemoryError> {
        self.copy_from(offset, &from.0, range)
    }

    /// Does a word operation; gives what the word held before.
    ///
    /// # Errors
    /// The word is not there, or not aligned.
    pub fn word(
        &self,
        offset: u64,
        width: WordWidth,
        function: WordFunction,
    ) -> Result<u64, SharedMemoryError> {
        let bytes = width.bytes();
        let at = self.check(offset, bytes as usize)?;
        let misaligned = SharedMemoryError::Misaligned { offset, width: bytes };
        if !offset.is_multiple_of(u64::from(bytes)) {
            return Err(misaligned);
        }
        words::word(self.words(), at, width, function).ok_or(misaligned)
    }

    /// The words, the last of which may be cut.
    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: checked when the piece was made, kept by the keeper. The last page
        // of a mapping is there as a whole, so the last word is too. Others' writes
        // are allowed behind a reference to atomics; of a view no words are given out
        // but to be read.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len.div_ceil(WORD)) }
    }

    #[inline]
    fn whole_word(&self, offset: u64) -> Result<&AtomicU64, SharedMemoryError> {
        if !offset.is_multiple_of(WORD as u64) {
            return Err(self.misaligned(offset));
        }
        match self.words().get((offset / WORD as u64) as usize) {
            // The last word of a piece may be cut, and then it is none.
            Some(word) if offset + WORD as u64 <= self.len() => Ok(word),
            _ => Err(self.out_of_bounds(offset, WORD)),
        }
    }

    #[inline]
    fn check(&self, offset: u64, len: usize) -> Result<usize, SharedMemoryError> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.len() => Ok(offset as usize),
            _ => Err(self.out_of_bounds(offset, len)),
        }
    }

    #[cold]
    fn out_of_bounds(&self, offset: u64, len: usize) -> SharedMemoryError {
        SharedMemoryError::OutOfBounds { offset, len, size: self.len() }
    }

    #[cold]
    #[expect(clippy::unused_self, reason = "reads as its sibling does")]
    fn misaligned(&self, offset: u64) -> SharedMemoryError {
        SharedMemoryError::Misaligned { offset, width: WORD as u32 }
    }
}

/// A part of shared memory that is only read here. Clones are the same bytes.
#[derive(Clone, Debug)]
pub struct PieceView(Piece);

impl PieceView {
    /// All bytes of memory that is mapped to be read only.
    #[must_use]
    pub fn whole(memory: &SharedView) -> Self {
        Self(Piece {
            base: memory.base().cast(),
            len: memory.len() as usize,
            _keeper: Keeper::View(memory.clone()),
        })
    }

    /// A part of this part.
    ///
    /// # Errors
    /// It is not all there, or does not begin at a multiple of eight.
    pub fn part(&self, part: Range<u64>) -> Result<Self, SharedMemoryError> {
        self.0.part(part).map(Self)
    }

    /// How many bytes.
    #[must_use]
    #[inline]
    pub const fn len(&self) -> u64 {
        self.0.len()
    }

    /// Are there none?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads the word at a multiple of eight, and with it all that was written
    /// before it.
    ///
    /// # Errors
    /// It is not there.
    #[inline]
    pub fn load(&self, offset: u64) -> Result<u64, SharedMemoryError> {
        // An acquiring load of memory that cannot be written is not defined
        // everywhere (`core::sync::atomic`); a relaxed one and a fence are.
        let value = self.0.whole_word(offset)?.load(Relaxed);
        fence(Acquire);
        Ok(value)
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// They are not all there.
    #[inline]
    pub fn copy_out(&self, offset: u64, into: &mut [u8]) -> Result<(), SharedMemoryError> {
        self.0.copy_out(offset, into)
    }

    /// The words, to be loaded and nothing else.
    ///
    /// # Safety
    /// Nothing is stored there: the memory may be mapped to be read only.
    #[inline]
    pub(crate) unsafe fn words(&self) -> &[AtomicU64] {
        self.0.words()
    }
}
