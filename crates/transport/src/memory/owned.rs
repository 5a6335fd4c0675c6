//! [`Memory`]: bytes that belong to the application alone.

use core::fmt;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::sync::Arc;

use thiserror::Error;

/// Bytes that belong to the application alone; it uses them as a slice.
///
/// [`Regions::lend`](super::Regions::lend) takes a `Memory` by value, so that
/// no reference to its bytes can exist while engines, drivers, the kernel and
/// peers write into them; [`take_back`](super::Regions::take_back) gives it
/// back, and delivered bytes are read where they landed.
///
/// ```
/// use landfall_transport::memory::Memory;
///
/// let mut memory = Memory::zeroed(100);
/// memory[..5].copy_from_slice(b"hello");
/// assert_eq!(&memory[..6], b"hello\0");
/// ```
pub struct Memory {
    /// A multiple of [`Memory::GRANULE`].
    base: NonNull<u8>,
    len: usize,
    /// Frees the bytes when the last part of them is gone.
    owner: Arc<dyn Send + Sync>,
}

// SAFETY: a `Memory` is the only owner of its bytes, like a box of them.
unsafe impl Send for Memory {}
// SAFETY: through a shared reference its bytes can only be read.
unsafe impl Sync for Memory {}

impl Memory {
    /// Memory can be split at multiples of this: a cache line, so that the
    /// parts never share a word, nor slow each other down.
    pub const GRANULE: usize = 64;

    /// `len` bytes of the heap, all zero.
    ///
    /// # Panics
    /// Ends the program when the heap has no room, as `vec![0; len]` does;
    /// [`Memory::try_zeroed`] does not.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        Self::try_zeroed(len).unwrap_or_else(|_| match Block::layout(len) {
            Ok(layout) => handle_alloc_error(layout),
            Err(error) => panic!("{error}"),
        })
    }

    /// `len` bytes of the heap, all zero.
    ///
    /// # Errors
    /// [`OutOfMemory`] when the heap has no room for them.
    pub fn try_zeroed(len: usize) -> Result<Self, OutOfMemory> {
        let block = Block::on_heap(len)?;
        Ok(Self { base: block.base, len, owner: Arc::new(block) })
    }

    /// A copy of these bytes on the heap.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut memory = Self::zeroed(bytes.len());
        memory.copy_from_slice(bytes);
        memory
    }

    /// The first `at` bytes and the rest, each to be lent on its own.
    ///
    /// # Errors
    /// [`SplitError`], which gives the memory back, when `at` is beyond the
    /// end or not a multiple of [`Memory::GRANULE`].
    pub fn split_at(self, at: usize) -> Result<(Self, Self), SplitError> {
        if at > self.len || !at.is_multiple_of(Self::GRANULE) {
            return Err(SplitError { at, len: self.len, memory: self });
        }
        // SAFETY: `at` is within the block, or right behind it.
        let base = unsafe { self.base.add(at) };
        let rest = Self { base, len: self.len - at, owner: Arc::clone(&self.owner) };
        Ok((Self { len: at, ..self }, rest))
    }

    /// # Safety
    /// From `base`, a multiple of [`Memory::GRANULE`], there are `len` bytes,
    /// filled up to such a multiple, that are initialised and nobody else's
    /// until `owner` is dropped.
    pub(super) unsafe fn from_parts(
        base: NonNull<u8>,
        len: usize,
        owner: Arc<dyn Send + Sync>,
    ) -> Self {
        Self { base, len, owner }
    }

    /// Where the bytes lie. From here to the next multiple of
    /// [`Memory::GRANULE`] behind the last byte nobody else has anything.
    pub(crate) const fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Deref for Memory {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the block is initialised, lives as long as `self`, and this
        // part of it belongs to `self` alone while it is not lent.
        unsafe { core::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl DerefMut for Memory {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { core::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for Memory {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for Memory {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

/// The contents may be long, and are nobody's business in a log.
impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("len", &self.len).finish_non_exhaustive()
    }
}

/// The heap has no room for so much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no memory for {len} bytes: ask for less, or free some")]
pub struct OutOfMemory {
    /// How much was asked for.
    pub len: usize,
}

/// Memory cannot be split there; here it is again.
#[derive(Debug, Error)]
#[error(
    "memory of {len} bytes cannot be split at {at}: use a multiple of {} within it",
    Memory::GRANULE
)]
pub struct SplitError {
    at: usize,
    len: usize,
    memory: Memory,
}

impl SplitError {
    /// The memory, in one piece.
    #[must_use]
    pub fn into_memory(self) -> Memory {
        self.memory
    }
}

/// A piece of the heap, of which one or several [`Memory`]s are parts.
struct Block {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a block is only kept to be freed; its bytes belong to the parts.
unsafe impl Send for Block {}
// SAFETY: likewise.
unsafe impl Sync for Block {}

impl Block {
    /// From here on a block of the heap starts on a page of its own.
    const PAGE: usize = 4096;

    fn layout(len: usize) -> Result<Layout, OutOfMemory> {
        let align = if len < Self::PAGE { Memory::GRANULE } else { Self::PAGE };
        let too_long = OutOfMemory { len };
        let size = len.max(1).checked_next_multiple_of(Memory::GRANULE).ok_or(too_long)?;
        Layout::from_size_align(size, align).map_err(|_| too_long)
    }

    fn on_heap(len: usize) -> Result<Self, OutOfMemory> {
        let layout = Self::layout(len)?;
        // SAFETY: the size is not zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(OutOfMemory { len })?;
        Ok(Self { base, layout })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and no part of it is left.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}
