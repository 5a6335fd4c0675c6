//! [`SharedView`]: memory of another process that may be read here, not written.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use super::mapping::Mapping;
use super::shared::{SharedMemoryError, seal_against_shrinking, size_of_file};

/// Memory that is shared by a file descriptor (memfd) and mapped to be read
/// only. Its owner may write it at any moment. Clones are the same memory.
///
/// The file cannot shrink, so no access can fail with a signal.
#[derive(Clone, Debug)]
pub struct SharedView(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    mapping: Mapping,
    file: OwnedFd,
}

impl SharedView {
    /// The memory behind a descriptor that came from another process, as long as
    /// it is now.
    ///
    /// # Errors
    /// It is no memfd whose size is sealed or can be, it is empty, or the kernel
    /// refuses.
    pub fn from_fd(file: OwnedFd) -> Result<Self, SharedMemoryError> {
        seal_against_shrinking(file.as_raw_fd())?;
        let size = size_of_file(file.as_raw_fd())?;
        if size == 0 {
            return Err(SharedMemoryError::Empty);
        }
        let len = isize::try_from(size).map_err(|_| SharedMemoryError::TooLong(size))?;
        let mapping = Mapping::shared_to_read(file.as_fd(), len.unsigned_abs())
            .map_err(|error| SharedMemoryError::System { call: "mmap", error })?;
        Ok(Self(Arc::new(Inner { mapping, file })))
    }

    /// The descriptor.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.file.as_fd()
    }

    /// How many bytes there are; never none.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> u64 {
        self.0.mapping.len() as u64
    }

    /// Where the bytes lie, for as long as a clone of this exists.
    pub(super) fn base(&self) -> NonNull<u8> {
        self.0.mapping.base()
    }
}
