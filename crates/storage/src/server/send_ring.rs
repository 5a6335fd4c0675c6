//! [`SendRing`]: replies in memory that a stream sends from.

use std::fs::File;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use sockets_compat::SendMemory;

use super::output::Outlet;
use crate::stream::Stream;

/// The heads of replies that lie between blocks.
const HEADS: usize = 64 << 10;
/// This much leaves at once: the other side takes it in while more is read.
const MUCH: u64 = 128 << 10;

/// Memory that is filled from its beginning to its end and then from its beginning again, when
/// the other side has acknowledged what was there.
pub(super) struct SendRing {
    memory: SendMemory,
    size: u64,
    /// What was ever filled. The next byte goes to this place modulo the size.
    filled: u64,
    /// How much of that is sent. What is not lies in one piece.
    posted: u64,
    returned: Arc<Returned>,
}

/// What comes back from the stream, on its own threads.
#[derive(Default)]
struct Returned {
    state: Mutex<ReturnedState>,
    changed: Condvar,
}

#[derive(Default)]
struct ReturnedState {
    /// How much of what was ever filled is acknowledged.
    until: u64,
    /// Some never will be: the connection is broken.
    is_lost: bool,
}

impl Returned {
    fn state(&self) -> MutexGuard<'_, ReturnedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Replies that the stream sends.
struct Sending {
    until: u64,
    returned: Arc<Returned>,
    is_sent: bool,
}

impl Sending {
    fn done(mut self) {
        self.is_sent = true;
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        let mut state = self.returned.state();
        // A stream acknowledges in the order in which it sends.
        state.until = state.until.max(self.until);
        state.is_lost |= !self.is_sent;
        drop(state);
        self.returned.changed.notify_all();
    }
}

impl SendRing {
    /// A longer read is left to others.
    pub(super) const LONGEST: u32 = 1 << 20;
    /// Four of the longest, so that some are sent while others are read.
    const SIZE: usize = 4 * Self::LONGEST as usize + HEADS;

    /// Opens one, if the stream has memory for it.
    pub(super) fn open(stream: &dyn Stream) -> Option<Self> {
        let memory = stream.send_memory(Self::SIZE).ok()??;
        let size = memory.len();
        Some(Self { memory, size, filled: 0, posted: 0, returned: Arc::default() })
    }

    /// Waits until there is room for this many bytes in one piece.
    pub(super) fn make_room(&mut self, outlet: &impl Outlet, len: usize) -> io::Result<()> {
        let (at, len) = (self.filled % self.size, len as u64);
        // Else the place at the end that is left out could be all that is missing.
        assert!(len <= self.size / 2, "a reply is shorter than half of the ring");
        if at + len > self.size {
            self.send(outlet)?;
            self.filled += self.size - at;
            self.posted = self.filled;
        }
        let is_full = !self.has_room(&self.returned.state(), len);
        if is_full {
            // What is not sent is never acknowledged.
            self.send(outlet)?;
        }
        let mut state = self.returned.state();
        while !self.has_room(&state, len) {
            state = self.returned.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_lost { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }

    /// Need nobody wait for room for this many bytes?
    const fn has_room(&self, state: &ReturnedState, len: u64) -> bool {
        state.is_lost || self.filled + len - state.until <= self.size
    }

    /// Adds a reply, for which room was made.
    pub(super) fn add(&mut self, reply: &[u8]) -> io::Result<()> {
        self.memory.copy_in(self.filled % self.size, reply)?;
        self.filled += reply.len() as u64;
        Ok(())
    }

    /// Reads a block behind its head, for which room was made. False: the page cache does not
    /// have all of it.
    pub(super) fn read(
        &mut self,
        head: &[u8],
        file: &File,
        offset: u64,
        len: usize,
    ) -> io::Result<bool> {
        let begin = self.filled % self.size + head.len() as u64;
        if self.memory.read_cached(file, offset, begin..begin + len as u64)? < len {
            return Ok(false);
        }
        self.add(head)?;
        self.filled += len as u64;
        Ok(true)
    }

    /// Is there more than should wait?
    pub(super) const fn is_much(&self) -> bool {
        self.filled - self.posted >= MUCH
    }

    /// Sends what is not sent.
    pub(super) fn send(&mut self, outlet: &impl Outlet) -> io::Result<()> {
        if self.posted == self.filled {
            return Ok(());
        }
        let (begin, len) = (self.posted % self.size, self.filled - self.posted);
        self.posted = self.filled;
        let returned = Arc::clone(&self.returned);
        let sending = Sending { until: self.filled, returned, is_sent: false };
        let at = begin..begin + len;
        outlet.alone(|| self.memory.write(&[], at, move || sending.done()))
    }
}
