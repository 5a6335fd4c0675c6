//! [`Doorbell`] and [`Ringer`]: one word that says whether somebody sleeps, and an
//! eventfd that ends it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};

use thiserror::Error;

use crate::memory::{Piece, SharedMemoryError};
use crate::shm::word::Word;

/// Somebody is about to sleep, or sleeps.
const SLEEPING: u64 = 1;

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
        if self.word.words().first().is_some_and(is_awaited) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        signal(self.event.as_fd());
    }
}

/// Adds one to an eventfd. A counter that is full is as good as a signal.
pub(super) fn signal(event: BorrowedFd<'_>) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: eight bytes of a live buffer.
    let _ = unsafe { libc::write(event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
}

/// The sleeper's half: says that it is about to sleep. A full fence follows.
#[inline]
pub(crate) fn announce(word: &impl Word) {
    word.fetch_or(SLEEPING, Relaxed);
}

/// The ringer's half: is a signal due? If so it is this caller's to send.
#[inline]
pub(crate) fn is_awaited<W: Word>(word: &W) -> bool {
    W::fence(SeqCst);
    word.load(Relaxed) != 0 && word.swap(0, AcqRel) != 0
}
