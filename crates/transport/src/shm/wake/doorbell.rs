//! [`Doorbell`] and [`Ringer`]: one word that says whether somebody sleeps and where,
//! and an eventfd for those who sleep there.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};

use thiserror::Error;

use super::futex;
use crate::memory::{Piece, SharedMemoryError};
use crate::shm::word::Word;

/// In the word: somebody is about to sleep at the eventfd, or sleeps there.
pub(super) const AT_EVENT: u64 = 1;
/// In the word: a thread is about to sleep at the word itself, or sleeps there.
pub(super) const AT_WORD: u64 = 2;

/// A doorbell cannot be.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WakeError {
    /// There is no word for it.
    #[error(transparent)]
    Memory(#[from] SharedMemoryError),
    /// The descriptor that came from the owner is something else.
    #[error("the descriptor of the doorbell is no eventfd")]
    NoEvent,
    /// A system call failed.
    #[error("{call} failed: {error}")]
    System {
        /// Which one.
        call: &'static str,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
}

impl WakeError {
    pub(super) fn last(call: &'static str) -> Self {
        Self::System { call, error: io::Error::last_os_error() }
    }
}

/// The sleeper's end. Its descriptor is handed to the peer that shall ring.
#[derive(Debug)]
pub struct Doorbell {
    pub(super) word: Piece,
    event: OwnedFd,
}

impl Doorbell {
    /// A doorbell whose word is the first of this memory.
    ///
    /// # Errors
    /// There is no word, or the process has no descriptor left.
    pub fn create(memory: &Piece) -> Result<Self, WakeError> {
        let word = memory.part(0..8)?;
        // SAFETY: takes two numbers, gives a descriptor or -1.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(WakeError::last("eventfd"));
        }
        // SAFETY: the descriptor is new and nobody else's.
        Ok(Self { word, event: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// What the peer needs to ring.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// The ringing end, in the process of the peer. It may ring from any thread.
#[derive(Debug)]
pub struct Ringer {
    word: Piece,
    event: OwnedFd,
}

impl Ringer {
    /// For the doorbell whose word is the first of this memory, and whose descriptor
    /// came with it.
    ///
    /// # Errors
    /// There is no word, or the descriptor is no eventfd: a write to anything else
    /// might have effects, or not end.
    pub fn new(memory: &Piece, event: OwnedFd) -> Result<Self, WakeError> {
        let word = memory.part(0..8)?;
        let link = format!("/proc/self/fd/{}", event.as_raw_fd());
        let what = std::fs::read_link(link)
            .map_err(|error| WakeError::System { call: "readlink", error })?;
        if what.as_os_str() != "anon_inode:[eventfd]" {
            return Err(WakeError::NoEvent);
        }
        Ok(Self { word, event })
    }

    /// Wakes whoever sleeps at the doorbell, so that it sees all that was published
    /// before. While nobody sleeps that is a fence and a load.
    #[inline]
    pub fn ring(&self) {
        let Some(word) = self.word.words().first() else { return };
        let sleepers = awaited(word);
        if sleepers != 0 {
            self.wake(word, sleepers);
        }
    }

    #[cold]
    fn wake(&self, word: &AtomicU64, sleepers: u64) {
        if sleepers & AT_WORD != 0 {
            futex::wake(word);
        }
        if sleepers & !AT_WORD != 0 {
            signal(self.event.as_fd());
        }
    }
}

/// Adds one to an eventfd. A counter that is full is as good as a signal.
pub(super) fn signal(event: BorrowedFd<'_>) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: eight bytes of a live buffer.
    let _ = unsafe { libc::write(event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
}

/// The sleeper's half: says that it is about to sleep, and where. A full fence follows.
/// Gives what the word holds now.
#[inline]
pub(crate) fn announce(word: &impl Word, place: u64) -> u64 {
    word.fetch_or(place, Relaxed) | place
}

/// The sleeper is awake, or has found work: nobody need be woken there. The others that
/// have announced themselves still are to be.
#[inline]
pub(crate) fn retract(word: &impl Word, place: u64) {
    if word.load(Relaxed) & place != 0 {
        word.fetch_and(!place, AcqRel);
    }
}

/// The ringer's half: who is to be woken? If anybody, it is this caller's to do.
#[inline]
pub(crate) fn awaited<W: Word>(word: &W) -> u64 {
    W::fence(SeqCst);
    if word.load(Relaxed) == 0 { 0 } else { word.swap(0, AcqRel) }
}
