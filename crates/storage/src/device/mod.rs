//! Devices: [`BlockDevice`], in files and in memory, and with faults for tests.

mod fault;
mod file;
mod memory;
mod source;

use std::fs::File;
use std::io;
use std::sync::Arc;

use landfall_nbd::{Extent, Features};

pub use fault::{Fault, Volatile};
pub use file::{FileAccess, FileDevice};
pub use memory::MemoryDevice;
pub use source::{NamedSource, Opened, Source, parse_size};

/// What a server has to offer: bytes at offsets.
///
/// Callers keep to the size; several threads call at a time. What was written need not be on
/// a medium before [`flush`](Self::flush) returns, and is then.
pub trait BlockDevice: Send + Sync {
    /// The size in bytes.
    fn size(&self) -> u64;

    /// What it can do.
    fn features(&self) -> Features;

    /// Fills `into` with the bytes at `offset`.
    ///
    /// # Errors
    /// Those of the medium.
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// The same if that needs no waiting for a medium. False: nothing is known to be read.
    ///
    /// # Errors
    /// Those of the medium.
    fn read_if_cached(&self, offset: u64, into: &mut [u8]) -> io::Result<bool> {
        let _ = (offset, into);
        Ok(false)
    }

    /// Writes these bytes at `offset`.
    ///
    /// # Errors
    /// Those of the medium; some of the bytes may be written then.
    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()>;

    /// Whatever was written before is on the medium when this returns.
    ///
    /// # Errors
    /// It is not known to be.
    fn flush(&self) -> io::Result<()>;

    /// These bytes are not needed any more. They may read as anything afterwards.
    ///
    /// # Errors
    /// Those of the medium.
    fn trim(&self, offset: u64, length: u64) -> io::Result<()> {
        let _ = (offset, length);
        Ok(())
    }

    /// These bytes become zeroes; `may_punch`: nothing has to stay allocated for them.
    ///
    /// # Errors
    /// Those of the medium; [`io::ErrorKind::Unsupported`] where `fast_only` and it would be
    /// no faster than writing them.
    fn write_zeroes(
        &self,
        offset: u64,
        length: u64,
        may_punch: bool,
        fast_only: bool,
    ) -> io::Result<()>;

    /// What is allocated from `offset` on, at most this many extents, which together are no
    /// longer than `length`. At least one.
    ///
    /// # Errors
    /// Those of the medium.
    fn extents(&self, offset: u64, length: u64, most: usize) -> io::Result<Vec<Extent>> {
        let _ = (offset, most);
        Ok(vec![Extent::data(length)])
    }

    /// These bytes will be read soon.
    ///
    /// # Errors
    /// Those of the medium.
    fn cache(&self, offset: u64, length: u64) -> io::Result<()> {
        let _ = (offset, length);
        Ok(())
    }

    /// The file that has these bytes at the same offsets, if one has: blocks go from its pages to
    /// memory that is sent from, and to them from memory where they land.
    fn file(&self) -> Option<&File> {
        None
    }

    /// The file that has these bytes at the same offsets, where reads that wait for its medium
    /// shall go through `io_uring`.
    fn uring_file(&self) -> Option<Arc<File>> {
        None
    }

    /// The device becomes so long.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] where it cannot.
    fn resize(&self, size: u64) -> io::Result<()> {
        let _ = size;
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Writes zeroes by writing them, for whatever has no better way.
fn write_zeroes_slowly(device: &dyn BlockDevice, offset: u64, length: u64) -> io::Result<()> {
    static ZEROES: [u8; 64 << 10] = [0; 64 << 10];
    let mut done = 0;
    while done < length {
        let piece = (length - done).min(ZEROES.len() as u64);
        device.write(offset + done, &ZEROES[..piece as usize])?;
        done += piece;
    }
    Ok(())
}
