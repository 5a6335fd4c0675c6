//! [`copy`]: everything of one device to another.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use landfall_nbd::{Extent, Features};

use crate::client::{Client, Error, Pending};
use crate::device::{BlockDevice, FileDevice};

/// What is moved at a time.
const PIECE: u64 = 256 << 10;
/// What is asked for the status of at a time.
const STATUS: u64 = 1 << 30;

/// Why a copy ended before it was whole.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The export is not for writing.
    #[error("the export `{0}` is read-only")]
    ReadOnly(String),
    /// The export has no room.
    #[error("the export `{name}` is too small: it has {has} bytes of {needs}")]
    TooSmall {
        /// Its name.
        name: String,
        /// Its size.
        has: u64,
        /// The size of what is copied.
        needs: u64,
    },
    /// An export cannot be read.
    #[error("reading")]
    Read(#[source] Error),
    /// An export cannot be written.
    #[error("writing")]
    Write(#[source] Error),
    /// An export does not say that all is on its medium.
    #[error("flushing")]
    Flush(#[source] Error),
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] io::Error),
}

/// What is copied.
#[derive(Debug)]
pub enum Source {
    /// An export of a server.
    Export(Client),
    /// A file of this host, or a block device.
    File(FileDevice),
}

impl Source {
    /// Opens a file.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn open(path: &Path) -> io::Result<Self> {
        FileDevice::open(path, true).map(Self::File)
    }

    /// Its size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        match self {
            Self::Export(client) => client.export().size,
            Self::File(device) => device.size(),
        }
    }

    /// What is there from an offset on.
    fn extents(&self, offset: u64, length: u64) -> Result<Vec<Extent>, CopyError> {
        match self {
            Self::Export(client) if client.has_status() => {
                client.status(offset, length.min(STATUS)).wait().map_err(CopyError::Read)
            }
            Self::Export(_) => Ok(vec![Extent::data(length)]),
            Self::File(device) => Ok(device.extents(offset, length, 1024)?),
        }
    }
}

/// Where it is copied to.
#[derive(Debug)]
pub enum Destination {
    /// An export of a server.
    Export(Client),
    /// A file of this host, or a block device.
    File(File),
}

impl Destination {
    /// An export that has room for this many bytes, and may be written.
    ///
    /// # Errors
    /// [`CopyError::ReadOnly`] and [`CopyError::TooSmall`].
    pub fn export(client: Client, size: u64) -> Result<Self, CopyError> {
        let export = client.export();
        if export.features.has(Features::READ_ONLY) {
            return Err(CopyError::ReadOnly(export.name));
        }
        if export.size < size {
            return Err(CopyError::TooSmall { name: export.name, has: export.size, needs: size });
        }
        Ok(Self::Export(client))
    }

    /// A file of this size with nothing in it; a block device stays as it is.
    ///
    /// # Errors
    /// Those of `open` and `ftruncate`.
    pub fn open(path: &Path, size: u64) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        if file.metadata()?.is_file() {
            file.set_len(0)?;
            file.set_len(size)?;
        }
        Ok(Self::File(file))
    }
}

/// What was just dealt with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// This many bytes were read and written.
    Moved(u64),
    /// This many bytes are zeroes, and were neither read nor sent.
    Skipped(u64),
}

/// Copies everything, with this many requests under way at a time. Holes are not read, and stay
/// holes; when it returns all is on the medium at the other end.
///
/// ```
/// use landfall_storage::client::{Client, Options};
/// use landfall_storage::copy::{Destination, Source, copy};
/// use landfall_storage::device::MemoryDevice;
/// use landfall_storage::server::{Offer, Server};
///
/// let offer = |name| Offer::new(name, MemoryDevice::new(1 << 20));
/// let server = Server::builder().offer(offer("a")).offer(offer("b")).start()?;
/// let address = server.listen("127.0.0.1:0")?;
/// let open = |name| Client::connect_tcp(address, &Options::export(name));
/// open("a")?.write(4096, b"every byte has its place".to_vec()).wait()?;
///
/// let (from, to) = (Source::Export(open("a")?), Destination::Export(open("b")?));
/// copy(&from, &to, 16, |_| {})?;
/// assert_eq!(open("b")?.read(4096, vec![0; 5]).wait()?, b"every");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`CopyError`]: the destination has a part of it then.
pub fn copy(
    from: &Source,
    to: &Destination,
    depth: usize,
    step: impl FnMut(Step),
) -> Result<(), CopyError> {
    let depth = depth.max(1);
    let (reading, writing) = (VecDeque::new(), VecDeque::new());
    Copy { from, to, depth, step, reading, writing }.all(from.size())
}

/// A read that is under way, or over at once.
enum Reading {
    Pending(Pending<Vec<u8>>),
    Ready(Vec<u8>),
}

struct Copy<'a, F> {
    from: &'a Source,
    to: &'a Destination,
    depth: usize,
    step: F,
    reading: VecDeque<(u64, Reading)>,
    writing: VecDeque<Pending<Vec<u8>>>,
}

impl<F: FnMut(Step)> Copy<'_, F> {
    fn all(&mut self, size: u64) -> Result<(), CopyError> {
        let mut at = 0;
        while at < size {
            for extent in self.from.extents(at, size - at)? {
                if extent.is_zero {
                    self.zeroes(at, extent.len)?;
                } else {
                    self.data(at, extent.len)?;
                }
                at += extent.len;
            }
        }
        while let Some((offset, reading)) = self.reading.pop_front() {
            self.write(offset, reading)?;
        }
        while let Some(write) = self.writing.pop_front() {
            write.wait().map_err(CopyError::Write)?;
        }
        match self.to {
            Destination::Export(client) if client.export().features.has(Features::FLUSH) => {
                client.flush().wait().map_err(CopyError::Flush)
            }
            Destination::Export(_) => Ok(()),
            Destination::File(file) => Ok(file.sync_all()?),
        }
    }

    fn data(&mut self, offset: u64, len: u64) -> Result<(), CopyError> {
        let mut done = 0;
        while done < len {
            // Pieces end where others begin, whatever extents there are.
            let at = offset + done;
            let piece = (PIECE - at % PIECE).min(len - done);
            if self.reading.len() >= self.depth
                && let Some((first, reading)) = self.reading.pop_front()
            {
                self.write(first, reading)?;
            }
            let mut buffer = vec![0; piece as usize];
            let reading = match self.from {
                Source::Export(client) => Reading::Pending(client.read(at, buffer)),
                Source::File(device) => {
                    device.read(at, &mut buffer)?;
                    Reading::Ready(buffer)
                }
            };
            self.reading.push_back((at, reading));
            done += piece;
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, reading: Reading) -> Result<(), CopyError> {
        let data = match reading {
            Reading::Pending(pending) => pending.wait().map_err(CopyError::Read)?,
            Reading::Ready(data) => data,
        };
        let len = data.len() as u64;
        match self.to {
            Destination::Export(client) => {
                if self.writing.len() >= self.depth
                    && let Some(first) = self.writing.pop_front()
                {
                    first.wait().map_err(CopyError::Write)?;
                }
                self.writing.push_back(client.write(offset, data));
            }
            Destination::File(file) => file.write_all_at(&data, offset)?,
        }
        (self.step)(Step::Moved(len));
        Ok(())
    }

    fn zeroes(&mut self, offset: u64, len: u64) -> Result<(), CopyError> {
        match self.to {
            // A file was made empty.
            Destination::File(file) if file.metadata()?.is_file() => {}
            Destination::Export(client) if client.export().features.has(Features::WRITE_ZEROES) => {
                let mut done = 0;
                while done < len {
                    let piece = (len - done).min(STATUS);
                    let zeroes = client.write_zeroes(offset + done, piece, false);
                    zeroes.wait().map_err(CopyError::Write)?;
                    done += piece;
                }
            }
            _ => return self.data(offset, len),
        }
        (self.step)(Step::Skipped(len));
        Ok(())
    }
}
