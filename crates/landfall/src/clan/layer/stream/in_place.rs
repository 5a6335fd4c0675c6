//! Bytes of a stream that are written and read where they lie: [`Loan`] and [`Chunk`].

use std::fmt;
use std::time::Instant;

use super::{Reader, Writer};
use crate::clan::layer::place::{Place, View};
use crate::clan::layer::ring;
use crate::clan::layer::waiting::ConnectionEnd;
use crate::clan::{Error, Fabric};

/// Room in the memory of the reader: write into it, then [publish](Self::publish) as much as
/// was written. Dropped before that, nothing was.
pub struct Loan<'a, F: Fabric> {
    writer: &'a mut Writer<F>,
    at: u64,
    len: u64,
}

impl<F: Fabric> Loan<'_, F> {
    /// How many bytes there is room for in a row; at least one.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// The place, to be written into.
    pub fn place(&mut self) -> Place<'_, F::Remote> {
        let (at, len) = (self.at, self.len);
        Place::new(self.writer.side_mut().remote(), at, len)
    }

    /// The first `len` bytes of it were written: the reader gets them. When the send buffer is full,
    /// the next call or a flush tells it.
    ///
    /// # Errors
    /// This many do not fit, or the peer is gone.
    pub fn publish(self, len: usize) -> Result<(), Error> {
        if len as u64 > self.len {
            return Err(Error::TooLong { len: len as u64, most: self.len });
        }
        let side = self.writer.side_mut();
        side.advance(len as u64);
        match side.publish() {
            Ok(()) | Err(Error::Busy) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl<F: Fabric> fmt::Debug for Loan<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loan").field("len", &self.len).finish_non_exhaustive()
    }
}

impl<F: Fabric> Writer<F> {
    /// Room in the memory of the reader, as much as lies in a row, once there is any.
    ///
    /// # Errors
    /// The reader is closed, the deadline is over, or the peer is gone or misbehaves.
    ///
    /// ```
    /// use landfall::clan::Threads;
    /// use landfall::clan::layer::stream::{Config, Stream};
    ///
    /// let (here, there) = Threads::pair()?;
    /// let (one, two) = (Stream::open(&here, Config::DEFAULT)?, Stream::open(&there, Config::DEFAULT)?);
    /// let (to_one, to_two) = (one.cookies(), two.cookies());
    /// let (_from_two, mut writer) = one.connect(&to_two)?.into_split();
    /// let (mut reader, _to_one) = two.connect(&to_one)?.into_split();
    ///
    /// let mut gap = writer.gap(None)?;
    /// gap.place().write(0, b"written where it is read")?;
    /// gap.publish(24)?;
    /// let chunk = reader.chunk(None)?;
    /// assert_eq!(chunk.view().to_vec()?, b"written where it is read");
    /// # Ok::<(), landfall::clan::Error>(())
    /// ```
    pub fn gap(&mut self, deadline: Option<Instant>) -> Result<Loan<'_, F>, Error> {
        let (side, waiting, capacity) = self.parts();
        let room = waiting.until(side, deadline, |side| side.room(1))?;
        let at = side.written() % capacity;
        Ok(Loan { at: ring::PLACES + at, len: room.min(capacity - at), writer: self })
    }
}

/// Bytes that are there and lie in a row. When this is dropped they are taken out, and their
/// places go back to the writer.
pub struct Chunk<'a, F: Fabric> {
    reader: &'a mut Reader<F>,
    at: u64,
    len: u64,
    taken: u64,
}

impl<F: Fabric> Chunk<'_, F> {
    /// The bytes, where they lie.
    #[must_use]
    pub fn view(&self) -> View<'_, F::Local> {
        View::new(self.reader.side().local(), self.at, self.len)
    }

    /// Ends it, and takes out the first `len` only (at most as many as there are): the others
    /// are there the next time.
    pub fn take_only(mut self, len: usize) {
        self.taken = self.len.min(len as u64);
    }
}

impl<F: Fabric> Drop for Chunk<'_, F> {
    fn drop(&mut self) {
        if self.taken > 0 {
            // A writer that cannot be told now is told by the next call.
            let _ = self.reader.side_mut().advance(self.taken);
        }
    }
}

impl<F: Fabric> fmt::Debug for Chunk<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunk").field("len", &self.len).finish_non_exhaustive()
    }
}

impl<F: Fabric> Reader<F> {
    /// The bytes that are there and lie in a row, once there are any. See
    /// [`Writer::gap`] for an example.
    ///
    /// # Errors
    /// The stream has ended ([`Error::Closed`]), the deadline is over, or the peer is gone or
    /// mad.
    pub fn chunk(&mut self, deadline: Option<Instant>) -> Result<Chunk<'_, F>, Error> {
        let (side, waiting, capacity) = self.parts();
        let there = waiting.until(side, deadline, |side| side.filled(1))?;
        let at = side.read() % capacity;
        let len = there.min(capacity - at);
        Ok(Chunk { at: ring::PLACES + at, len, taken: len, reader: self })
    }
}
