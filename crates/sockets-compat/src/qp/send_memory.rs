//! [`SendMemory`]: registered memory that others fill and a socket sends from.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use landfall::qpip::{MemoryRegion, Pinned};

use super::failed;
use super::ring::LentBytes;
use crate::duplex::Duplex;
use crate::errors;
use crate::family::{Mode, Qp};
use crate::stream::ByteStream;

/// Memory from which a [`QpStream`](crate::QpStream) sends without a copy. Others fill it: a ring of `io_uring`
/// that reads files, by way of its [pin](Self::pin), or [`copy_in`](Self::copy_in).
///
/// It is registered with the adapter until its last byte is acknowledged, also behind the end of
/// this handle and of its socket.
///
/// ```
/// use std::io::Read;
/// use landfall::qpip::{Adapter, ChannelConfig};
/// use sockets_compat::{QpHost, QpOptions};
///
/// let (one, two) = Adapter::builder().pair(Adapter::builder(), ChannelConfig::default())?;
/// let client = QpHost::new(one.address("10.0.0.1/24").open()?, QpOptions::default())?;
/// let server = QpHost::new(two.address("10.0.0.2/24").open()?, QpOptions::default())?;
/// let listener = server.listen("qp://10.0.0.2:7000")?;
/// let stream = client.connect("qp://10.0.0.2:7000")?;
///
/// let memory = stream.send_memory(4096)?;
/// memory.copy_in(100, b"has its place")?;
/// let (sent, is_sent) = std::sync::mpsc::channel();
/// memory.write(b"every byte ", 100..113, move || sent.send(()).unwrap())?;
/// let (mut other, mut text) = (listener.accept()?.0, [0; 24]);
/// other.read_exact(&mut text)?;
/// assert_eq!(&text, b"every byte has its place");
/// is_sent.recv()?; // Now it may be filled anew.
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SendMemory {
    region: Arc<MemoryRegion>,
    duplex: Arc<Duplex>,
}

impl<M: Mode> ByteStream<Qp, M> {
    /// Registers memory that this socket can send from where it lies.
    ///
    /// # Errors
    /// As much is registered as may be, or the connection is broken.
    pub fn send_memory(&self, len: usize) -> io::Result<SendMemory> {
        let duplex = Arc::clone(&self.duplex);
        Ok(SendMemory { region: duplex.register(len)?, duplex })
    }
}

impl SendMemory {
    /// How many bytes it has.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "what is registered has at least one byte")]
    pub fn len(&self) -> u64 {
        self.region.len()
    }

    /// Holds it for a kernel that writes there by itself.
    ///
    /// # Errors
    /// The adapter is gone.
    pub fn pin(&self) -> io::Result<Pinned> {
        self.region.pin().map_err(failed)
    }

    /// Copies bytes in.
    ///
    /// # Errors
    /// They do not all fit.
    pub fn copy_in(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.region.copy_in(offset, bytes).map_err(failed)
    }

    /// Reads bytes of a file that the page cache has into this range; never waits for the medium.
    /// Gives how many there were: fewer than the range has where the cache or the file ends.
    ///
    /// # Errors
    /// The medium says so, or bytes of the range are not there.
    pub fn read_cached(&self, file: &File, offset: u64, into: Range<u64>) -> io::Result<usize> {
        let len = into.end.checked_sub(into.start).and_then(|len| u32::try_from(len).ok());
        let len = len.ok_or_else(|| errors::invalid("a range ends where it begins, or later"))?;
        let pinned = self.pin()?;
        pinned.read_cached(file, offset, &pinned.id().span(into.start, len))
    }

    /// Writes `head` and then bytes of this memory, behind what was written before: all of it, or
    /// nothing where there is an error. It waits for room as any write.
    ///
    /// What is written there before `sent` is called reaches the other side instead. `sent` is
    /// called, on any thread, when the other side has acknowledged all or will never hear of them.
    /// Where the socket ends before, it is dropped instead: the bytes may be sent for as long as
    /// the socket lingers. It must not use the socket.
    ///
    /// # Errors
    /// Those of a write; the head is longer than the socket's buffer, or bytes are not there.
    pub fn write(
        &self,
        head: &[u8],
        range: Range<u64>,
        sent: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let sent: Box<dyn FnOnce() + Send> = Box::new(sent);
        let region = Arc::clone(&self.region);
        self.duplex.write_lent(head, LentBytes { region, range, sent: Some(sent) })
    }
}

impl fmt::Debug for SendMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendMemory").field("len", &self.len()).finish_non_exhaustive()
    }
}
