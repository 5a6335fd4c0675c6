//! What writers tell the owner: [`Hit`]s, through a ring of each writer's own.
//!
//! The memory of it belongs to one owner and one writer: a writer that scribbles
//! over it spoils its own news. A ring that is full loses no news silently: the
//! writer counts what found no room, and the owner reads [`WatchUpdate::Lost`].

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Mutex, PoisonError};

use thiserror::Error;

use crate::memory::{Piece, SharedMemory, SharedMemoryError};
use crate::shm::Word;
use crate::shm::ring::{Corrupt, Emptied, Filled};
use crate::shm::wake::{Doorbell, Ringer, WakeError};

/// How memory was touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// It was read.
    Read,
    /// It was written.
    Write,
}

/// A writer touched watched memory. It says so itself: the owner checks what it
/// means before it believes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// The number of the memory, as the owner gave it to the writer.
    pub tag: u32,
    /// How it was touched.
    pub touch: Touch,
    /// The first byte.
    pub offset: u64,
    /// How many bytes.
    pub len: u64,
}

/// What came out of a writer's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchUpdate {
    /// Memory was touched.
    Hit(Hit),
    /// More hits than there was room for: all that this writer may touch may have
    /// been touched.
    Lost,
}

/// The memory of a report cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReportError {
    /// There is none, or it is too short.
    #[error(transparent)]
    Memory(#[from] SharedMemoryError),
    /// It cannot wake.
    #[error(transparent)]
    Wake(#[from] WakeError),
}

/// Words of one line of the cache and its neighbour.
const APART: usize = 16;
/// The words of the writer: how many hits, and how many were lost.
const FILLED: usize = 0;
const LOST: usize = 1;
/// The word of the owner.
const EMPTIED: usize = APART;
/// Where the doorbell lies.
const BELL: u64 = 2 * 128;
const SLOTS: usize = 3 * APART;
/// Words of a hit: tag and touch, offset, length, and one to spare.
const HIT: usize = 4;
/// How many hits there is room for.
const CAPACITY: u64 = 1024;

/// Bytes of memory that a report takes.
const LEN: u64 = (SLOTS as u64 + CAPACITY * HIT as u64) * 8;

/// The owner's end: hits of one writer come out here.
#[derive(Debug)]
pub struct Hits {
    memory: SharedMemory,
    words: Piece,
    doorbell: Doorbell,
    emptied: Emptied,
    lost: u64,
}

impl Hits {
    /// Makes the memory for one writer, and the doorbell by which it wakes.
    ///
    /// # Errors
    /// The kernel has no memory or no descriptor left.
    pub fn create() -> Result<Self, ReportError> {
        let memory = SharedMemory::create("landfall-hits", LEN)?;
        let words = Piece::whole(&memory);
        let doorbell = Doorbell::create(&words.part(BELL..LEN)?)?;
        Ok(Self { memory, words, doorbell, emptied: Emptied::new(CAPACITY), lost: 0 })
    }

    /// The memory, to be handed to the writer.
    #[must_use]
    pub const fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// The doorbell: its descriptor goes to the writer too.
    #[must_use]
    pub const fn doorbell(&self) -> &Doorbell {
        &self.doorbell
    }

    /// The next piece of news; none if there is none. It costs one load.
    ///
    /// # Errors
    /// What the writer wrote cannot be: there is nothing more to be heard from it.
    #[inline]
    pub fn poll(&mut self) -> Result<Option<WatchUpdate>, Corrupt> {
        let Self { words, emptied, lost, .. } = self;
        next(words.words(), emptied, lost)
    }
}

/// See [`Hits::poll`].
#[inline]
pub(crate) fn next<W: Word>(
    words: &[W],
    emptied: &mut Emptied,
    lost: &mut u64,
) -> Result<Option<WatchUpdate>, Corrupt> {
    let (Some(filled), Some(lost_now), Some(mine)) =
        (words.get(FILLED), words.get(LOST), words.get(EMPTIED))
    else {
        return Ok(None);
    };
    if emptied.known() == 0 {
        let there = emptied.look(filled)?;
        // Asked in each round, so that a stream of hits cannot hide that some were lost.
        let now = lost_now.load(Acquire);
        if std::mem::replace(lost, now) != now {
            return Ok(Some(WatchUpdate::Lost));
        }
        if there == 0 {
            emptied.publish(mine);
            return Ok(None);
        }
    }
    let at = SLOTS + (emptied.count() % CAPACITY) as usize * HIT;
    let hit = words.get(at..at + HIT).map(|slot| {
        let [what, offset, len] = [0, 1, 2].map(|index| slot[index].load(Relaxed));
        let touch = if what >> 32 & 1 == 0 { Touch::Write } else { Touch::Read };
        Hit { tag: what as u32, touch, offset, len }
    });
    emptied.add(1);
    if emptied.pending() >= CAPACITY / 4 {
        emptied.publish(mine);
    }
    Ok(hit.map(WatchUpdate::Hit))
}

/// The writer's end. Threads of a process may share one: a lock is taken when
/// something was hit, and only then.
#[derive(Debug)]
pub struct Reporter {
    words: Piece,
    ringer: Ringer,
    filled: Mutex<Filled>,
}

impl Reporter {
    /// From what the owner handed out: the memory and the descriptor of its doorbell.
    ///
    /// # Errors
    /// They are not what they should be.
    pub fn new(memory: &SharedMemory, doorbell: OwnedFd) -> Result<Self, ReportError> {
        let words = Piece::of(memory, 0..LEN)?;
        let ringer = Ringer::new(&words.part(BELL..LEN)?, doorbell)?;
        Ok(Self { words, ringer, filled: Mutex::new(Filled::new(CAPACITY)) })
    }

    /// Tells the owner, and wakes it if it sleeps. An owner whose counter cannot be
    /// is told nothing more.
    #[cold]
    pub fn report(&self, hit: &Hit) {
        {
            let mut filled = self.filled.lock().unwrap_or_else(PoisonError::into_inner);
            record(self.words.words(), &mut filled, hit);
        }
        self.ringer.ring();
    }

    /// Wakes the owner if it sleeps.
    #[inline]
    pub fn wake(&self) {
        self.ringer.ring();
    }
}

/// See [`Reporter::report`].
pub(crate) fn record<W: Word>(words: &[W], filled: &mut Filled, hit: &Hit) {
    let (Some(mine), Some(lost), Some(emptied)) =
        (words.get(FILLED), words.get(LOST), words.get(EMPTIED))
    else {
        return;
    };
    let room = match filled.known_room() {
        0 => filled.look(emptied).unwrap_or(0),
        room => room,
    };
    if room == 0 {
        lost.fetch_add(1, Release);
        return;
    }
    let at = SLOTS + (filled.count() % CAPACITY) as usize * HIT;
    if let Some(slot) = words.get(at..at + HIT) {
        let what = u64::from(hit.tag) | u64::from(hit.touch == Touch::Read) << 32;
        slot[0].store(what, Relaxed);
        slot[1].store(hit.offset, Relaxed);
        slot[2].store(hit.len, Relaxed);
    }
    filled.add(1);
    filled.publish(mine);
}
