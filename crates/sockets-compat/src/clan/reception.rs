//! [`Reception`]: where connections come in, on this host or from others.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle};

use super::desk::Desk;
use super::stream::{Arrivals, Ends};

/// What the threads of a listener share.
pub(super) trait Entrance: Send + Sync + 'static {
    /// Where connections are made, and wait until they are accepted.
    fn desk(&self) -> &Desk<Ends>;

    /// Wakes the thread that listens: it looks whether the desk was closed.
    fn wake(&self);
}

/// A name or a port that is listened at, on a thread of its own. When this is dropped, that
/// has ended.
pub(super) struct Reception<E: Entrance> {
    door: Arc<E>,
    thread: Option<JoinHandle<()>>,
}

impl<E: Entrance> Reception<E> {
    /// `serve` sees to those that come, until the desk is closed; what it owns is free then.
    pub(super) fn open(door: E, serve: impl FnOnce(Arc<E>) + Send + 'static) -> io::Result<Self> {
        let door = Arc::new(door);
        let serving = Arc::clone(&door);
        let thread = thread::Builder::new().name("clan-listen".into());
        let thread = thread.spawn(move || serve(serving))?;
        Ok(Self { door, thread: Some(thread) })
    }
}

impl<E: Entrance> Arrivals for Reception<E> {
    fn poll_ends(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Ends>> {
        self.door.desk().poll_accept(cx)
    }
}

impl<E: Entrance> Drop for Reception<E> {
    fn drop(&mut self) {
        self.door.desk().close();
        self.door.wake();
        // When this has ended, the name or the port is free again.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
