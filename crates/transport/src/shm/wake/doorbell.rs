//! [`Doorbell`] and [`Ringer`]: one word that says whether somebody sleeps and where,
//! and an eventfd for those who sleep there.
//!
//! # A ring that never waits
//!
//! Anyone who rings does it at a descriptor of another process. Whether a *write* to an eventfd
//! waits is said by a flag of the open file, and by a counter, which both processes share:
//! a peer that clears the one and fills the other holds anyone who writes for ever. Looking
//! first helps nothing, for the peer can change both in between. A *read* can say with the
//! call that it does not wait (`RWF_NOWAIT`, Linux 5.8); a write to an eventfd cannot. So a
//! doorbell has a counter that is as good as full from the beginning, a ring takes one away
//! from it, and sleepers wait for it to become writable, which each read says again.
//! A ring costs what a write would.
//!
//! What else was tried: a Unix socket can be told with each call not to wait, but costs half as
//! much again, for what was sent has to be taken out, and descriptors could come with it; a
//! timer that is set to now (`timerfd_settime`) waits for nothing either, but for the timer
//! of the processor, which takes eight times as long on a virtual machine.
//!
//! Sleeping at a word: the kernel's futex, across processes.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use std::time::Duration;
use std::{io, ptr};

use thiserror::Error;

use crate::memory::{Piece, SharedMemoryError};
use crate::shm::{Word, is_event};

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
        let fd = unsafe { libc::eventfd(0, EACH_TAKES_ONE) };
        if fd < 0 {
            return Err(WakeError::last("eventfd"));
        }
        // SAFETY: the descriptor is new and nobody else's.
        let event = unsafe { OwnedFd::from_raw_fd(fd) };
        let rings = MOST_RINGS.to_ne_bytes();
        // SAFETY: eight bytes of a live buffer, to a descriptor that nobody else has yet.
        if unsafe { libc::write(fd, rings.as_ptr().cast(), rings.len()) } < 0 {
            return Err(WakeError::last("write"));
        }
        Ok(Self { word, event })
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
    /// There is no word; or the descriptor is no eventfd: a read of anything else
    /// might have effects, or not end; or the kernel cannot read one without waiting
    /// (before Linux 5.8).
    pub fn new(memory: &Piece, event: OwnedFd) -> Result<Self, WakeError> {
        let word = memory.part(0..8)?;
        match is_event(event.as_fd()) {
            Ok(true) => {}
            Ok(false) => return Err(WakeError::NoEvent),
            Err(error) => return Err(WakeError::System { call: "readlink", error }),
        }
        // One ring too many wakes nobody for long.
        match take_one(event.as_fd()) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                Err(WakeError::System { call: "preadv2", error })
            }
            _ => Ok(Self { word, event }),
        }
    }

    /// Wakes anyone who sleeps at the doorbell, so that it sees all that was published
    /// before. While nobody sleeps that is a fence and a load. It never waits, whatever
    /// the peer does to its descriptor.
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
            wake(word);
        }
        if sleepers & !AT_WORD != 0 {
            signal(self.event.as_fd());
        }
    }
}

/// A read takes one from the counter, however much there is.
const EACH_TAKES_ONE: libc::c_int = libc::EFD_SEMAPHORE | libc::EFD_NONBLOCK | libc::EFD_CLOEXEC;
/// More than can be taken while the machine lasts, and far from where the counter ends.
const MOST_RINGS: u64 = 1 << 63;

/// Rings at the descriptor of a doorbell. A peer that has emptied the counter is not woken,
/// by its own fault.
pub(super) fn signal(event: BorrowedFd<'_>) {
    let _ = take_one(event);
}

/// Takes one from the counter of a doorbell, and never waits: that is said with the call,
/// not by the file.
fn take_one(event: BorrowedFd<'_>) -> io::Result<()> {
    let mut count = [0u8; 8];
    let into = libc::iovec { iov_base: count.as_mut_ptr().cast(), iov_len: count.len() };
    // An eventfd has no positions: -1, in both halves.
    let (fd, at) = (event.as_raw_fd(), -1 as libc::c_long);
    // SAFETY: one piece of memory with room for eight bytes, which lives through the call.
    let read = unsafe {
        libc::syscall(libc::SYS_preadv2, fd, ptr::from_ref(&into), 1, at, at, libc::RWF_NOWAIT)
    };
    if read < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The sleeper's half: says that it is about to sleep, and where. A full fence follows.
/// Returns what the word holds now.
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

/// The half of the word that holds its low bits: the kernel compares 32 bits.
const fn low_half(word: &AtomicU64) -> *const u32 {
    let first = word.as_ptr().cast_const().cast::<u32>();
    if cfg!(target_endian = "big") { first.wrapping_add(1) } else { first }
}

/// Sleeps until somebody calls [`wake`], or the time is over; not at all if the low half
/// of the word is another than that of `seen` now. It may return early.
pub(super) fn wait(word: &AtomicU64, seen: u64, at_most: Duration) -> Result<(), WakeError> {
    // Bounded by the caller to parts of a second.
    let time =
        libc::timespec { tv_sec: at_most.as_secs() as _, tv_nsec: at_most.subsec_nanos().into() };
    let (word, operation) = (low_half(word), libc::FUTEX_WAIT);
    // SAFETY: the kernel reads four bytes of a live atomic, which are aligned, and a time
    // that outlives the call.
    match unsafe { libc::syscall(libc::SYS_futex, word, operation, seen as u32, &raw const time) } {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            error
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EAGAIN | libc::EINTR | libc::ETIMEDOUT)
                ) =>
            {
                Ok(())
            }
            error => Err(WakeError::System { call: "futex", error }),
        },
    }
}

/// Wakes all that sleep at the word.
pub(super) fn wake(word: &AtomicU64) {
    let (word, operation, all) = (low_half(word), libc::FUTEX_WAKE, i32::MAX);
    let no_time = ptr::null::<libc::timespec>();
    // SAFETY: four bytes of a live atomic; the kernel takes their address, and reads
    // nothing. Nobody there is no error.
    let _ = unsafe { libc::syscall(libc::SYS_futex, word, operation, all, no_time) };
}
