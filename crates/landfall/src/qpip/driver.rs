//! [`AdapterDriver`]: the turns of an adapter that has no thread of its own.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use super::state::AdapterState;
use crate::runtime::{ReactorHandle, TurnReport};

/// Makes the turns of an adapter, in a reactor of your own.
/// [`Builder::open_without_thread`](super::Builder::open_without_thread) gives it, with the
/// adapter.
///
/// Its descriptor is readable when there is something to do: a frame came, a link has room
/// again, a timer is due, or something was posted. Then call [`turn`](Self::turn), and after
/// that [poll](super::CompletionQueue::poll) the completion queues.
///
/// Handles may be used on any thread. Who forgets to make turns loses nothing but time: what
/// came waits in the kernel, as far as it has room, and TCP repeats the rest.
///
/// The driver keeps the adapter from nothing: when the last of the other handles is dropped,
/// turns let its last frames leave, until [`TurnReport::is_over`].
#[derive(Debug)]
pub struct AdapterDriver(ReactorHandle<AdapterState>);

impl AdapterDriver {
    pub(crate) const fn new(turns: ReactorHandle<AdapterState>) -> Self {
        Self(turns)
    }

    /// Does what is due now, and never waits: carries out what was posted, exchanges frames
    /// with the links, lets timers fire, and completes what is done. It stops after some turns
    /// though more is to be done; then the descriptor stays readable.
    pub fn turn(&self) -> TurnReport {
        self.0.turn()
    }
}

/// Readable when [`turn`](AdapterDriver::turn) has something to do. It may be readable for
/// once though there is nothing. It is for waiting only, and stays the same.
impl AsFd for AdapterDriver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for AdapterDriver {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
