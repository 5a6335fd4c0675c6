//! [`Writer`]: memory of another process, written by stores that trip its wires.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arrayvec::ArrayVec;
use landfall_placement::{WordFunction, WordWidth};

use super::WatchedError;
use super::filter::{Filter, Parts, Shape, words_of};
use super::report::{Hit, Reporter, Touch};
use crate::memory::{Piece, PieceView, SharedMemory, SharedMemoryError, SharedView};

/// Stores that wait for their look at the filter; one more takes the look early.
const BATCH: usize = 16;

/// Memory of another process, to be written and read. One thread has it.
///
/// Stores take effect at once and in their order. Whether they touch something armed
/// is looked at in [`commit`](Self::commit), once for a batch: one full fence, and a
/// load for each place.
#[derive(Debug)]
pub struct Writer {
    data: Piece,
    watch: Watch,
    /// What was stored since the last commit: first byte, and first byte behind.
    stored: ArrayVec<(u64, u64), BATCH>,
}

/// Memory of another process that may only be read.
#[derive(Debug)]
pub struct ReadOnly {
    data: PieceView,
    watch: Watch,
}

/// The filters of somebody's memory, and whom to tell.
#[derive(Clone, Debug)]
struct Watch {
    writes: View,
    reads: View,
    tag: u32,
    reporter: Arc<Reporter>,
}

/// One filter, as it is mapped here.
#[derive(Clone, Debug)]
struct View {
    bits: PieceView,
    summary: PieceView,
}

impl View {
    fn new(filter: &PieceView, shape: Shape, touch: Touch) -> Result<Self, SharedMemoryError> {
        let Parts { bits, summary } = shape.parts(touch);
        let part = |words: Range<u64>| filter.part(words.start * 8..words.end * 8);
        Ok(Self { bits: part(bits)?, summary: part(summary)? })
    }

    #[inline]
    fn hears(&self, offset: u64, len: u64) -> bool {
        // SAFETY: what hears only looks.
        let (bits, summary) = unsafe { (self.bits.words(), self.summary.words()) };
        Filter::new(bits, summary).hears(&words_of(offset, len))
    }
}

impl Watch {
    fn new(
        len: u64,
        filter: &SharedView,
        tag: u32,
        reporter: Arc<Reporter>,
    ) -> Result<Self, WatchedError> {
        let (shape, filter) = (Shape::of(len), PieceView::whole(filter));
        let view = |touch| View::new(&filter, shape, touch);
        Ok(Self { writes: view(Touch::Write)?, reads: view(Touch::Read)?, tag, reporter })
    }

    /// Tells if a write touched something armed. The full fence is before this.
    #[inline]
    fn look_for_write(&self, offset: u64, len: u64) {
        if self.writes.hears(offset, len) {
            self.report(Touch::Write, offset, len);
        }
    }

    /// The same for a read.
    #[inline]
    fn look_for_read(&self, offset: u64, len: usize) {
        if len > 0 && self.reads.hears(offset, len as u64) {
            self.report(Touch::Read, offset, len as u64);
        }
    }

    #[cold]
    fn report(&self, touch: Touch, offset: u64, len: u64) {
        self.reporter.report(&Hit { tag: self.tag, touch, offset, len });
    }
}

impl Writer {
    /// From what the owner handed out. The tag is the owner's name for this memory.
    ///
    /// # Errors
    /// The filter is shorter than this memory needs.
    pub fn new(
        data: &SharedMemory,
        filter: &SharedView,
        tag: u32,
        reporter: Arc<Reporter>,
    ) -> Result<Self, WatchedError> {
        Ok(Self {
            data: Piece::whole(data),
            watch: Watch::new(data.len(), filter, tag, reporter)?,
            stored: ArrayVec::new(),
        })
    }

    /// Another handle to the same memory, for another user.
    #[must_use]
    pub fn another(&self) -> Self {
        let (data, watch) = (self.data.clone(), self.watch.clone());
        Self { data, watch, stored: ArrayVec::new() }
    }

    /// How many bytes; never none.
    #[must_use]
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub const fn len(&self) -> u64 {
        self.data.len()
    }

    /// Stores the word at a multiple of eight.
    ///
    /// # Errors
    /// It is not there.
    #[inline]
    pub fn store(&mut self, offset: u64, value: u64) -> Result<(), SharedMemoryError> {
        self.data.store(offset, value)?;
        self.remember(offset, 8);
        Ok(())
    }

    /// Stores bytes.
    ///
    /// # Errors
    /// They do not all fit.
    #[inline]
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), SharedMemoryError> {
        self.data.copy_in(offset, bytes)?;
        self.remember(offset, bytes.len() as u64);
        Ok(())
    }

    /// Stores bytes of memory of ours.
    ///
    /// # Errors
    /// They are not all there, or do not all fit.
    pub fn write_from(
        &mut self,
        offset: u64,
        from: &Piece,
        range: Range<u64>,
    ) -> Result<(), SharedMemoryError> {
        self.data.copy_from(offset, from, range.clone())?;
        self.remember(offset, range.end.saturating_sub(range.start));
        Ok(())
    }

    /// A part of the memory, to be written as it is. All of it is told as written, with the
    /// next [`commit`](Self::commit).
    ///
    /// # Errors
    /// It is not all there, or does not begin at a multiple of eight.
    pub fn piece(&mut self, part: Range<u64>) -> Result<Piece, SharedMemoryError> {
        let piece = self.data.part(part.clone())?;
        self.remember(part.start, piece.len());
        Ok(piece)
    }

    /// Does a word operation, which is told as a write; gives what was there before.
    ///
    /// # Errors
    /// The word is not there, or not aligned.
    pub fn word(
        &mut self,
        offset: u64,
        width: WordWidth,
        function: WordFunction,
    ) -> Result<u64, SharedMemoryError> {
        let old = self.data.word(offset, width, function)?;
        self.remember(offset, u64::from(width.bytes()));
        Ok(old)
    }

    /// Looks whether what was stored touches something armed, and tells. Afterwards
    /// no tripwire waits for it.
    #[inline]
    pub fn commit(&mut self) {
        if self.stored.is_empty() {
            return;
        }
        Filter::<AtomicU64>::settle();
        for (start, end) in self.stored.drain(..) {
            self.watch.look_for_write(start, end - start);
        }
    }

    /// Copies bytes out, and tells if a tripwire waits for reads there.
    ///
    /// # Errors
    /// They are not all there.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), SharedMemoryError> {
        self.data.copy_out(offset, into)?;
        self.watch.look_for_read(offset, into.len());
        Ok(())
    }

    /// Copies bytes into memory of ours, and tells if a tripwire waits for reads there.
    ///
    /// # Errors
    /// They are not all there, or do not all fit.
    pub fn read_into(
        &self,
        offset: u64,
        into: &Piece,
        range: Range<u64>,
    ) -> Result<(), SharedMemoryError> {
        let len = range.end.saturating_sub(range.start);
        into.copy_from(range.start, &self.data, offset..offset.saturating_add(len))?;
        self.watch.look_for_read(offset, len as usize);
        Ok(())
    }

    /// Remembers where to look. Stores that follow one another are one.
    #[inline]
    fn remember(&mut self, offset: u64, len: u64) {
        if len == 0 {
            return;
        }
        if let Some((_, end)) = self.stored.last_mut()
            && *end == offset
        {
            *end += len;
            return;
        }
        if self.stored.is_full() {
            self.commit();
        }
        self.stored.push((offset, offset + len));
    }
}

impl Drop for Writer {
    /// What was stored is there: anyone who waits for it hears of it.
    fn drop(&mut self) {
        self.commit();
    }
}

impl ReadOnly {
    /// From what the owner handed out.
    ///
    /// # Errors
    /// The filter is shorter than this memory needs.
    pub fn new(
        data: &SharedView,
        filter: &SharedView,
        tag: u32,
        reporter: Arc<Reporter>,
    ) -> Result<Self, WatchedError> {
        let watch = Watch::new(data.len(), filter, tag, reporter)?;
        Ok(Self { data: PieceView::whole(data), watch })
    }

    /// How many bytes; never none.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub const fn len(&self) -> u64 {
        self.data.len()
    }

    /// Copies bytes out, and tells if a tripwire waits for reads there.
    ///
    /// # Errors
    /// They are not all there.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), SharedMemoryError> {
        self.data.copy_out(offset, into)?;
        self.watch.look_for_read(offset, into.len());
        Ok(())
    }

    /// Copies bytes into memory of ours, and tells if a tripwire waits for reads there.
    ///
    /// # Errors
    /// They are not all there, or do not all fit.
    pub fn read_into(
        &self,
        offset: u64,
        into: &Piece,
        range: Range<u64>,
    ) -> Result<(), SharedMemoryError> {
        let len = range.end.saturating_sub(range.start);
        into.copy_from_view(range.start, &self.data, offset..offset.saturating_add(len))?;
        self.watch.look_for_read(offset, len as usize);
        Ok(())
    }
}
