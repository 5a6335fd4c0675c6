//! A stream of bytes: the queue's scheme for unstructured data (section 4.3).
//!
//! Each write is one copy into the reader's memory and one publication; each read one
//! copy out of it. [`Writer`] and [`Reader`] are the two ends of one direction,
//! [`Stream`] is both directions; all of them are `std::io` readers and writers, and
//! with the feature `tokio` asynchronous ones.
//!
//! ```
//! use std::io::{Read, Write};
//! use landfall::clan::Threads;
//! use landfall::clan::layer::stream::{Config, Stream};
//!
//! let (here, there) = Threads::pair()?;
//! let (one, two) = (Stream::open(&here, Config::DEFAULT)?, Stream::open(&there, Config::DEFAULT)?);
//! let (to_one, to_two) = (one.cookies(), two.cookies());
//! let (mut one, mut two) = (one.connect(&to_two)?, two.connect(&to_one)?);
//!
//! one.write_all(b"every byte has its place")?;
//! one.finish()?;
//! let mut text = String::new();
//! two.read_to_string(&mut text)?;
//! assert_eq!(text, "every byte has its place");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(feature = "tokio")]
mod asynchronous;
mod in_place;
mod reader;
mod writer;

use std::io;
use std::io::{Read, Write};
use std::time::Duration;

use landfall_transport::Wait;

use super::ring;
use crate::clan::layer::Half;
use crate::clan::{Cookie, Error, Fabric, WORD};

pub use in_place::{Chunk, Loan};
pub use reader::Reader;
pub(super) use reader::copy_ring;
pub use writer::Writer;

/// What both sides agree on: the length of the ring. How each waits is its own.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    capacity: u64,
    wait: Wait,
}

impl Config {
    /// A ring of 512 KiB: several large messages, and still within a second-level
    /// cache.
    pub const DEFAULT: Self = Self::new(512 << 10);

    /// A ring of this many bytes, at each reader; a multiple of eight.
    #[must_use]
    pub const fn new(capacity: u64) -> Self {
        Self { capacity, wait: Wait::BALANCED }
    }

    /// How this side waits.
    #[must_use]
    pub const fn wait(self, wait: Wait) -> Self {
        Self { wait, ..self }
    }

    fn reader_len(&self) -> Result<u64, Error> {
        if self.capacity == 0 || !self.capacity.is_multiple_of(WORD) {
            return Err(Error::BadConfig("a ring has a multiple of eight bytes, and not none"));
        }
        ring::PLACES.checked_add(self.capacity).ok_or(Error::NoRoom("ring of that length"))
    }
}

/// A stream in both directions.
#[derive(Debug)]
pub struct Stream<F: Fabric> {
    reader: Reader<F>,
    writer: Writer<F>,
}

/// One side of a stream, before it knows the other.
#[derive(Debug)]
pub struct Opening<F: Fabric> {
    reader: Half<F, Reader<F>>,
    writer: Half<F, Writer<F>>,
}

impl<F: Fabric> Opening<F> {
    /// What the other side needs: for its writer, then for its reader.
    #[must_use]
    pub const fn cookies(&self) -> [Cookie; 2] {
        [self.reader.cookie(), self.writer.cookie()]
    }

    /// Connects to the other side; see [`Half::connect`].
    ///
    /// # Errors
    /// Those of [`Half::connect`].
    pub fn connect(self, other: &[Cookie; 2]) -> Result<Stream<F>, Error> {
        let [to_reader, to_writer] = other;
        let reader = self.reader.connect(to_writer)?;
        Ok(Stream { reader, writer: self.writer.connect(to_reader)? })
    }
}

impl<F: Fabric> Stream<F> {
    /// This side's half.
    ///
    /// # Errors
    /// Those of [`Fabric::expose`], or the configuration is invalid.
    pub fn open(fabric: &F, config: Config) -> Result<Opening<F>, Error> {
        let reader = Reader::open(fabric, config)?;
        Ok(Opening { reader, writer: Writer::open(fabric, config)? })
    }

    /// How long reads and writes wait; for ever by default.
    pub const fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.reader.set_timeout(timeout);
        self.writer.set_timeout(timeout);
    }

    /// Ends this side's direction; the other one goes on.
    ///
    /// # Errors
    /// Those of [`Writer::finish`].
    pub fn finish(&mut self) -> Result<(), Error> {
        self.writer.finish()
    }

    /// Each direction by itself, for two threads or tasks.
    #[must_use]
    pub fn into_split(self) -> (Reader<F>, Writer<F>) {
        (self.reader, self.writer)
    }
}

impl<F: Fabric> Read for Stream<F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.reader.read(into)
    }
}

impl<F: Fabric> Write for Stream<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}
