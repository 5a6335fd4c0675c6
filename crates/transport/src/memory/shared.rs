//! [`SharedMemory`]: bytes that other processes may write, with a descriptor to pass on;
//! and [`SharedView`], such bytes to be read only.

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use landfall_placement::{WordFunction, WordWidth};
use thiserror::Error;

use super::mapping::Mapping;
use super::words;
use super::words::WORD;

/// Memory that is shared with other processes by a file descriptor (memfd).
/// It is never a slice: others may write it at any moment. Clones are the
/// same memory; it stays mapped until the last clone and the last region
/// that was lent of it are gone.
///
/// The file cannot shrink (it is sealed so), and therefore no access can
/// fail with a signal, whatever the other process does.
///
/// ```
/// use landfall_transport::memory::SharedMemory;
///
/// let ours = SharedMemory::create("example", 4096)?;
/// // The descriptor goes to another process, over a Unix socket for instance.
/// let theirs = SharedMemory::from_fd(ours.fd().try_clone_to_owned()?)?;
/// ours.copy_in(100, b"hello")?;
/// let mut bytes = [0; 5];
/// theirs.copy_out(100, &mut bytes)?;
/// assert_eq!(&bytes, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct SharedMemory(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    mapping: Mapping,
    file: OwnedFd,
}

/// Why memory cannot be shared, or not be used so.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SharedMemoryError {
    /// Nothing to share.
    #[error("shared memory needs at least one byte")]
    Empty,
    /// Longer than memory can be.
    #[error("shared memory of {0} bytes is more than this machine can address")]
    TooLong(u64),
    /// The name has a zero byte in it, or more than 249 bytes.
    #[error("the name of shared memory has at most 249 bytes, none of them zero")]
    Name,
    /// The file could lose its bytes while they are used.
    #[error(
        "the descriptor is no shared memory that keeps its size: make it with memfd_create and \
         MFD_ALLOW_SEALING, without huge pages, or seal it with F_SEAL_SHRINK"
    )]
    NotSealable,
    /// A system call failed.
    #[error("{call} failed: {error}")]
    System {
        /// Which one.
        call: &'static str,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
    /// The bytes are not all there.
    #[error("{len} bytes at {offset} end beyond the {size} bytes of the shared memory")]
    OutOfBounds {
        /// The first byte.
        offset: u64,
        /// How many bytes.
        len: usize,
        /// How many the shared memory has.
        size: u64,
    },
    /// The word does not lie at a multiple of its width.
    #[error("a word of {width} bytes cannot lie at offset {offset}: use a multiple of its width")]
    Misaligned {
        /// Where it was asked for.
        offset: u64,
        /// Its width.
        width: u32,
    },
}

impl SharedMemory {
    /// `len` bytes, all zero. The name is for people, in `/proc`.
    ///
    /// # Errors
    /// The length or the name cannot be, or the kernel refuses.
    pub fn create(name: &str, len: u64) -> Result<Self, SharedMemoryError> {
        /// The longest name that the kernel takes (fs/memfd.c).
        const NAME_MAX: usize = 249;
        let name = CString::new(name).ok().filter(|name| name.as_bytes().len() <= NAME_MAX);
        let name = name.ok_or(SharedMemoryError::Name)?;
        let size = libc::off_t::try_from(len).map_err(|_| SharedMemoryError::TooLong(len))?;
        // SAFETY: the name is a C string that outlives the call.
        let fd = unsafe {
            libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
        };
        let fd = told("memfd_create", fd)?;
        // SAFETY: a descriptor that was just made, and belongs to nobody else.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: an open descriptor and a number.
        told("ftruncate", unsafe { libc::ftruncate(file.as_raw_fd(), size) })?;
        Self::from_fd(file)
    }

    /// The memory behind a descriptor that came from another process. It is
    /// sealed against shrinking if it was not before, then mapped as long as
    /// it is now.
    ///
    /// # Errors
    /// It is no memfd that can be sealed, it is empty, or the kernel refuses.
    pub fn from_fd(file: OwnedFd) -> Result<Self, SharedMemoryError> {
        seal_against_shrinking(file.as_raw_fd())?;
        // Only now: before the seal the size might still have changed.
        let size = size_of_file(file.as_raw_fd())?;
        if size == 0 {
            return Err(SharedMemoryError::Empty);
        }
        let len = isize::try_from(size).map_err(|_| SharedMemoryError::TooLong(size))?;
        let mapping = Mapping::shared(file.as_fd(), len.unsigned_abs())
            .map_err(|error| SharedMemoryError::System { call: "mmap", error })?;
        Ok(Self(Arc::new(Inner { mapping, file })))
    }

    /// The descriptor, to be handed to another process.
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

    /// Copies bytes in. Anyone who sees an aligned word of them sees all that
    /// was written before it.
    ///
    /// # Errors
    /// They do not all fit.
    pub fn copy_in(&self, offset: u64, bytes: &[u8]) -> Result<(), SharedMemoryError> {
        words::copy_in(self.words(), self.check(offset, bytes.len())?, bytes);
        Ok(())
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// They are not all there.
    pub fn copy_out(&self, offset: u64, into: &mut [u8]) -> Result<(), SharedMemoryError> {
        words::copy_out(self.words(), self.check(offset, into.len())?, into);
        Ok(())
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

    /// Where the bytes lie, for as long as a clone of this exists.
    pub(super) fn base(&self) -> NonNull<u8> {
        self.0.mapping.base()
    }

    /// From now on the file keeps its length, and nobody can add to what is sealed: a
    /// process that it was handed to cannot take it from the next.
    ///
    /// # Errors
    /// Seals can no more be added.
    pub fn seal(&self) -> Result<(), SharedMemoryError> {
        self.add_seals(libc::F_SEAL_GROW | libc::F_SEAL_SEAL)
    }

    /// The same, and nobody else can write these bytes any more, by whatever
    /// descriptor: only mappings that were there before can, as this one. For memory
    /// that is handed out to be read.
    ///
    /// # Errors
    /// The kernel is older than 5.1, or seals can no more be added.
    pub fn seal_for_readers(&self) -> Result<(), SharedMemoryError> {
        self.add_seals(libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_GROW | libc::F_SEAL_SEAL)
    }

    fn add_seals(&self, seals: libc::c_int) -> Result<(), SharedMemoryError> {
        let fd = self.0.file.as_raw_fd();
        // SAFETY: an open descriptor and a number.
        told("fcntl", unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) })?;
        Ok(())
    }

    /// The last page is mapped as a whole, so the last word is too.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        let len = self.0.mapping.len().div_ceil(WORD);
        // SAFETY: mapped as long as `self` is borrowed, and it cannot shrink;
        // other processes' writes are allowed behind a reference to atomics.
        unsafe { std::slice::from_raw_parts(self.base().as_ptr().cast(), len) }
    }

    fn check(&self, offset: u64, len: usize) -> Result<usize, SharedMemoryError> {
        let size = self.len();
        match offset.checked_add(len as u64) {
            Some(end) if end <= size => Ok(offset as usize),
            _ => Err(SharedMemoryError::OutOfBounds { offset, len, size }),
        }
    }
}

/// Only files that are memory, and whose size can be sealed, never lose pages
/// that were mapped; a page of another file that is cut off, or a huge page
/// that is not there, is a SIGBUS.
///
/// First of all it is asked for its seals, which nothing but memory has: all other questions
/// may be put to a file system, which answers when it likes.
pub(super) fn seal_against_shrinking(fd: RawFd) -> Result<(), SharedMemoryError> {
    // SAFETY: an open descriptor.
    let seals = unsafe { libc::fcntl(fd, libc::F_GET_SEALS) };
    if seals < 0 {
        return Err(SharedMemoryError::NotSealable);
    }
    let mut stat = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: there is room for the answer.
    told("fstatfs", unsafe { libc::fstatfs(fd, stat.as_mut_ptr()) })?;
    // SAFETY: the call succeeded and filled it in.
    if unsafe { stat.assume_init() }.f_type != libc::TMPFS_MAGIC as _ {
        return Err(SharedMemoryError::NotSealable);
    }
    if seals & libc::F_SEAL_SHRINK != 0 {
        return Ok(());
    }
    // SAFETY: an open descriptor and a constant.
    match unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) } {
        0 => Ok(()),
        _ => Err(SharedMemoryError::NotSealable),
    }
}

pub(super) fn size_of_file(fd: RawFd) -> Result<u64, SharedMemoryError> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: there is room for the answer.
    told("fstat", unsafe { libc::fstat(fd, stat.as_mut_ptr()) })?;
    // SAFETY: the call succeeded and filled it in.
    Ok(unsafe { stat.assume_init() }.st_size.unsigned_abs())
}

/// What a system call returned, or the error with its name.
pub(super) fn told(
    call: &'static str,
    result: libc::c_int,
) -> Result<libc::c_int, SharedMemoryError> {
    match result {
        -1 => Err(SharedMemoryError::System { call, error: io::Error::last_os_error() }),
        good => Ok(good),
    }
}

/// Memory that is shared by a file descriptor (memfd) and mapped to be read
/// only. Its owner may write it at any moment. Clones are the same memory.
///
/// The file cannot shrink, so no access can fail with a signal.
#[derive(Clone, Debug)]
pub struct SharedView(Arc<ViewInner>);

#[derive(Debug)]
struct ViewInner {
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
        Ok(Self(Arc::new(ViewInner { mapping, file })))
    }

    /// The same of memory that somebody else has sealed: its length stays, and it need not be
    /// changed to be sure of that.
    ///
    /// # Errors
    /// As [`from_fd`](Self::from_fd); the file can still shrink or grow.
    pub(crate) fn from_sealed_fd(file: OwnedFd) -> Result<Self, SharedMemoryError> {
        let needed = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
        // SAFETY: an open descriptor. What has no seals gives -1, which has every bit: then
        // `from_fd` refuses it.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        if seals & needed != needed {
            return Err(SharedMemoryError::NotSealable);
        }
        Self::from_fd(file)
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
