//! A ring of bytes: [`ByteProducer`] and [`ByteConsumer`].

use super::layout::{EMPTIED, FILLED, Parts};
use super::{Bytes, Corrupt, Emptied, Filled, LayoutError};
use crate::memory::Piece;

const WORD: usize = 8;

/// What is published at a time while many bytes are written or read: the other side
/// works on one part while this one works on the next, and it stays in the cache.
const STRIDE: usize = 16 << 10;

/// The end of a ring of bytes that fills it. One thread has it.
///
/// ```
/// use landfall_transport::memory::Piece;
/// use landfall_transport::shm::ring::{ByteConsumer, ByteProducer, Bytes};
///
/// let layout = Bytes::new(4096)?;
/// let memory = Piece::private(layout.memory_len() as usize);
/// let mut producer = ByteProducer::new(&memory, layout)?;
/// let mut consumer = ByteConsumer::new(&memory, layout)?;
///
/// assert_eq!(producer.write(b"every byte has its place")?, 24);
/// producer.publish();
/// let mut start = [0; 10];
/// assert_eq!(consumer.read(&mut start)?, 10);
/// assert_eq!(&start, b"every byte");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ByteProducer {
    parts: Parts,
    filled: Filled,
    mask: u64,
}

impl ByteProducer {
    /// The filling end of a ring in memory that is zero, and that has only this one.
    ///
    /// # Errors
    /// The memory is shorter than the layout.
    pub fn new(memory: &Piece, layout: Bytes) -> Result<Self, LayoutError> {
        Ok(Self {
            parts: Parts::of(memory, layout.memory_len())?,
            filled: Filled::new(layout.capacity()),
            mask: layout.capacity() - 1,
        })
    }

    /// Writes the first of these bytes, as many as there is room for; gives how many.
    /// Many are published on the way, the last few are left to be.
    ///
    /// # Errors
    /// The other side's counter cannot be.
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, Corrupt> {
        let mut done = 0;
        while done < bytes.len() {
            if self.filled.known_room() == 0 && self.make_room()? == 0 {
                break;
            }
            let room = usize::try_from(self.filled.known_room()).unwrap_or(usize::MAX);
            let at = self.filled.count() & self.mask;
            let until_end = (self.mask + 1 - at) as usize;
            let len = (bytes.len() - done).min(room).min(until_end).min(STRIDE);
            // Within the ring, by what was just computed.
            if self.parts.contents.copy_in(at, &bytes[done..done + len]).is_err() {
                break;
            }
            self.filled.add(len as u64);
            done += len;
            if self.filled.pending() >= STRIDE as u64 {
                self.publish();
            }
        }
        Ok(done)
    }

    /// Makes all that was written seen.
    #[inline]
    pub fn publish(&mut self) {
        if let Some(word) = self.parts.control.words().get(FILLED as usize / WORD) {
            self.filled.publish(word);
        }
    }

    /// How many bytes were written and not published.
    #[must_use]
    #[inline]
    pub const fn pending(&self) -> u64 {
        self.filled.pending()
    }

    /// How many bytes there is room for, asking the other side.
    ///
    /// # Errors
    /// Its counter cannot be.
    pub fn room(&mut self) -> Result<u64, Corrupt> {
        match self.parts.control.words().get(EMPTIED as usize / WORD) {
            Some(word) => self.filled.look(word),
            None => Ok(0),
        }
    }

    #[cold]
    fn make_room(&mut self) -> Result<u64, Corrupt> {
        self.publish();
        self.room()
    }
}

/// The end of a ring of bytes that empties it. One thread has it.
#[derive(Debug)]
pub struct ByteConsumer {
    parts: Parts,
    emptied: Emptied,
    mask: u64,
    /// After this many bytes their room is given back.
    give_back: u64,
}

impl ByteConsumer {
    /// The emptying end of a ring in memory that is zero, or filled by its producer,
    /// and that has only this one.
    ///
    /// # Errors
    /// The memory is shorter than the layout.
    pub fn new(memory: &Piece, layout: Bytes) -> Result<Self, LayoutError> {
        Ok(Self {
            parts: Parts::of(memory, layout.memory_len())?,
            emptied: Emptied::new(layout.capacity()),
            mask: layout.capacity() - 1,
            give_back: (layout.capacity() / 4).min(STRIDE as u64),
        })
    }

    /// Reads as many bytes as are there and `into` has room for; gives how many. The
    /// room of what was read goes back from time to time, and when the ring is empty.
    ///
    /// # Errors
    /// The other side's counter cannot be.
    #[inline]
    pub fn read(&mut self, into: &mut [u8]) -> Result<usize, Corrupt> {
        let mut done = 0;
        while done < into.len() {
            if self.emptied.known() == 0 && self.look()? == 0 {
                break;
            }
            let there = usize::try_from(self.emptied.known()).unwrap_or(usize::MAX);
            let at = self.emptied.count() & self.mask;
            let until_end = (self.mask + 1 - at) as usize;
            let len = (into.len() - done).min(there).min(until_end).min(STRIDE);
            // Within the ring, by what was just computed.
            if self.parts.contents.copy_out(at, &mut into[done..done + len]).is_err() {
                break;
            }
            self.emptied.add(len as u64);
            done += len;
            if self.emptied.pending() >= self.give_back {
                self.give_back();
            }
        }
        Ok(done)
    }

    /// Returns the room of all that was read back now.
    #[inline]
    pub fn give_back(&mut self) {
        if let Some(word) = self.parts.control.words().get(EMPTIED as usize / WORD) {
            self.emptied.publish(word);
        }
    }

    /// How many bytes are there to be read, asking the other side if there seem to
    /// be none.
    ///
    /// # Errors
    /// Its counter cannot be.
    pub fn available(&mut self) -> Result<u64, Corrupt> {
        match self.emptied.known() {
            0 => self.look(),
            there => Ok(there),
        }
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
