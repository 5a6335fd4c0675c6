//! [`MemoryDevice`]: bytes of this process, which are gone with it.

use std::io;
use std::sync::{PoisonError, RwLock};

use landfall_nbd::{Extent, Features};

use super::BlockDevice;

/// What is allocated at a time.
const CHUNK: u64 = 256 << 10;

/// A device in memory. Memory is allocated where something is written; the rest reads as
/// zeroes.
///
/// ```
/// use landfall_storage::device::{BlockDevice, MemoryDevice};
///
/// let device = MemoryDevice::new(1 << 40);
/// device.write(1 << 39, b"every byte has its place")?;
/// let mut text = [0; 5];
/// device.read(1 << 39, &mut text)?;
/// assert_eq!(&text, b"every");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct MemoryDevice {
    chunks: RwLock<Chunks>,
}

#[derive(Debug)]
struct Chunks {
    size: u64,
    /// Each with a lock of its own: writers of different ones do not wait for each other.
    all: Vec<RwLock<Option<Box<[u8]>>>>,
}

impl Chunks {
    /// The parts of a range, chunk by chunk: which, from where in it, how many bytes.
    fn parts(offset: u64, length: u64) -> impl Iterator<Item = (usize, usize, usize)> {
        let (mut at, end) = (offset, offset + length);
        std::iter::from_fn(move || {
            let within = at % CHUNK;
            let len = (CHUNK - within).min(end - at);
            let part = (at < end).then_some(((at / CHUNK) as usize, within as usize, len as usize));
            at += len;
            part
        })
    }
}

impl MemoryDevice {
    /// A device of this many bytes, all zero.
    #[must_use]
    pub fn new(size: u64) -> Self {
        let mut all = Vec::new();
        all.resize_with(size.div_ceil(CHUNK) as usize, RwLock::default);
        Self { chunks: RwLock::new(Chunks { size, all }) }
    }

    fn with<T>(&self, work: impl FnOnce(&Chunks) -> T) -> T {
        work(&self.chunks.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn beyond() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "beyond the end of the device")
}

impl Chunks {
    fn check(&self, offset: u64, length: u64) -> io::Result<()> {
        let end = offset.checked_add(length).ok_or_else(beyond)?;
        if end > self.size { Err(beyond()) } else { Ok(()) }
    }

    fn zero(&self, offset: u64, length: u64, may_punch: bool) -> io::Result<()> {
        self.check(offset, length)?;
        for (chunk, at, len) in Self::parts(offset, length) {
            let mut chunk = self.all[chunk].write().unwrap_or_else(PoisonError::into_inner);
            if may_punch && len as u64 == CHUNK {
                *chunk = None;
            } else if let Some(bytes) = chunk.as_mut() {
                bytes[at..at + len].fill(0);
            }
        }
        Ok(())
    }
}

impl BlockDevice for MemoryDevice {
    fn size(&self) -> u64 {
        self.with(|chunks| chunks.size)
    }

    fn features(&self) -> Features {
        Features::FLUSH
            .with(Features::FUA)
            .with(Features::TRIM)
            .with(Features::WRITE_ZEROES)
            .with(Features::FAST_ZERO)
            .with(Features::MULTI_CONN)
            .with(Features::CACHE)
            .with(Features::RESIZE)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.with(|chunks| {
            chunks.check(offset, into.len() as u64)?;
            let mut rest = into;
            for (chunk, at, len) in Chunks::parts(offset, rest.len() as u64) {
                let (part, behind) = rest.split_at_mut(len);
                let chunk = chunks.all[chunk].read().unwrap_or_else(PoisonError::into_inner);
                match chunk.as_ref() {
                    Some(bytes) => part.copy_from_slice(&bytes[at..at + len]),
                    None => part.fill(0),
                }
                rest = behind;
            }
            Ok(())
        })
    }

    fn read_if_cached(&self, offset: u64, into: &mut [u8]) -> io::Result<bool> {
        self.read(offset, into).map(|()| true)
    }

    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        self.with(|chunks| {
            chunks.check(offset, from.len() as u64)?;
            let mut rest = from;
            for (chunk, at, len) in Chunks::parts(offset, rest.len() as u64) {
                let (part, behind) = rest.split_at(len);
                let mut chunk = chunks.all[chunk].write().unwrap_or_else(PoisonError::into_inner);
                let bytes = chunk.get_or_insert_with(|| vec![0; CHUNK as usize].into());
                bytes[at..at + len].copy_from_slice(part);
                rest = behind;
            }
            Ok(())
        })
    }

    /// There is no medium below.
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn trim(&self, offset: u64, length: u64) -> io::Result<()> {
        self.with(|chunks| chunks.zero(offset, length, true))
    }

    fn write_zeroes(&self, offset: u64, length: u64, may_punch: bool, _: bool) -> io::Result<()> {
        self.with(|chunks| chunks.zero(offset, length, may_punch))
    }

    fn extents(&self, offset: u64, length: u64, most: usize) -> io::Result<Vec<Extent>> {
        self.with(|chunks| {
            chunks.check(offset, length)?;
            let mut extents: Vec<Extent> = Vec::new();
            for (chunk, _, len) in Chunks::parts(offset, length) {
                let chunk = chunks.all[chunk].read().unwrap_or_else(PoisonError::into_inner);
                let len = len as u64;
                let next = if chunk.is_some() { Extent::data(len) } else { Extent::hole(len) };
                let is_full = extents.len() == most;
                match extents.last_mut() {
                    Some(last) if last.is_hole == next.is_hole => last.len += len,
                    _ if is_full => break,
                    _ => extents.push(next),
                }
            }
            Ok(extents)
        })
    }

    fn resize(&self, size: u64) -> io::Result<()> {
        let mut chunks = self.chunks.write().unwrap_or_else(PoisonError::into_inner);
        let old = chunks.size;
        if size < old {
            // What is cut off reads as zeroes if the device grows again.
            let end = old.min(size.next_multiple_of(CHUNK));
            chunks.zero(size, end - size, true)?;
        }
        chunks.all.resize_with(size.div_ceil(CHUNK) as usize, RwLock::default);
        chunks.size = size;
        Ok(())
    }
}
