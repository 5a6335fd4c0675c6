//! [`Arena`]: memory in large, page-aligned pieces that is used again and again.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thiserror::Error;

use super::Memory;
use super::exported::ExportedMapping;
use super::mapping::{HUGE_PAGE, Mapping, page_size};

/// How an [`Arena`] grows, and how far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaConfig {
    /// The arena grows by this many bytes, rounded up to 2 MiB, or by more
    /// when more is asked for in one piece.
    pub chunk: usize,
    /// It never has more bytes from the kernel than this.
    pub max_bytes: usize,
    /// Ask the kernel for huge pages. Fewer entries in the translation cache
    /// make large transfers faster; but each first touch takes 2 MiB.
    pub huge_pages: bool,
    /// Let neighbours map it, to be read: processes of this user on this host, which a
    /// driver finds. Then bytes go to them with one copy. Its pages are those of files that
    /// nobody else can write, and children of this process do not have them. Where the
    /// kernel has no such files, it is memory like any other.
    pub same_host: bool,
}

impl Default for ArenaConfig {
    fn default() -> Self {
        Self { chunk: 16 << 20, max_bytes: 1 << 30, huge_pages: true, same_host: false }
    }
}

/// Why an [`Arena`] gave no memory.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ArenaError {
    /// The bound of the configuration is reached.
    #[error(
        "no {asked} bytes in one piece within the arena's bound of {max} ({mapped} are mapped): \
         drop memory that is not needed, or raise `max_bytes`"
    )]
    Exhausted {
        /// How much was asked for.
        asked: usize,
        /// How much the arena has from the kernel.
        mapped: usize,
        /// How much it may have.
        max: usize,
    },
    /// The kernel has no more.
    #[error("the kernel mapped no {len} bytes: {error}")]
    Kernel {
        /// How much the arena wanted from the kernel.
        len: usize,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
}

/// Page-aligned memory, friendly to huge pages, that grows up to a bound and
/// is used again. Clones are the same arena.
///
/// ```
/// use landfall_transport::memory::{Arena, ArenaConfig};
///
/// let arena = Arena::new(ArenaConfig { max_bytes: 64 << 20, ..ArenaConfig::default() });
/// let memory = arena.take(1 << 20)?;
/// assert_eq!(memory.len(), 1 << 20);
/// drop(memory); // it goes back into the arena
/// assert_eq!(arena.used_bytes(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Arena(Arc<Inner>);

struct Inner {
    config: ArenaConfig,
    page: usize,
    chunks: Mutex<Chunks>,
}

#[derive(Default)]
struct Chunks {
    /// A place is empty after its chunk went back to the kernel.
    list: Vec<Option<Chunk>>,
    mapped: usize,
    used: usize,
}

/// Pages of this process alone, or of a file that neighbours may read.
enum Pages {
    Private(Mapping),
    Exported(ExportedMapping),
}

impl Pages {
    fn new(len: usize, config: &ArenaConfig) -> io::Result<Self> {
        if config.same_host
            && let Ok(mapping) = ExportedMapping::new(len, config.huge_pages)
        {
            return Ok(Self::Exported(mapping));
        }
        Mapping::anonymous(len, config.huge_pages).map(Self::Private)
    }

    const fn mapping(&self) -> &Mapping {
        match self {
            Self::Private(mapping) => mapping,
            Self::Exported(exported) => exported.mapping(),
        }
    }
}

/// One mapping, parts of which are taken.
struct Chunk {
    pages: Pages,
    /// Free parts: length by offset. Neighbours are joined, so a chunk that
    /// is free as a whole has one entry.
    free: BTreeMap<usize, usize>,
}

impl Arena {
    /// An arena that has nothing yet.
    #[must_use]
    pub fn new(config: ArenaConfig) -> Self {
        Self(Arc::new(Inner { config, page: page_size(), chunks: Mutex::default() }))
    }

    /// `len` bytes that start on a page of their own. Memory that was used
    /// before still holds what its last owner left in it, so this is for
    /// bytes that will be overwritten; else see [`take_zeroed`](Self::take_zeroed).
    ///
    /// # Errors
    /// The bound of the configuration is reached, or the kernel has no more.
    pub fn take(&self, len: usize) -> Result<Memory, ArenaError> {
        let mut chunks = self.0.lock();
        let exhausted = ArenaError::Exhausted {
            asked: len,
            mapped: chunks.mapped,
            max: self.0.config.max_bytes,
        };
        let Some(size) = len.max(1).checked_next_multiple_of(self.0.page) else {
            return Err(exhausted);
        };
        let found = chunks.cut(size);
        let (chunk, offset, base) = match found {
            Some(found) => found,
            None => {
                self.0.grow(&mut chunks, size, exhausted)?;
                chunks.cut(size).ok_or(ArenaError::Exhausted {
                    asked: len,
                    mapped: chunks.mapped,
                    max: self.0.config.max_bytes,
                })?
            }
        };
        chunks.used += size;
        let lease = Lease { arena: Arc::clone(&self.0), chunk, offset, len: size };
        // SAFETY: these pages are mapped, initialised, nobody else's until the
        // lease ends, and start on a page; `size` is a number of whole pages.
        Ok(unsafe { Memory::from_parts(base, len, Arc::new(lease)) })
    }

    /// `len` bytes that start on a page of their own, all zero.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn take_zeroed(&self, len: usize) -> Result<Memory, ArenaError> {
        let mut memory = self.take(len)?;
        memory.fill(0);
        Ok(memory)
    }

    /// Returns chunks of which nothing is used back to the kernel.
    pub fn trim(&self) {
        self.0.lock().trim();
    }

    /// How much the arena has from the kernel.
    #[must_use]
    pub fn mapped_bytes(&self) -> usize {
        self.0.lock().mapped
    }

    /// How much of it is used, in whole pages.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.0.lock().used
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena")
            .field("config", &self.0.config)
            .field("mapped", &self.mapped_bytes())
            .field("used", &self.used_bytes())
            .finish_non_exhaustive()
    }
}

impl Inner {
    /// A thread that panicked under the lock left nothing half done.
    fn lock(&self) -> MutexGuard<'_, Chunks> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Maps a chunk with room for `size` bytes in one piece.
    fn grow(&self, chunks: &mut Chunks, size: usize, full: ArenaError) -> Result<(), ArenaError> {
        let wanted =
            [size.max(self.config.chunk), size].map(|len| len.checked_next_multiple_of(HUGE_PAGE));
        let max = self.config.max_bytes;
        let fits = |chunks: &Chunks, len: Option<usize>| {
            len.filter(|len| chunks.mapped.checked_add(*len).is_some_and(|sum| sum <= max))
        };
        // A whole chunk if it fits, else just what is asked for; chunks that
        // lie idle but are too short for this make room.
        let len = match fits(chunks, wanted[0]).or_else(|| fits(chunks, wanted[1])) {
            Some(len) => len,
            None => {
                chunks.trim();
                fits(chunks, wanted[0]).or_else(|| fits(chunks, wanted[1])).ok_or(full)?
            }
        };
        let pages =
            Pages::new(len, &self.config).map_err(|error| ArenaError::Kernel { len, error })?;
        chunks.add(pages);
        Ok(())
    }
}

impl Chunks {
    fn add(&mut self, pages: Pages) {
        let len = pages.mapping().len();
        self.mapped += len;
        let chunk = Chunk { free: BTreeMap::from([(0, len)]), pages };
        match self.list.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(chunk),
            None => self.list.push(Some(chunk)),
        }
    }

    /// The first free part that is long enough: chunk, offset, address.
    fn cut(&mut self, size: usize) -> Option<(usize, usize, NonNull<u8>)> {
        self.list.iter_mut().enumerate().find_map(|(index, chunk)| {
            let chunk = chunk.as_mut()?;
            let (&offset, &len) = chunk.free.iter().find(|(_, len)| **len >= size)?;
            chunk.free.remove(&offset);
            if len > size {
                chunk.free.insert(offset + size, len - size);
            }
            // SAFETY: free parts lie within the mapping.
            Some((index, offset, unsafe { chunk.pages.mapping().base().add(offset) }))
        })
    }

    /// Makes a part free again, joined with what is free beside it.
    fn join(&mut self, index: usize, offset: usize, len: usize) {
        self.used -= len;
        let Some(Some(chunk)) = self.list.get_mut(index) else { return };
        let (mut from, mut to) = (offset, offset + len);
        if let Some((&start, &len)) = chunk.free.range(..offset).next_back()
            && start + len == offset
        {
            from = start;
        }
        if let Some(len) = chunk.free.remove(&to) {
            to += len;
        }
        chunk.free.insert(from, to - from);
    }

    fn trim(&mut self) {
        for place in &mut self.list {
            let len = |chunk: &Chunk| chunk.pages.mapping().len();
            let idle = place.take_if(|chunk| chunk.free.get(&0) == Some(&len(chunk)));
            self.mapped -= idle.as_ref().map_or(0, len);
        }
    }
}

/// A part that is taken. It goes back when the last [`Memory`] in it is gone.
struct Lease {
    arena: Arc<Inner>,
    chunk: usize,
    offset: usize,
    len: usize,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.arena.lock().join(self.chunk, self.offset, self.len);
    }
}
