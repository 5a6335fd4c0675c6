//! A list of memory pieces for the kernel.

use std::ptr::NonNull;

/// Pieces of memory that one system call scatters to or gathers from.
///
/// The pointers are made anew in each turn and read by the kernel only in it
/// (or, for a send under way, while the memory is pinned).
#[derive(Debug, Default)]
pub(crate) struct IoVecs(Vec<libc::iovec>);

// SAFETY: the pointers are only handed to the kernel, in calls whose drivers
// vouch for the memory; moving the list to another thread moves numbers.
unsafe impl Send for IoVecs {}
// SAFETY: a shared list can only be read as numbers.
unsafe impl Sync for IoVecs {}

impl IoVecs {
    pub(crate) fn with_capacity(pieces: usize) -> Self {
        Self(Vec::with_capacity(pieces))
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    pub(crate) fn push(&mut self, start: NonNull<u8>, len: usize) {
        self.0.push(libc::iovec { iov_base: start.as_ptr().cast(), iov_len: len });
    }

    /// Memory of this process that the kernel will write.
    #[inline]
    pub(crate) fn push_slice(&mut self, bytes: &mut [u8]) {
        self.push(NonNull::from(&mut *bytes).cast(), bytes.len());
    }

    pub(crate) fn as_slice(&self) -> &[libc::iovec] {
        &self.0
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [libc::iovec] {
        &mut self.0
    }
}
