//! [`FileRing`]: reads of files into registered memory, many under way at a time.

use std::fs::File;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::{fmt, io};

use super::file_reads::{FileReads, Read, room, room_of};
use crate::Bell;
use crate::memory::{Memory, RawSpan};

/// Reads files into memory that is registered with the kernel: its pages are looked up once, not
/// for each read. Where the limit of locked memory has no room for it, which all processes of a
/// user share, they are looked up for each read.
///
/// One thread owns the ring: it starts reads and [waits](Self::wait) for their ends. Others wake
/// it by its [bell](Self::bell). [`RegionFileRing`](super::RegionFileRing) reads into memory that is
/// lent.
///
/// ```
/// use std::io::Write;
/// use std::sync::Arc;
///
/// use landfall_transport::uring::FileRing;
///
/// let path = std::env::temp_dir().join(format!("landfall-file-ring-{}", std::process::id()));
/// std::fs::File::create(&path)?.write_all(b"every byte has its place")?;
/// let file = Arc::new(std::fs::File::open(&path)?);
/// std::fs::remove_file(&path)?;
///
/// // Not every kernel allows it.
/// let Ok(mut ring) = FileRing::open(&[(8, 4096)]) else { return Ok(()) };
/// assert!(ring.read(&file, 6, 4, 1)?);
/// let mut read = Vec::new();
/// while ring.under_way() > 0 {
///     ring.wait(|| false, |token, bytes| read.push((token, bytes.unwrap().to_vec())))?;
/// }
/// assert_eq!(read, [(1, b"byte".to_vec())]);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct FileRing {
    reads: FileReads,
    /// What operations name: dropped when none is under way, and else never. The short places
    /// come first. Nobody touches one into which a read is under way.
    places: ManuallyDrop<Vec<Memory>>,
}

impl FileRing {
    /// Opens a ring with places, given as pairs of a number and a length, the short ones first.
    ///
    /// # Errors
    /// [`Unavailable`](super::Unavailable) says why there is none and what would help.
    pub fn open(places: &[(usize, usize)]) -> io::Result<Self> {
        let count: usize = places.iter().map(|(count, _)| count).sum();
        let mut rest = Memory::zeroed(room_of(places));
        let all = RawSpan { ptr: rest.base(), len: rest.len() };
        // SAFETY: the memory is there.
        let reads = unsafe { FileReads::open(count, all) }?;
        let mut made = Vec::with_capacity(count);
        for (count, len) in places {
            for _ in 0..*count {
                let (memory, behind) = rest.split_at(room(*len)).map_err(io::Error::other)?;
                made.push(memory);
                rest = behind;
            }
        }
        Ok(Self { reads, places: ManuallyDrop::new(made) })
    }

    /// Ends a [`wait`](Self::wait) of the ring's thread.
    #[must_use]
    pub fn bell(&self) -> Arc<Bell> {
        Arc::clone(self.reads.bell())
    }

    /// The kernel has the memory's pages at hand.
    #[must_use]
    pub const fn is_registered(&self) -> bool {
        self.reads.is_registered()
    }

    /// Reads that have not ended.
    #[must_use]
    pub const fn under_way(&self) -> usize {
        self.reads.under_way()
    }

    /// Begins to read, with the next [`wait`](Self::wait). False: no place is free that is long
    /// enough.
    ///
    /// # Errors
    /// The ring is broken for good.
    pub fn read(
        &mut self,
        file: &Arc<File>,
        offset: u64,
        len: usize,
        token: u64,
    ) -> io::Result<bool> {
        let is_free =
            |(at, memory): (usize, &Memory)| self.reads.is_idle(at) && memory.len() >= len;
        let Some(at) = self.places.iter().enumerate().position(is_free) else { return Ok(false) };
        let to = self.places[at].base().as_ptr();
        let read = Read { file: Arc::clone(file), offset, len, token };
        // SAFETY: the place has `len` bytes, which nobody touches while it is not idle; it is
        // dropped when nothing is under way, and else never.
        unsafe { self.reads.begin(at, to, read) }
    }

    /// Sleeps until a read has ended or the bell has rung, and reports what has ended: the bytes,
    /// which are fewer than wanted at the end of a file. `has_work` is asked once the bell is
    /// heard; if there is some, nobody sleeps.
    ///
    /// # Errors
    /// The ring is broken for good. Reads that are under way are not reported any more.
    pub fn wait(
        &mut self,
        has_work: impl FnOnce() -> bool,
        mut report: impl FnMut(u64, io::Result<&[u8]>),
    ) -> io::Result<()> {
        let Self { reads, places } = self;
        reads.wait(has_work, |ended| {
            let bytes = ended.outcome.map(|count| &places[ended.place][..count]);
            report(ended.token, bytes);
        })
    }
}

impl Drop for FileRing {
    fn drop(&mut self) {
        if self.reads.drain() {
            // SAFETY: it is dropped here only, and not used afterwards; no operation names any
            // of its memory any more.
            unsafe { ManuallyDrop::drop(&mut self.places) };
        }
    }
}

impl fmt::Debug for FileRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileRing").field("under_way", &self.under_way()).finish_non_exhaustive()
    }
}
