//! [`Volatile`]: a device whose cache is lost in a crash, and that fails where a test says
//! so.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use landfall_nbd::{Extent, Features};

use super::{BlockDevice, write_zeroes_slowly};

/// What is lost or kept as a whole.
const SECTOR: u64 = 512;

/// A fault that a test asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Reads of these bytes fail.
    Read,
    /// Writes to these bytes fail.
    Write,
    /// Writes to these bytes find no room.
    NoSpace,
}

/// A device in memory with a medium and a cache above it. A write reaches the cache; a flush
/// takes all of it to the medium; a [crash](Self::crash) loses of the rest what it likes.
///
/// ```
/// use landfall_storage::device::{BlockDevice, Volatile};
///
/// let device = Volatile::new(4096);
/// device.write(0, b"flushed")?;
/// device.flush()?;
/// device.write(512, b"not flushed")?;
/// device.crash(|_| false);
/// let mut bytes = [0; 519];
/// device.read(0, &mut bytes)?;
/// assert_eq!((&bytes[..7], &bytes[512..]), (&b"flushed"[..], &[0; 7][..]));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Volatile {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    medium: Vec<u8>,
    /// Sectors that were written and not flushed.
    cache: BTreeMap<u64, Vec<u8>>,
    faults: Vec<(Fault, Range<u64>)>,
    flush_fails: bool,
    flushes: u64,
}

impl Volatile {
    /// A device of this many bytes, all zero, on the medium.
    #[must_use]
    pub fn new(size: usize) -> Self {
        let (medium, cache) = (vec![0; size], BTreeMap::new());
        let state = State { medium, cache, faults: Vec::new(), flush_fails: false, flushes: 0 };
        Self { state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The machine stops. Of what was not flushed, `survives` says which sectors had reached
    /// the medium by themselves; the rest is as it was when it was flushed last.
    pub fn crash(&self, mut survives: impl FnMut(u64) -> bool) {
        let mut state = self.state();
        let cache = std::mem::take(&mut state.cache);
        for (sector, bytes) in cache.into_iter().filter(|(sector, _)| survives(*sector)) {
            let begin = (sector * SECTOR) as usize;
            state.medium[begin..begin + bytes.len()].copy_from_slice(&bytes);
        }
    }

    /// From now on this goes wrong in these bytes.
    pub fn fail(&self, fault: Fault, bytes: Range<u64>) {
        self.state().faults.push((fault, bytes));
    }

    /// From now on flushes fail, or do not.
    pub fn fail_flushes(&self, fails: bool) {
        self.state().flush_fails = fails;
    }

    /// Nothing goes wrong any more.
    pub fn heal(&self) {
        let mut state = self.state();
        state.faults.clear();
        state.flush_fails = false;
    }

    /// How many flushes it has seen.
    #[must_use]
    pub fn flushes(&self) -> u64 {
        self.state().flushes
    }
}

impl State {
    fn check(&self, faults: &[Fault], offset: u64, length: u64) -> io::Result<()> {
        let meets = |range: &Range<u64>| range.start < offset + length && offset < range.end;
        let found = self.faults.iter().find(|(fault, at)| faults.contains(fault) && meets(at));
        match found {
            None => Ok(()),
            Some((Fault::NoSpace, _)) => Err(io::ErrorKind::StorageFull.into()),
            Some(_) => Err(io::Error::other("a fault that was asked for")),
        }
    }

    fn sector(&self, sector: u64) -> Vec<u8> {
        self.cache.get(&sector).cloned().unwrap_or_else(|| {
            let begin = (sector * SECTOR) as usize;
            let end = self.medium.len().min(begin + SECTOR as usize);
            self.medium[begin..end].to_vec()
        })
    }
}

impl BlockDevice for Volatile {
    fn size(&self) -> u64 {
        self.state().medium.len() as u64
    }

    fn features(&self) -> Features {
        let all = [Features::FUA, Features::TRIM, Features::WRITE_ZEROES, Features::MULTI_CONN];
        all.into_iter().fold(Features::FLUSH, Features::with)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let state = self.state();
        state.check(&[Fault::Read], offset, into.len() as u64)?;
        let mut at = offset;
        let mut rest = into;
        while !rest.is_empty() {
            let (sector, within) = (state.sector(at / SECTOR), (at % SECTOR) as usize);
            let len = rest.len().min(sector.len() - within);
            let (part, behind) = rest.split_at_mut(len);
            part.copy_from_slice(&sector[within..within + len]);
            rest = behind;
            at += len as u64;
        }
        Ok(())
    }

    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        state.check(&[Fault::Write, Fault::NoSpace], offset, from.len() as u64)?;
        let mut at = offset;
        let mut rest = from;
        while !rest.is_empty() {
            let (mut sector, within) = (state.sector(at / SECTOR), (at % SECTOR) as usize);
            let len = rest.len().min(sector.len() - within);
            let (part, behind) = rest.split_at(len);
            sector[within..within + len].copy_from_slice(part);
            state.cache.insert(at / SECTOR, sector);
            rest = behind;
            at += len as u64;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        if self.state().flush_fails {
            return Err(io::Error::other("a fault that was asked for"));
        }
        self.crash(|_| true);
        self.state().flushes += 1;
        Ok(())
    }

    fn trim(&self, offset: u64, length: u64) -> io::Result<()> {
        write_zeroes_slowly(self, offset, length)
    }

    fn write_zeroes(&self, offset: u64, length: u64, _: bool, _: bool) -> io::Result<()> {
        write_zeroes_slowly(self, offset, length)
    }

    fn extents(&self, _: u64, length: u64, _: usize) -> io::Result<Vec<Extent>> {
        Ok(vec![Extent::data(length)])
    }
}
