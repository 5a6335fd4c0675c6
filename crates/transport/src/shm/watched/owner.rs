//! [`Watched`]: memory of ours that others write, and what of it is armed.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use thiserror::Error;

use super::coverage::Coverage;
use super::filter::{Filter, Parts, Shape, words_of};
use super::report::{Hit, Touch};
use crate::memory::{Piece, SharedMemory, SharedMemoryError};

/// Why memory cannot be watched, or a range not be armed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WatchedError {
    /// There is no memory, or not so much.
    #[error(transparent)]
    Memory(#[from] SharedMemoryError),
    /// The range has no bytes.
    #[error("a range without bytes cannot be armed")]
    Empty,
    /// The limit of armed ranges is reached.
    #[error("{0} ranges are armed, and that is the bound: disarm one, or make it larger")]
    Full(u32),
}

/// A range that is armed. It is given back to [`Watched::disarm`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a range that is not disarmed stays armed"]
pub struct Armed {
    words: Range<u64>,
    touch: Touch,
    of: u64,
}

/// Memory of this process that others write, with tripwires.
///
/// It goes to others by two descriptors: that of the data, and that of the filter,
/// which nobody but this can write. Armed ranges are counted: a word that two of them
/// cover stays armed until both are disarmed.
#[derive(Debug)]
pub struct Watched {
    shared: SharedMemory,
    data: Piece,
    filter_memory: SharedMemory,
    filter: Piece,
    shape: Shape,
    armed: Mutex<Armings>,
    most: u32,
    /// Distinguishes the tokens of this memory from those of another.
    id: u64,
}

#[derive(Debug, Default)]
struct Armings {
    writes: Coverage,
    reads: Coverage,
    count: u32,
}

impl Watched {
    /// `len` bytes, all zero, for others to write, of which at most `most_armed` ranges
    /// are armed at a time. The name is for people, in `/proc`.
    ///
    /// # Errors
    /// The kernel has no such memory.
    pub fn create(name: &str, len: u64, most_armed: u32) -> Result<Self, WatchedError> {
        let watched = Self::new(name, len, most_armed)?;
        watched.shared.seal()?;
        Ok(watched)
    }

    /// The same for others to read: nobody but this process can map the memory to write
    /// it, by whatever way it got the descriptor.
    ///
    /// # Errors
    /// The kernel has no such memory.
    pub fn create_for_readers(name: &str, len: u64, most_armed: u32) -> Result<Self, WatchedError> {
        let watched = Self::new(name, len, most_armed)?;
        watched.shared.seal_for_readers()?;
        Ok(watched)
    }

    fn new(name: &str, len: u64, most: u32) -> Result<Self, WatchedError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let shared = SharedMemory::create(name, len)?;
        let shape = Shape::of(len);
        let filter_memory = SharedMemory::create("landfall-filter", 2 * shape.words() * 8)?;
        filter_memory.seal_for_readers()?;
        Ok(Self {
            data: Piece::whole(&shared),
            shared,
            filter: Piece::whole(&filter_memory),
            filter_memory,
            shape,
            armed: Mutex::default(),
            most,
            id: NEXT.fetch_add(1, Ordering::Relaxed),
        })
    }

    /// The memory, to be used here.
    #[must_use]
    #[inline]
    pub const fn memory(&self) -> &Piece {
        &self.data
    }

    /// The memory, to be handed out.
    #[must_use]
    pub const fn data(&self) -> &SharedMemory {
        &self.shared
    }

    /// The descriptor of the filter, to be handed out with the memory.
    #[must_use]
    pub fn filter_fd(&self) -> BorrowedFd<'_> {
        self.filter_memory.fd()
    }

    /// From now on accesses to the words of these bytes are told. Each write that a
    /// look at the memory after this does not see is.
    ///
    /// # Errors
    /// The range is empty or not within the memory, or too many are armed.
    pub fn arm(&self, range: Range<u64>, touch: Touch) -> Result<Armed, WatchedError> {
        if range.is_empty() {
            return Err(WatchedError::Empty);
        }
        if range.end > self.data.len() {
            let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
            let size = self.data.len();
            return Err(SharedMemoryError::OutOfBounds { offset: range.start, len, size }.into());
        }
        let words = words_of(range.start, range.end - range.start);
        {
            let mut armed = self.armed.lock().unwrap_or_else(PoisonError::into_inner);
            if armed.count >= self.most {
                return Err(WatchedError::Full(self.most));
            }
            armed.count += 1;
            let filter = self.filter(touch);
            armed.coverage(touch).add(words.clone(), |part| filter.set(&part));
        }
        Filter::<AtomicU64>::settle();
        Ok(Armed { words, touch, of: self.id })
    }

    /// These bytes are armed no more, as far as no other range covers them. What was
    /// touched before may still be told.
    pub fn disarm(&self, armed: Armed) {
        let Armed { words, touch, of } = armed;
        if of != self.id {
            return;
        }
        let mut armed = self.armed.lock().unwrap_or_else(PoisonError::into_inner);
        armed.count -= 1;
        let filter = self.filter(touch);
        armed.coverage(touch).remove(words, |part| filter.clear(&part));
    }

    /// How many ranges are armed.
    #[must_use]
    pub fn armed(&self) -> u32 {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner).count
    }

    /// Is the hit within this memory? What a writer says is believed no further.
    #[must_use]
    #[inline]
    pub const fn contains(&self, hit: &Hit) -> bool {
        match hit.offset.checked_add(hit.len) {
            Some(end) => hit.len > 0 && end <= self.data.len(),
            None => false,
        }
    }

    fn filter(&self, touch: Touch) -> Filter<'_, AtomicU64> {
        let words = self.filter.words();
        let Parts { bits, summary } = self.shape.parts(touch);
        let part = |part: Range<u64>| words.get(part.start as usize..part.end as usize);
        Filter::new(part(bits).unwrap_or_default(), part(summary).unwrap_or_default())
    }
}

impl Armings {
    const fn coverage(&mut self, touch: Touch) -> &mut Coverage {
        match touch {
            Touch::Write => &mut self.writes,
            Touch::Read => &mut self.reads,
        }
    }
}

impl Armed {
    /// Does the hit touch it?
    #[must_use]
    #[inline]
    pub fn is_touched_by(&self, hit: &Hit) -> bool {
        let touched = words_of(hit.offset, hit.len);
        hit.touch == self.touch && touched.start < self.words.end && self.words.start < touched.end
    }
}
