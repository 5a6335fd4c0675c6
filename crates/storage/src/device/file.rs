//! [`FileDevice`]: a file, or another block device, by way of the kernel's page cache.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use landfall_nbd::{Extent, Features};
use rustix::fs::{Advice, FallocateFlags, SeekFrom, fadvise, fallocate, seek};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::{BlockDevice, write_zeroes_slowly};

/// How reads wait for the medium of a file that is not in the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileAccess {
    /// Threads wait, one for each read.
    #[default]
    Threads,
    /// Through `io_uring`, into registered memory; by threads where the kernel does not allow it.
    Uring,
}

impl FileAccess {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::Uring => "io_uring",
        }
    }
}

impl FromStr for FileAccess {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = [Self::Threads, Self::Uring].into_iter().find(|access| access.name() == text);
        found.ok_or_else(|| format!("`{text}` is no way to files: threads or io_uring would be"))
    }
}

/// A device in a file. [`flush`](BlockDevice::flush) is `fdatasync`.
///
/// Where that has failed once, nobody knows what is on the medium: the kernel tells of a
/// page that was lost once only. So each later flush fails, too, until the file is opened
/// anew.
#[derive(Debug)]
pub struct FileDevice {
    file: Arc<File>,
    access: FileAccess,
    size: AtomicU64,
    is_read_only: bool,
    is_block_device: bool,
    /// A flush has failed.
    is_lost: AtomicBool,
    /// The file system has no holes.
    has_no_holes: AtomicBool,
}

impl FileDevice {
    /// Opens a file that is there.
    ///
    /// # Errors
    /// It cannot be opened so, or is neither a file nor a block device.
    pub fn open(path: &Path, read_only: bool) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(!read_only).open(path)?;
        let kind = file.metadata()?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            let what = format!("{} is neither a file nor a block device", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        // The metadata of a block device have no size.
        let size = seek(&file, SeekFrom::End(0))?;
        Ok(Self {
            file: Arc::new(file),
            access: FileAccess::Threads,
            size: AtomicU64::new(size),
            is_read_only: read_only,
            is_block_device: kind.is_block_device(),
            is_lost: AtomicBool::new(false),
            has_no_holes: AtomicBool::new(false),
        })
    }

    /// Reads in this way from now on: what a server does for clients that come later.
    ///
    /// # Errors
    /// The kernel does not allow it; the error says why, and what would help. Threads wait then.
    pub fn set_access(&mut self, access: FileAccess) -> io::Result<()> {
        self.access = FileAccess::Threads;
        if access == FileAccess::Uring {
            #[cfg(feature = "uring")]
            crate::server::ring::probe()?;
            #[cfg(not(feature = "uring"))]
            return Err(io::Error::other("this program was built without io_uring"));
        }
        self.access = access;
        Ok(())
    }

    /// How it is read.
    #[must_use]
    pub const fn access(&self) -> FileAccess {
        self.access
    }

    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.file, flags, offset, length)?)
    }

    /// Where data begins at or behind an offset; None: nowhere.
    fn seek(&self, to: SeekFrom) -> io::Result<Option<u64>> {
        match seek(&self.file, to) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NXIO) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    let no: [i32; 3] = [Errno::OPNOTSUPP, Errno::NOSYS, Errno::NODEV].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|number| no.contains(&number))
}

impl BlockDevice for FileDevice {
    fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    fn features(&self) -> Features {
        let always =
            Features::FLUSH.with(Features::FUA).with(Features::MULTI_CONN).with(Features::CACHE);
        if self.is_read_only {
            return always.with(Features::READ_ONLY);
        }
        let written =
            always.with(Features::TRIM).with(Features::WRITE_ZEROES).with(Features::FAST_ZERO);
        if self.is_block_device { written } else { written.with(Features::RESIZE) }
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, offset)
    }

    fn read_if_cached(&self, offset: u64, into: &mut [u8]) -> io::Result<bool> {
        let wanted = into.len();
        let into = &mut [IoSliceMut::new(into)];
        match preadv2(&self.file, into, offset, ReadWriteFlags::NOWAIT) {
            Ok(count) => Ok(count == wanted),
            Err(Errno::AGAIN | Errno::INTR | Errno::OPNOTSUPP) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        self.file.write_all_at(from, offset)
    }

    fn flush(&self) -> io::Result<()> {
        if self.is_lost.load(Ordering::Acquire) {
            return Err(io::Error::other("an earlier flush has failed, and what it lost is lost"));
        }
        let flushed = self.file.sync_data();
        if flushed.is_err() {
            self.is_lost.store(true, Ordering::Release);
        }
        flushed
    }

    fn trim(&self, offset: u64, length: u64) -> io::Result<()> {
        if length == 0 || self.has_no_holes.load(Ordering::Relaxed) {
            return Ok(());
        }
        match self.punch(offset, length) {
            // It is a wish.
            Err(error) if is_unsupported(&error) => {
                self.has_no_holes.store(true, Ordering::Relaxed);
                Ok(())
            }
            other => other,
        }
    }

    fn write_zeroes(
        &self,
        offset: u64,
        length: u64,
        may_punch: bool,
        fast_only: bool,
    ) -> io::Result<()> {
        if length == 0 {
            return Ok(());
        }
        let zeroed = if may_punch {
            self.punch(offset, length)
        } else {
            let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
            fallocate(&self.file, flags, offset, length).map_err(io::Error::from)
        };
        match zeroed {
            Err(error) if is_unsupported(&error) && !fast_only => {
                write_zeroes_slowly(self, offset, length)
            }
            Err(error) if is_unsupported(&error) => Err(io::ErrorKind::Unsupported.into()),
            other => other,
        }
    }

    fn extents(&self, offset: u64, length: u64, most: usize) -> io::Result<Vec<Extent>> {
        if self.is_block_device {
            return Ok(vec![Extent::data(length)]);
        }
        let (end, mut at, mut extents) = (offset + length, offset, Vec::new());
        while at < end && extents.len() < most {
            // Others write meanwhile: what is found is only ever a guess, and goes forward.
            let data = self.seek(SeekFrom::Data(at))?.map_or(end, |data| data.clamp(at, end));
            if data > at {
                extents.push(Extent::hole(data - at));
                at = data;
                continue;
            }
            let hole = self.seek(SeekFrom::Hole(at))?.unwrap_or(end).min(end);
            let hole = if hole > at { hole } else { end };
            extents.push(Extent::data(hole - at));
            at = hole;
        }
        Ok(extents)
    }

    fn cache(&self, offset: u64, length: u64) -> io::Result<()> {
        let Some(length) = std::num::NonZeroU64::new(length) else { return Ok(()) };
        Ok(fadvise(&self.file, offset, Some(length), Advice::WillNeed)?)
    }

    fn file(&self) -> Option<&File> {
        Some(&self.file)
    }

    fn uring_file(&self) -> Option<Arc<File>> {
        (self.access == FileAccess::Uring).then(|| Arc::clone(&self.file))
    }

    fn resize(&self, size: u64) -> io::Result<()> {
        if self.is_block_device || self.is_read_only {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.file.set_len(size)?;
        self.size.store(size, Ordering::Release);
        Ok(())
    }
}
