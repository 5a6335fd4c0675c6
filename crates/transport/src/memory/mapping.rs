//! Pages from the kernel, unmapped when their owner is gone.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// What a huge page covers, and what it has to be aligned to.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// How long a page is here: 4 KiB on most machines, up to 64 KiB on some.
pub(crate) fn page_size() -> usize {
    // SAFETY: a question to the C library, without arguments that could be wrong.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).ok().filter(|size| size.is_power_of_two()).unwrap_or(4096)
}

/// Mapped pages: readable, initialised, and writable unless its maker says else. They are all that this
/// owns; it makes no reference to them.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: it is an address with a length, to be unmapped by one owner.
unsafe impl Send for Mapping {}
// SAFETY: nothing changes behind a shared reference.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed pages, private to this process, that start at a multiple of
    /// [`HUGE_PAGE`]. `len` is a multiple of it.
    pub(crate) fn anonymous(len: usize, huge_pages: bool) -> io::Result<Self> {
        let too_long = || io::Error::from_raw_os_error(libc::ENOMEM);
        // As much more as the start may have to move; what is left over at
        // both ends goes back at once.
        let whole = Self::new(
            len.checked_add(HUGE_PAGE).ok_or_else(too_long)?,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            None,
        )?;
        let before = whole.base.as_ptr().align_offset(HUGE_PAGE);
        let (_, rest) = whole.split(before);
        let (mapping, _) = rest.split(len);
        if huge_pages {
            // SAFETY: these are our pages. A kernel without huge pages says
            // no, and that is no harm: the hint is about speed only.
            unsafe { libc::madvise(mapping.base.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
        }
        Ok(mapping)
    }

    /// Address space for pages that are moved there. Until then, and where none
    /// were, it reads as zero and takes memory only where it is written.
    pub(crate) fn reserved(len: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        Self::new(len, flags, None).map(Self::in_small_pages)
    }

    /// The same without huge pages, which would have to be taken apart to be
    /// moved in parts.
    pub(crate) fn in_small_pages(self) -> Self {
        // SAFETY: these are our pages. A kernel without huge pages says no, and
        // that is as good.
        unsafe { libc::madvise(self.base.as_ptr().cast(), self.len, libc::MADV_NOHUGEPAGE) };
        self
    }

    /// Moves pages to another mapping, without a copy, and in place of what is
    /// there; where they were there are zeros from now on. If that fails, they
    /// stay where they are, and the other place has zeros.
    ///
    /// # Safety
    /// Both are anonymous, and the numbers are whole pages within them. What is
    /// moved and what it replaces nobody uses: no reference is there to any of
    /// its bytes, and no system call is under way with it.
    pub(crate) unsafe fn move_pages(
        &self,
        from: usize,
        len: usize,
        (other, to): (&Self, usize),
    ) -> io::Result<()> {
        debug_assert!(from + len <= self.len && to + len <= other.len);
        // Without MREMAP_DONTUNMAP the old place would be anybody's for a
        // moment, and the next mapping might take it.
        let how = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
        // SAFETY: within the mappings; the caller vouches for the rest.
        let (from, to) = unsafe { (self.base.add(from).as_ptr(), other.base.add(to).as_ptr()) };
        // SAFETY: pages of ours take the place of others of ours.
        let moved = unsafe { libc::mremap(from.cast(), len, len, how, to.cast::<libc::c_void>()) };
        if moved != libc::MAP_FAILED {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // The kernel may have taken away what was there before it gave up.
        // SAFETY: this place is ours, and nobody uses what is there.
        let renewed = unsafe { libc::mmap(to.cast(), len, access, flags, -1, 0) };
        if renewed == libc::MAP_FAILED {
            // A hole in memory that others name cannot be lived with: the next
            // mapping of anybody might lie in it.
            std::process::abort();
        }
        Err(error)
    }

    /// The pages of a file that other processes may map too.
    pub(super) fn shared(file: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        Self::shared_at(file, 0, len)
    }

    /// The pages of a file from an offset on, which for a device or a socket
    /// says what is mapped.
    pub(crate) fn shared_at(
        file: BorrowedFd<'_>,
        offset: libc::off_t,
        len: usize,
    ) -> io::Result<Self> {
        Self::new(len, libc::MAP_SHARED, Some((file, offset)))
    }

    /// The pages of a file, to be read only: a store to them ends the process.
    pub(super) fn shared_to_read(file: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        Self::with_access(libc::PROT_READ, len, libc::MAP_SHARED, Some((file, 0)))
    }

    fn new(
        len: usize,
        flags: libc::c_int,
        file: Option<(BorrowedFd<'_>, libc::off_t)>,
    ) -> io::Result<Self> {
        Self::with_access(libc::PROT_READ | libc::PROT_WRITE, len, flags, file)
    }

    fn with_access(
        access: libc::c_int,
        len: usize,
        flags: libc::c_int,
        file: Option<(BorrowedFd<'_>, libc::off_t)>,
    ) -> io::Result<Self> {
        let (fd, offset) = file.map_or((-1, 0), |(file, offset)| (file.as_raw_fd(), offset));
        // SAFETY: a new mapping, wherever the kernel has room for it.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, fd, offset) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len })
    }

    /// The first `at` bytes and the rest, to be unmapped apart; `at` is a
    /// number of whole pages and within the mapping.
    fn split(self, at: usize) -> (Self, Self) {
        // SAFETY: within the mapping, or right behind it.
        let rest = Self { base: unsafe { self.base.add(at) }, len: self.len - at };
        let first = Self { base: self.base, len: at };
        std::mem::forget(self);
        (first, rest)
    }

    pub(crate) const fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: mapped by `new`, and nobody uses it any more.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        }
    }
}
