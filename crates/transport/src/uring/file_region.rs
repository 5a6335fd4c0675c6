//! [`RegionFileRing`]: reads of files into memory that is lent, where others send it from.

use std::fs::File;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::{fmt, io};

use landfall_placement::Span;

use super::file_reads::{FileReads, Read, room, room_of};
use crate::Bell;
use crate::memory::{Pinned, Rights};

/// Reads files into lent memory, which is registered with the kernel: engines and drivers send
/// the bytes from where they landed.
///
/// As of a [`FileRing`](super::FileRing), one thread owns it. The region stays pinned while the
/// ring is there, and for good if the kernel is not done with it. A place that was read into is
/// its user's until [`release`](Self::release).
///
/// ```
/// use std::io::Write;
/// use std::sync::Arc;
///
/// use landfall_transport::memory::{Memory, Regions, Rights};
/// use landfall_transport::uring::RegionFileRing;
///
/// let path = std::env::temp_dir().join(format!("landfall-region-ring-{}", std::process::id()));
/// std::fs::File::create(&path)?.write_all(b"every byte has its place")?;
/// let file = Arc::new(std::fs::File::open(&path)?);
/// std::fs::remove_file(&path)?;
///
/// let (places, regions) = ([(8, 4096)], Regions::new(1));
/// let memory = Memory::zeroed(RegionFileRing::room(&places));
/// let region = regions.lend(memory, Rights::READ | Rights::WRITE)?;
/// // Not every kernel allows it.
/// let Ok(mut ring) = RegionFileRing::open(regions.pin(region)?, &places) else { return Ok(()) };
/// assert!(ring.read(&file, 6, 4, 1)?);
/// let mut landed = Vec::new();
/// while ring.under_way() > 0 {
///     ring.wait(|| false, |_, span| landed.extend(span.ok()))?;
/// }
/// let mut bytes = [0; 4];
/// regions.read(&landed[0], &mut bytes)?;
/// assert_eq!(&bytes, b"byte");
/// ring.release(&landed[0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RegionFileRing {
    reads: FileReads,
    /// Unpinned when nothing is under way, and else never.
    memory: ManuallyDrop<Pinned>,
    /// The short ones come first.
    places: Box<[Place]>,
}

/// A part of the region.
struct Place {
    span: Span,
    /// A read is under way, or its bytes are in use.
    is_taken: bool,
}

impl RegionFileRing {
    /// The bytes that a region needs for these places.
    #[must_use]
    pub fn room(places: &[(usize, usize)]) -> usize {
        room_of(places)
    }

    /// Opens a ring with places from the beginning of a region on, given as pairs of a number and
    /// a length, the short ones first.
    ///
    /// # Errors
    /// [`Unavailable`](super::Unavailable) says why there is none and what would help; the region
    /// is too short, or may not be written.
    pub fn open(memory: Pinned, places: &[(usize, usize)]) -> io::Result<Self> {
        let (mut made, mut at) = (Vec::new(), 0);
        for (count, len) in places {
            for _ in 0..*count {
                let len = u32::try_from(*len).map_err(io::Error::other)?;
                made.push(Place { span: memory.id().span(at, len), is_taken: false });
                at += room(len as usize) as u64;
            }
        }
        let len = u32::try_from(at).map_err(io::Error::other)?;
        let all = memory.resolve(&memory.id().span(0, len), Rights::WRITE);
        let all = all.map_err(io::Error::other)?;
        // SAFETY: the region is pinned, so its memory is there.
        let reads = unsafe { FileReads::open(made.len(), all) }?;
        Ok(Self { reads, memory: ManuallyDrop::new(memory), places: made.into() })
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
    /// The ring is broken for good, or the grant of the region has ended.
    pub fn read(
        &mut self,
        file: &Arc<File>,
        offset: u64,
        len: usize,
        token: u64,
    ) -> io::Result<bool> {
        let is_free = |place: &Place| !place.is_taken && place.span.len as usize >= len;
        let Some(at) = self.places.iter().position(is_free) else { return Ok(false) };
        let place = &mut self.places[at];
        let to = self.memory.resolve(&place.span, Rights::WRITE).map_err(io::Error::other)?;
        let read = Read { file: Arc::clone(file), offset, len, token };
        // SAFETY: the place has `len` bytes in the region, which is pinned until nothing is under
        // way. User space reaches lent memory as atomic words only.
        place.is_taken = unsafe { self.reads.begin(at, to.ptr.as_ptr(), read) }?;
        Ok(place.is_taken)
    }

    /// Sleeps until a read has ended or the bell has rung, and reports what has ended: where the
    /// bytes are, which are fewer than wanted at the end of a file. `has_work` is asked once the
    /// bell is heard; if there is some, nobody sleeps.
    ///
    /// # Errors
    /// The ring is broken for good. Reads that are under way are not reported any more.
    pub fn wait(
        &mut self,
        has_work: impl FnOnce() -> bool,
        mut report: impl FnMut(u64, io::Result<Span>),
    ) -> io::Result<()> {
        let Self { reads, places, .. } = self;
        reads.wait(has_work, |ended| {
            let place = &mut places[ended.place];
            // Where nothing came there is nothing to use.
            place.is_taken = ended.outcome.is_ok();
            let landed = ended.outcome.map(|count| Span { len: count as u32, ..place.span });
            report(ended.token, landed);
        })
    }

    /// The bytes that were reported there are not needed any more: their place may be read into
    /// again.
    pub fn release(&mut self, landed: &Span) {
        let same = |place: &Place| {
            (place.span.region, place.span.offset) == (landed.region, landed.offset)
        };
        let at = self.places.iter().position(same);
        // A place into which a read is under way was not reported, so nobody gives it back.
        if let Some(at) = at.filter(|at| self.reads.is_idle(*at)) {
            self.places[at].is_taken = false;
        }
    }
}

impl Drop for RegionFileRing {
    fn drop(&mut self) {
        if self.reads.drain() {
            // SAFETY: it is dropped here only, and not used afterwards; no operation names any
            // of its memory any more.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}

impl fmt::Debug for RegionFileRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegionFileRing")
            .field("memory", &*self.memory)
            .field("under_way", &self.under_way())
            .finish_non_exhaustive()
    }
}
