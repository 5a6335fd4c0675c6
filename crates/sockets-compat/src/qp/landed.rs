//! [`Landed`]: bytes of a socket where the adapter has put them.

use std::fs::File;
use std::io;
use std::ops::Range;

use landfall::qpip::MemoryRegion;

use super::failed;
use crate::family::Qp;
use crate::stream::ByteStream;

/// Bytes that came over a [`QpStream`](crate::QpStream), in the registered memory where they landed.
#[derive(Debug)]
pub struct Landed<'a> {
    memory: &'a MemoryRegion,
    range: Range<u64>,
}

impl ByteStream<Qp> {
    /// Reads as [`Read::read`](std::io::Read::read), this many bytes at most, without a copy of them: `take` has
    /// them where they landed, and they are read when it returns. Where it fails, it is its own to say so.
    /// Gives how many there were; 0 at the end, where `take` is not called.
    ///
    /// Others who read the same socket, or end it, wait until `take` has returned.
    ///
    /// ```
    /// use std::io::{Seek, SeekFrom, Read, Write};
    /// use landfall::qpip::{Adapter, ChannelConfig};
    /// use sockets_compat::{QpHost, QpOptions};
    ///
    /// let (one, two) = Adapter::builder().pair(Adapter::builder(), ChannelConfig::default())?;
    /// let client = QpHost::new(one.address("10.0.0.1/24").open()?, QpOptions::default())?;
    /// let server = QpHost::new(two.address("10.0.0.2/24").open()?, QpOptions::default())?;
    /// let listener = server.listen("qp://10.0.0.2:7000")?;
    /// let mut stream = client.connect("qp://10.0.0.2:7000")?;
    /// stream.write_all(b"every byte has its place")?;
    ///
    /// let path = std::env::temp_dir().join(format!("landfall-landed-{}", std::process::id()));
    /// let options = std::fs::File::options().read(true).write(true).create(true).to_owned();
    /// let mut file = options.open(&path)?;
    /// std::fs::remove_file(&path)?;
    /// let (other, mut at) = (listener.accept()?.0, 0);
    /// while at < 24 {
    ///     let mut written = Ok(());
    ///     at += other.read_landed(24, |landed| written = landed.write_to(&file, at as u64))?;
    ///     written?;
    /// }
    /// let mut text = String::new();
    /// file.read_to_string(&mut text)?;
    /// assert_eq!(text, "every byte has its place");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of a read, or there are bytes that were [peeked](Self::peek) at.
    pub fn read_landed(&self, most: usize, take: impl FnMut(Landed<'_>)) -> io::Result<usize> {
        self.duplex.read_landed(most, take)
    }
}

impl<'a> Landed<'a> {
    pub(super) const fn new(memory: &'a MemoryRegion, range: Range<u64>) -> Self {
        Self { memory, range }
    }

    /// How many bytes there are.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is at least one")]
    pub const fn len(&self) -> usize {
        (self.range.end - self.range.start) as usize
    }

    /// Writes all of them to a file.
    ///
    /// # Errors
    /// Those of the file, which may have some of the bytes then.
    pub fn write_to(&self, file: &File, offset: u64) -> io::Result<()> {
        let pinned = self.memory.pin().map_err(failed)?;
        let span = pinned.id().span(self.range.start, self.len() as u32);
        pinned.write_to_file(file, offset, &span)
    }

    /// Copies them out.
    ///
    /// # Errors
    /// There is room for more or fewer than there are.
    pub fn copy_out(&self, into: &mut [u8]) -> io::Result<()> {
        if into.len() != self.len() {
            return Err(crate::errors::invalid("a copy has as much room as there are bytes"));
        }
        self.memory.copy_out(self.range.start, into).map_err(failed)
    }
}
