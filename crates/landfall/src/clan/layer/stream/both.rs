//! [`Stream`]: both directions.

use std::io::{self, Read, Write};
use std::time::Duration;

use super::{Config, Reader, Writer};
use crate::clan::layer::Half;
use crate::clan::{Cookie, Error, Fabric};

/// A stream in both directions.
#[derive(Debug)]
pub struct Stream<F: Fabric> {
    pub(super) reader: Reader<F>,
    pub(super) writer: Writer<F>,
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
    /// Those of [`Fabric::expose`], or the configuration makes no sense.
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
