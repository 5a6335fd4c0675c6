//! Where the bytes of writes from memory lie until they are acknowledged.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use landfall_placement::Area;
use landfall_transport::memory::Memory;

use super::crowd::WindowState;
use super::memory::{Lent, Pool};
use crate::clan::{Error, WORD};

/// Memory that a write or a read under way holds.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    lent: Arc<Lent>,
    range: Range<u64>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Memory of its own.
    Whole,
    /// The user's, with a number that the user waits for.
    Dma,
    /// Staging memory: so much of it, of a window's with what was left over at its end.
    Staged(u64),
}

impl Source {
    pub(crate) fn whole(lent: Arc<Lent>) -> Self {
        let range = 0..lent.len();
        Self { lent, range, kind: Kind::Whole }
    }

    /// Memory that several members of a group are sent from.
    pub(crate) const fn shared(lent: Arc<Lent>, len: u64) -> Self {
        Self { lent, range: 0..len, kind: Kind::Staged(len) }
    }

    pub(crate) const fn dma(lent: Arc<Lent>, range: Range<u64>) -> Self {
        Self { lent, range, kind: Kind::Dma }
    }

    pub(crate) fn whole_area(&self) -> Area {
        self.area(self.range.start, self.range.end - self.range.start)
    }

    pub(crate) fn area(&self, at: u64, len: u64) -> Area {
        self.lent.area(at, len)
    }

    pub(crate) const fn staged(&self) -> Option<u64> {
        match self.kind {
            Kind::Staged(bytes) => Some(bytes),
            _ => None,
        }
    }

    pub(crate) fn is_dma(&self) -> bool {
        self.kind == Kind::Dma
    }
}

/// A window's memory for long writes: a ring, made when it is first needed.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    ring: Option<Arc<Lent>>,
    /// Bytes that were ever taken of it.
    taken: u64,
}

/// How long the ring is.
const RING: u64 = 256 << 10;
/// Longer writes get memory of their own.
const MOST: usize = 64 << 10;

impl Staging {
    /// Copies the bytes to where they can be sent from. Nothing: it is full.
    pub(crate) fn put(
        &mut self,
        pool: &Arc<Pool>,
        state: &WindowState,
        bytes: &[u8],
    ) -> Result<Option<Source>, Error> {
        if bytes.len() > MOST {
            let memory = Memory::try_zeroed(bytes.len());
            let mut memory = memory.map_err(|_| Error::NoRoom("byte of memory"))?;
            memory.copy_from_slice(bytes);
            return Ok(Some(Source::whole(pool.lend(memory)?)));
        }
        let ring = match &self.ring {
            Some(ring) => ring,
            None => {
                let memory = Memory::try_zeroed(RING as usize);
                let memory = memory.map_err(|_| Error::NoRoom("byte of memory"))?;
                self.ring.insert(pool.lend(memory)?)
            }
        };
        let len = (bytes.len() as u64).next_multiple_of(WORD);
        let mut at = self.taken % RING;
        let mut skipped = 0;
        if at + len > RING {
            // In one piece: what is left at the end stays empty.
            (skipped, at) = (RING - at, 0);
        }
        let free = RING - (self.taken - state.unstaged.load(Ordering::Acquire));
        if skipped + len > free {
            return Ok(None);
        }
        ring.copy_in(at, bytes)?;
        self.taken += skipped + len;
        let range = at..at + bytes.len() as u64;
        Ok(Some(Source { lent: Arc::clone(ring), range, kind: Kind::Staged(skipped + len) }))
    }

    /// The last that was put was not sent after all.
    pub(crate) fn take_back(&mut self, source: &Source) {
        self.taken -= source.staged().unwrap_or(0);
    }
}
