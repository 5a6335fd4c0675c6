//! Pages from the kernel, unmapped when their owner is gone.

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

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
    /// stay where they are, and the other place stays mapped.
    ///
    /// In two steps, for a call that puts pages in place of others takes those away first
    /// and then finds out whether it may go on: whether the process has the address space,
    /// and whether the pages are one piece in the kernel's books. What it took away is a
    /// hole by then, where any thread's next mapping may lie. So the pages go to a place
    /// that is free, which fails without a trace, and only from there to where they
    /// belong, which asks for nothing more.
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
        // SAFETY: within the mappings; the caller vouches for the rest.
        let (from, to) = unsafe { (self.base.add(from).as_ptr(), other.base.add(to).as_ptr()) };
        // Without MREMAP_DONTUNMAP the old place would be anybody's for a
        // moment, and the next mapping might take it.
        let how = libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP;
        // SAFETY: pages of ours that nobody uses go to wherever there is room.
        let between = unsafe { libc::mremap(from.cast(), len, len, how) };
        if between == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let between =
            Self { base: NonNull::new(between.cast()).ok_or(ErrorKind::OutOfMemory)?, len };
        let how = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let start = between.base.as_ptr().cast();
        // SAFETY: pages of ours take the place of others of ours that nobody uses.
        let moved = unsafe { libc::mremap(start, len, len, how, to.cast::<libc::c_void>()) };
        if moved != libc::MAP_FAILED {
            // There is nothing any more where it was.
            std::mem::forget(between);
            return Ok(());
        }
        let error = io::Error::last_os_error();
        // SAFETY: both places are ours, have this many bytes, and nobody uses them.
        unsafe {
            ptr::copy_nonoverlapping(between.base.as_ptr(), from, len);
            keep_mapped(to, len);
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

    /// The same at a multiple of [`HUGE_PAGE`], as `len` is, and not for children of this
    /// process: what they wrote would be written here.
    pub(super) fn shared_aligned(
        file: BorrowedFd<'_>,
        len: usize,
        huge_pages: bool,
    ) -> io::Result<Self> {
        // Address space first, of which the file takes the place.
        let mapping = Self::anonymous(len, false)?;
        let start = mapping.base.as_ptr().cast();
        let (access, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
        // SAFETY: pages of ours that nobody knows of yet are replaced.
        let mapped =
            unsafe { libc::mmap(start, len, access, libc::MAP_SHARED | libc::MAP_FIXED, fd, 0) };
        if mapped == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            // The kernel may have taken the pages away, and what is there now may be
            // another thread's: only what is sure to be ours is unmapped.
            std::mem::forget(mapping);
            return Err(error);
        }
        // SAFETY: these are our pages.
        if unsafe { libc::madvise(start, len, libc::MADV_DONTFORK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        if huge_pages {
            // SAFETY: these are our pages; a kernel without huge pages for files says no, and
            // that is no harm.
            unsafe { libc::madvise(start, len, libc::MADV_HUGEPAGE) };
        }
        Ok(mapping)
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
        let base = unsafe { libc::mmap(ptr::null_mut(), len, access, flags, fd, offset) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(ErrorKind::OutOfMemory)?;
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

/// Maps a place of ours again that the kernel may have cleared before it refused to put
/// something there. Never in place of anything.
///
/// # Safety
/// The place is of a mapping of ours, and nobody uses it.
unsafe fn keep_mapped(place: *mut u8, len: usize) {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: where something is mapped nothing changes.
    let renewed = unsafe { libc::mmap(place.cast(), len, access, flags, -1, 0) };
    if renewed == place.cast() {
        return;
    }
    let is_there = io::Error::last_os_error().raw_os_error() == Some(libc::EEXIST);
    // The kernel refuses before it clears the place for one reason: the process has as
    // many mappings as it may. For any other what is there now is somebody else's, and
    // memory that others name cannot be lived without.
    if renewed != libc::MAP_FAILED || !is_there || !has_no_more_mappings() {
        std::process::abort();
    }
}

/// Has the process about as many mappings as it may?
fn has_no_more_mappings() -> bool {
    /// The kernel stops a few short of the limit, and other threads go on.
    const ABOUT: usize = 64;
    let most = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok();
    let Some(most) = most.and_then(|most| most.trim().parse::<usize>().ok()) else { return false };
    let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
    maps.iter().filter(|byte| **byte == b'\n').count() + ABOUT >= most
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    const LEN: usize = 4 * HUGE_PAGE;

    /// A mapping whose pages say where they are from.
    fn filled(byte: u8) -> Mapping {
        let mapping = Mapping::anonymous(LEN, false).unwrap().in_small_pages();
        // SAFETY: all of it is mapped, and nobody else knows of it.
        unsafe { mapping.base.as_ptr().write_bytes(byte, LEN) };
        mapping
    }

    fn byte_at(mapping: &Mapping, at: usize) -> u8 {
        assert!(at < mapping.len());
        // SAFETY: within the mapping, and nobody else knows of it.
        unsafe { mapping.base.add(at).read() }
    }

    #[test]
    fn moved_pages_leave_zeros_and_replace_what_was_there() {
        let (from, to) = (filled(1), filled(2));
        let page = page_size();
        // SAFETY: whole pages of two mappings that nobody else knows of.
        unsafe { from.move_pages(page, 2 * page, (&to, 5 * page)) }.unwrap();
        for (at, byte) in [(0, 1), (page, 0), (3 * page - 1, 0), (3 * page, 1)] {
            assert_eq!(byte_at(&from, at), byte, "from, at {at}");
        }
        for (at, byte) in [(5 * page - 1, 2), (5 * page, 1), (7 * page - 1, 1), (7 * page, 2)] {
            assert_eq!(byte_at(&to, at), byte, "to, at {at}");
        }
    }

    /// Pages of several mappings in the kernel's books, which it does not move with one
    /// call.
    #[test]
    fn a_move_that_fails_changes_nothing() {
        let (from, to) = (filled(1), filled(2));
        let page = page_size();
        split_in_two(&from);
        // SAFETY: whole pages of two mappings that nobody else knows of.
        let moved = unsafe { from.move_pages(0, LEN, (&to, 0)) };
        if moved.is_ok() {
            // A kernel that moves several at once.
            return;
        }
        for at in (0..LEN).step_by(page) {
            assert_eq!((byte_at(&from, at), byte_at(&to, at)), (1, 2), "page at {at}");
        }
    }

    /// Says of the second half of a mapping that it is not for children: two pieces in the
    /// kernel's books from then on.
    fn split_in_two(mapping: &Mapping) {
        let half = mapping.base.as_ptr().wrapping_add(LEN / 2).cast();
        // SAFETY: pages of the mapping, whose bytes stay as they are.
        let done = unsafe { libc::madvise(half, LEN / 2, libc::MADV_DONTFORK) };
        assert_eq!(done, 0, "{}", io::Error::last_os_error());
    }

    #[test]
    fn a_hole_is_mapped_again_and_nothing_else_is_touched() {
        let mapping = filled(3);
        let page = page_size();
        let hole = mapping.base.as_ptr().wrapping_add(page);
        // SAFETY: pages of the mapping that nobody uses; they are mapped again below.
        unsafe {
            assert_eq!(libc::munmap(hole.cast(), page), 0);
            keep_mapped(hole, page);
        }
        for (at, byte) in [(0, 3), (page, 0), (2 * page - 1, 0), (2 * page, 3)] {
            assert_eq!(byte_at(&mapping, at), byte, "at {at}");
        }
        assert!(!has_no_more_mappings(), "a test has few");
    }
}
