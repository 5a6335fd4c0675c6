//! The counters of a ring: each side keeps its own definitively and in private, and
//! publishes copies of it.
//!
//! A counter never wraps: 2^64 records are some hundred years. What the other side
//! publishes is believed only within the ring: a producer cannot have filled more
//! than there is, nor a consumer have emptied more than was filled. Beyond that it
//! is [`Corrupt`], and nothing was done.
//!
//! The copies are lazy: the other side's is looked at only when the ring seems full
//! or empty, one's own is published when somebody says so, or when it must be.

use std::sync::atomic::Ordering::{Acquire, Release};

use thiserror::Error;

use crate::shm::word::Word;

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

    /// So many more were written; no more than there is room.
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

    /// So many more were read; no more than there are.
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
