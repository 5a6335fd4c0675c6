//! How rings lie in memory: [`Records`] and [`Bytes`].
//!
//! The counter of each side has 128 bytes of its own, for processors fetch lines of
//! 64 bytes in pairs; what is in the ring follows.

use thiserror::Error;

use crate::memory::{Piece, SharedMemoryError};

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
