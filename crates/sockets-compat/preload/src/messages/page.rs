//! [`Page`]: a little memory for each socket, which every process has that has the socket.

use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};

use super::packets::File;
use crate::kernel::{self, Errno};

/// Bytes that are mapped for one.
const LEN: usize = 4096;

/// Where a socket stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum State {
    New,
    Connecting,
    Connected,
    Listening,
    /// The connection broke, or never came to be.
    Over,
}

/// What all who have a socket know of it.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Page {
    state: AtomicU32,
    /// Why something failed that nobody waited for (`SO_ERROR`).
    trouble: AtomicU32,
    /// The longest message that is taken (`SO_RCVBUF`); zero is what is usual.
    limit: AtomicU32,
}

impl Page {
    pub(super) fn state(&self) -> State {
        let known = [State::Connecting, State::Connected, State::Listening, State::Over];
        let state = self.state.load(Ordering::Acquire);
        known.into_iter().find(|known| *known as u32 == state).unwrap_or(State::New)
    }

    pub(super) fn set_state(&self, state: State) {
        self.state.store(state as u32, Ordering::Release);
    }

    /// Whether it was in that state, and is in the other now.
    pub(super) fn change(&self, from: State, to: State) -> bool {
        let (from, to) = (from as u32, to as u32);
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Something failed, and no call has told of it. The first reason is kept.
    pub(super) fn leave_trouble(&self, why: Errno) {
        let why = why.0.cast_unsigned();
        let _ = self.trouble.compare_exchange(0, why, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// What has failed since somebody last asked.
    pub(super) fn take_trouble(&self) -> Option<Errno> {
        match self.trouble.swap(0, Ordering::AcqRel) {
            0 => None,
            why => Some(Errno(why.cast_signed())),
        }
    }

    pub(super) fn limit(&self) -> Option<u32> {
        Some(self.limit.load(Ordering::Acquire)).filter(|limit| *limit != 0)
    }

    pub(super) fn set_limit(&self, limit: u32) {
        self.limit.store(limit, Ordering::Release);
    }
}

/// A page that is mapped here.
#[derive(Debug)]
pub(super) struct Mapped(*mut u8);

// SAFETY: what lies there is atomic.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// A new page, and the file by which others may have it, too.
    pub(super) fn create() -> Result<(Self, File), Errno> {
        let file = File::in_memory()?;
        kernel::set_len(file.fd(), LEN as u64)?;
        Ok((Self::of(&file)?, file))
    }

    /// The page that lies in this file, which a service made.
    pub(super) fn of(file: &File) -> Result<Self, Errno> {
        kernel::map(file.fd(), LEN).map(Self)
    }
}

impl Deref for Mapped {
    type Target = Page;

    fn deref(&self) -> &Page {
        // SAFETY: mapped as long as this lives, aligned as pages are, and longer than it;
        // any bits are atomic numbers.
        unsafe { &*self.0.cast::<Page>() }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: `map` made it, and nobody borrows it any more.
        unsafe { kernel::unmap(self.0, LEN) };
    }
}
