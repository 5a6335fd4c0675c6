//! How rings lie in memory: [`Records`] and [`Bytes`], and the counters of their two sides.
//!
//! The counter of each side has 128 bytes of its own, for processors fetch lines of
//! 64 bytes in pairs; what is in the ring follows.
//!
//! Each side keeps its own counter definitively and in private, and publishes copies of it.
//! A counter never wraps: 2^64 records are some hundred years. What the other side
//! publishes is believed only within the ring: a producer cannot have filled more
//! than there is, nor a consumer have emptied more than was filled. Beyond that it
//! is [`Corrupt`], and nothing was done.
//!
//! The copies are lazy: the other side's is looked at only when the ring seems full
//! or empty, one's own is published when somebody says so, or when it must be.

use std::sync::atomic::Ordering::{Acquire, Release};

use thiserror::Error;

use crate::memory::{Piece, SharedMemoryError};
use crate::shm::Word;

/// Bytes that one side's words have to themselves.
pub(crate) const APART: u64 = 128;
/// Where the counter of the producer lies, and where that of the consumer.
pub(super) const FILLED: u64 = 0;
pub(super) const EMPTIED: u64 = APART;
/// Where the contents begin.
pub(super) const CONTENTS: u64 = 2 * APART;

/// A ring cannot lie so.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// The length of a record.
    #[error("records of {0} bytes: use a multiple of 8, from 8 to 4096")]
    RecordLength(u32),
    /// How many there are.
    #[error("a ring with room for {0}: use a power of two, from 2 to 2^30")]
    Capacity(u64),
    /// There is not enough memory, or it begins at the wrong place.
    #[error(transparent)]
    Memory(#[from] SharedMemoryError),
}

/// A ring of records that all have the same length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Records {
    record_len: u32,
    capacity: u64,
}

impl Records {
    /// Room for `capacity` records of `record_len` bytes.
    ///
    /// # Errors
    /// The length is no multiple of 8 from 8 to 4096, the capacity no power of two
    /// from 2 to 2^30.
    pub const fn new(record_len: u32, capacity: u64) -> Result<Self, LayoutError> {
        if record_len == 0 || record_len > 4096 || !record_len.is_multiple_of(8) {
            return Err(LayoutError::RecordLength(record_len));
        }
        if !is_possible(capacity) {
            return Err(LayoutError::Capacity(capacity));
        }
        Ok(Self { record_len, capacity })
    }

    /// How long a record is.
    #[must_use]
    pub const fn record_len(&self) -> u32 {
        self.record_len
    }

    /// How many records there is room for.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// How many bytes of memory the ring takes.
    #[must_use]
    pub const fn memory_len(&self) -> u64 {
        CONTENTS + self.capacity * self.record_len as u64
    }
}

/// A ring of bytes, which need not be written as they are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes {
    capacity: u64,
}

impl Bytes {
    /// Room for `capacity` bytes.
    ///
    /// # Errors
    /// It is no power of two from 64 to 2^30.
    pub const fn new(capacity: u64) -> Result<Self, LayoutError> {
        if capacity < 64 || !is_possible(capacity) {
            return Err(LayoutError::Capacity(capacity));
        }
        Ok(Self { capacity })
    }

    /// How many bytes there is room for.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// How many bytes of memory the ring takes.
    #[must_use]
    pub const fn memory_len(&self) -> u64 {
        CONTENTS + self.capacity
    }
}

const fn is_possible(capacity: u64) -> bool {
    capacity >= 2 && capacity <= 1 << 30 && capacity.is_power_of_two()
}

/// The three parts of a ring: both counters and the contents.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    pub(super) control: Piece,
    pub(super) contents: Piece,
}

impl Parts {
    pub(super) fn of(memory: &Piece, len: u64) -> Result<Self, LayoutError> {
        Ok(Self {
            control: memory.part(0..CONTENTS)?,
            contents: memory.part(CONTENTS..len.max(CONTENTS))?,
        })
    }
}

/// The other side wrote a counter that cannot be. What it says from now on is not
/// worth reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the other side's counter is {found}, which is not within {least}..={most}: end with it")]
pub struct Corrupt {
    /// What its counter says.
    pub found: u64,
    /// The least that it could say.
    pub least: u64,
    /// The most that it could say.
    pub most: u64,
}

/// The producer's side.
#[derive(Debug)]
pub(crate) struct Filled {
    /// How many were written.
    count: u64,
    /// How much of that the consumer was told.
    published: u64,
    /// How many the consumer has read, as far as is known.
    emptied: u64,
    capacity: u64,
}

impl Filled {
    pub(crate) const fn new(capacity: u64) -> Self {
        Self { count: 0, published: 0, emptied: 0, capacity }
    }

    /// How many were written; the place of the next is this modulo the capacity.
    #[inline]
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// How many are written and not published.
    #[inline]
    pub(crate) const fn pending(&self) -> u64 {
        self.count - self.published
    }

    /// How much room is known of without a look.
    #[inline]
    pub(crate) const fn known_room(&self) -> u64 {
        self.capacity - (self.count - self.emptied)
    }

    /// Looks how far the consumer has come; gives how much room there is.
    #[inline]
    pub(crate) fn look(&mut self, emptied: &impl Word) -> Result<u64, Corrupt> {
        let found = emptied.load(Acquire);
        // Only what was published can have been read, and nothing is unread again.
        if found < self.emptied || found > self.published {
            return Err(Corrupt { found, least: self.emptied, most: self.published });
        }
        self.emptied = found;
        Ok(self.known_room())
    }

    /// This many more were written; no more than there is room.
    #[inline]
    pub(crate) const fn add(&mut self, count: u64) {
        self.count += count;
    }

    /// Tells the consumer all that was written.
    #[inline]
    pub(crate) fn publish(&mut self, filled: &impl Word) {
        if self.published != self.count {
            self.published = self.count;
            filled.store(self.count, Release);
        }
    }
}

/// The consumer's side.
#[derive(Debug)]
pub(crate) struct Emptied {
    /// How many were read.
    count: u64,
    /// How much of that the producer was told.
    published: u64,
    /// How many are there to be read or were, as far as is known.
    filled: u64,
    capacity: u64,
}

impl Emptied {
    pub(crate) const fn new(capacity: u64) -> Self {
        Self { count: 0, published: 0, filled: 0, capacity }
    }

    /// How many were read; the place of the next is this modulo the capacity.
    #[inline]
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// How many are read whose room the producer was not told of.
    #[inline]
    pub(crate) const fn pending(&self) -> u64 {
        self.count - self.published
    }

    /// How many are known to be there without a look.
    #[inline]
    pub(crate) const fn known(&self) -> u64 {
        self.filled - self.count
    }

    /// Looks how far the producer has come; gives how many are there.
    #[inline]
    pub(crate) fn look(&mut self, filled: &impl Word) -> Result<u64, Corrupt> {
        let found = filled.load(Acquire);
        // It knows of no room but what it was told of.
        let most = self.published.saturating_add(self.capacity);
        if found < self.filled || found > most {
            return Err(Corrupt { found, least: self.filled, most });
        }
        self.filled = found;
        Ok(self.known())
    }

    /// This many more were read; no more than there are.
    #[inline]
    pub(crate) const fn add(&mut self, count: u64) {
        self.count += count;
    }

    /// Tells the producer of all the room.
    #[inline]
    pub(crate) fn publish(&mut self, emptied: &impl Word) {
        if self.published != self.count {
            self.published = self.count;
            emptied.store(self.count, Release);
        }
    }
}
