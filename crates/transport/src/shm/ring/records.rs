//! A ring of records: [`Producer`] and [`Consumer`].

use std::sync::atomic::Ordering::Relaxed;

use thiserror::Error;

use super::layout::{EMPTIED, FILLED, Parts};
use super::{Corrupt, Emptied, Filled, LayoutError, Records};
use crate::memory::Piece;

/// Bytes of a word.
const WORD: usize = 8;

/// Why a record was not pushed, or popped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PushError {
    /// There is no room just now. What was pushed before is published.
    #[error("the ring is full: push again when its reader has read")]
    Full,
    /// The record has another length than those of this ring.
    #[error("a record of {found} bytes for a ring of records with {expected}")]
    Length {
        /// How long it is.
        found: usize,
        /// How long it has to be.
        expected: usize,
    },
    /// The other side's counter cannot be.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

/// The end of a ring that fills it. One thread has it.
///
/// ```
/// use landfall_transport::memory::Piece;
/// use landfall_transport::shm::ring::{Consumer, Producer, Records};
///
/// let layout = Records::new(32, 1024)?;
/// let memory = Piece::private(layout.memory_len() as usize);
/// let mut producer = Producer::new(&memory, layout)?;
/// let mut consumer = Consumer::new(&memory, layout)?;
///
/// producer.push(&[7; 32])?;
/// let mut record = [0; 32];
/// assert!(!consumer.pop(&mut record)?, "it is not published yet");
/// producer.publish();
/// assert!(consumer.pop(&mut record)?);
/// assert_eq!(record, [7; 32]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Producer {
    parts: Parts,
    filled: Filled,
    mask: u64,
    words: usize,
}

impl Producer {
    /// The filling end of a ring in memory that is zero, and that has only this one.
    ///
    /// # Errors
    /// The memory is shorter than the layout.
    pub fn new(memory: &Piece, layout: Records) -> Result<Self, LayoutError> {
        Ok(Self {
            parts: Parts::of(memory, layout.memory_len())?,
            filled: Filled::new(layout.capacity()),
            mask: layout.capacity() - 1,
            words: layout.record_len() as usize / WORD,
        })
    }

    /// Writes a record, to be published.
    ///
    /// # Errors
    /// The ring is full, the record has another length, or the other side's counter
    /// cannot be.
    #[inline]
    pub fn push(&mut self, record: &[u8]) -> Result<(), PushError> {
        if record.len() != self.words * WORD {
            let expected = self.words * WORD;
            return Err(PushError::Length { found: record.len(), expected });
        }
        if self.filled.known_room() == 0 {
            self.make_room()?;
        }
        let at = (self.filled.count() & self.mask) as usize * self.words;
        let place = self.parts.contents.words().get(at..at + self.words).unwrap_or_default();
        for (word, bytes) in place.iter().zip(record.as_chunks::<WORD>().0) {
            word.store(u64::from_ne_bytes(*bytes), Relaxed);
        }
        self.filled.add(1);
        Ok(())
    }

    /// Makes all that was pushed seen.
    #[inline]
    pub fn publish(&mut self) {
        if let Some(word) = self.parts.control.words().get(FILLED as usize / WORD) {
            self.filled.publish(word);
        }
    }

    /// How many records were pushed and not published.
    #[must_use]
    #[inline]
    pub const fn pending(&self) -> u64 {
        self.filled.pending()
    }

    /// How many records there is room for, asking the other side.
    ///
    /// # Errors
    /// Its counter cannot be.
    pub fn room(&mut self) -> Result<u64, Corrupt> {
        match self.parts.control.words().get(EMPTIED as usize / WORD) {
            Some(word) => self.filled.look(word),
            None => Ok(0),
        }
    }

    /// The slow half of a push.
    #[cold]
    fn make_room(&mut self) -> Result<(), PushError> {
        // Before it is waited for room all there is has to be seen, or both wait.
        self.publish();
        match self.room()? {
            0 => Err(PushError::Full),
            _ => Ok(()),
        }
    }
}

/// The end of a ring that empties it. One thread has it.
#[derive(Debug)]
pub struct Consumer {
    parts: Parts,
    emptied: Emptied,
    mask: u64,
    words: usize,
    /// After this many records their room is given back.
    give_back: u64,
}

impl Consumer {
    /// The emptying end of a ring in memory that is zero, or filled by its producer,
    /// and that has only this one.
    ///
    /// # Errors
    /// The memory is shorter than the layout.
    pub fn new(memory: &Piece, layout: Records) -> Result<Self, LayoutError> {
        Ok(Self {
            parts: Parts::of(memory, layout.memory_len())?,
            emptied: Emptied::new(layout.capacity()),
            mask: layout.capacity() - 1,
            words: layout.record_len() as usize / WORD,
            give_back: layout.capacity() / 4,
        })
    }

    /// Reads a record into `into`; false if there is none. The room of what was read
    /// goes back to the producer from time to time, and when the ring is empty.
    ///
    /// # Errors
    /// The buffer has another length than a record, or the other side's counter
    /// cannot be.
    #[inline]
    pub fn pop(&mut self, into: &mut [u8]) -> Result<bool, PushError> {
        if into.len() != self.words * WORD {
            let expected = self.words * WORD;
            return Err(PushError::Length { found: into.len(), expected });
        }
        if self.emptied.known() == 0 && self.look()? == 0 {
            return Ok(false);
        }
        let at = (self.emptied.count() & self.mask) as usize * self.words;
        let place = self.parts.contents.words().get(at..at + self.words).unwrap_or_default();
        for (word, bytes) in place.iter().zip(into.as_chunks_mut::<WORD>().0) {
            *bytes = word.load(Relaxed).to_ne_bytes();
        }
        self.emptied.add(1);
        if self.emptied.pending() > self.give_back {
            self.give_back();
        }
        Ok(true)
    }

    /// Returns the room of all that was read back now.
    #[inline]
    pub fn give_back(&mut self) {
        if let Some(word) = self.parts.control.words().get(EMPTIED as usize / WORD) {
            self.emptied.publish(word);
        }
    }

    /// Is nothing there to be read? Asks the other side if it has to.
    ///
    /// # Errors
    /// Its counter cannot be.
    pub fn is_empty(&mut self) -> Result<bool, Corrupt> {
        Ok(self.emptied.known() == 0 && self.look()? == 0)
    }

    #[inline]
    fn look(&mut self) -> Result<u64, Corrupt> {
        let Some(word) = self.parts.control.words().get(FILLED as usize / WORD) else {
            return Ok(0);
        };
        let there = self.emptied.look(word)?;
        if there == 0 {
            self.give_back();
        }
        Ok(there)
    }
}
