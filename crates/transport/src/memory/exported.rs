//! Memory of this process that others of its user may map to read: which file it is of.
//!
//! Such memory is pages of a file without a name (memfd). The file is sealed as soon as it is
//! mapped here: it keeps its length, and from then on nobody can write it, by whatever
//! descriptor or mapping, but by the mapping that was there before (`F_SEAL_FUTURE_WRITE`).
//! So its bytes are the application's alone as those of any other memory are, and may be a
//! slice.
//!
//! Anyone who wants to hand bytes to a neighbour has their address. This table says of which file
//! they are.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::mapping::Mapping;

/// A file of which some memory of this process is.
#[derive(Clone, Debug)]
pub(crate) struct ExportedFile {
    /// Never given twice in this process.
    pub(crate) id: u64,
    file: Arc<OwnedFd>,
    base: usize,
    len: usize,
}

impl ExportedFile {
    /// Where in the file the bytes lie from this address on, if all are of it.
    pub(crate) fn offset_of(&self, ptr: NonNull<u8>, len: usize) -> Option<u64> {
        let offset = (ptr.as_ptr() as usize).checked_sub(self.base)?;
        let end = offset.checked_add(len)?;
        (end <= self.len).then_some(offset as u64)
    }
}

impl AsFd for ExportedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// By the address of their first byte.
static FILES: RwLock<BTreeMap<usize, ExportedFile>> = RwLock::new(BTreeMap::new());
/// How often the table has changed: what was looked up before is as good as then.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// The file of which these bytes are. They exist: anyone who asks has pinned them.
pub(crate) fn file_at(ptr: NonNull<u8>, len: usize) -> Option<ExportedFile> {
    let files = FILES.read().unwrap_or_else(PoisonError::into_inner);
    let (_, file) = files.range(..=ptr.as_ptr() as usize).next_back()?;
    file.offset_of(ptr, len).map(|_| file.clone())
}

/// Is there memory of this file?
pub(crate) fn is_mapped(id: u64) -> bool {
    let files = FILES.read().unwrap_or_else(PoisonError::into_inner);
    files.values().any(|file| file.id == id)
}

/// A number that changes with the table.
pub(crate) fn changes() -> u64 {
    CHANGES.load(Ordering::Acquire)
}

/// Pages of a file of their own, in the table as long as this exists.
#[derive(Debug)]
pub(super) struct ExportedMapping {
    mapping: Mapping,
}

impl ExportedMapping {
    /// Zeroed pages that start at a multiple of 2 MiB, as `len` is. A child of this process
    /// does not have them, or it would write what the parent reads.
    pub(super) fn new(len: usize, huge_pages: bool) -> io::Result<Self> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a C string.
        let fd = unsafe { libc::memfd_create(c"landfall-arena".as_ptr(), flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that was just made, and belongs to nobody else.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        let size = libc::off_t::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        // SAFETY: an open descriptor and a number.
        if unsafe { libc::ftruncate(file.as_raw_fd(), size) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let mapping = Mapping::shared_aligned(file.as_fd(), len, huge_pages)?;
        let seals =
            libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SEAL;
        // SAFETY: an open descriptor and a number.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let base = mapping.base().as_ptr() as usize;
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let exported = ExportedFile { id, file: Arc::new(file), base, len };
        FILES.write().unwrap_or_else(PoisonError::into_inner).insert(base, exported);
        CHANGES.fetch_add(1, Ordering::AcqRel);
        Ok(Self { mapping })
    }

    pub(super) const fn mapping(&self) -> &Mapping {
        &self.mapping
    }
}

impl Drop for ExportedMapping {
    fn drop(&mut self) {
        // Before the address can be another one's.
        let base = self.mapping.base().as_ptr() as usize;
        FILES.write().unwrap_or_else(PoisonError::into_inner).remove(&base);
        CHANGES.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use super::*;
    use crate::memory::HUGE_PAGE;

    #[test]
    fn bytes_are_found_in_their_file_as_long_as_they_are_mapped() {
        let mapping = ExportedMapping::new(2 * HUGE_PAGE, false).unwrap();
        let base = mapping.mapping().base();
        // SAFETY: within the mapping.
        let at = unsafe { base.add(5000) };
        let file = file_at(at, 100).unwrap();
        assert_eq!(file.offset_of(at, 100), Some(5000));
        assert_eq!(file.offset_of(at, 2 * HUGE_PAGE - 5000), Some(5000));
        assert!(file_at(at, 2 * HUGE_PAGE - 4999).is_none(), "beyond the end");
        assert!(is_mapped(file.id));
        let before = changes();
        drop(mapping);
        assert!(!is_mapped(file.id) && changes() != before);
    }

    #[test]
    fn nobody_else_can_write_cut_or_punch_the_file() {
        let mapping = ExportedMapping::new(HUGE_PAGE, false).unwrap();
        let file = file_at(mapping.mapping().base(), 1).unwrap();
        // A descriptor of one's own, as every process of the user can have.
        let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
        let other = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        assert!(Mapping::shared(other.as_fd(), HUGE_PAGE).is_err(), "a mapping to write");
        assert!(io::Write::write(&mut &other, b"x").is_err(), "a write");
        assert!(other.set_len(0).is_err(), "cut off");
        assert!(other.set_len(2 * HUGE_PAGE as u64).is_err(), "longer");
        let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: an open descriptor and numbers.
        assert_ne!(unsafe { libc::fallocate(other.as_raw_fd(), punch, 0, 4096) }, 0, "a hole");
        assert!(Mapping::shared_to_read(other.as_fd(), HUGE_PAGE).is_ok());
    }
}
