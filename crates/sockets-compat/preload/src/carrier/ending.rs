//! How the operator ends a carrier: a first signal lets connections come to their end and takes
//! no new ones, a second one ends it at once.

use std::io;
use std::path::PathBuf;
use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;
use std::thread;

use super::waking::LoopWaker;

const ENDS: [i32; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// The signals that end a carrier, which interrupt no thread of it any more.
pub(super) struct Signals(libc::sigset_t);

impl Signals {
    /// To be called before there is another thread: all that are started later leave these
    /// signals to the one that waits for them. Nor does it end a carrier that nobody reads any
    /// more what it says.
    pub(super) fn hold_back() -> Self {
        // SAFETY: a set of ours; a set of zeros is a valid one.
        unsafe {
            let mut ends: libc::sigset_t = std::mem::zeroed();
            for signal in ENDS {
                libc::sigaddset(&raw mut ends, signal);
            }
            let mut blocked = ends;
            libc::sigaddset(&raw mut blocked, libc::SIGPIPE);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, std::ptr::null_mut());
            Self(ends)
        }
    }

    fn wait(&self) -> i32 {
        let mut signal = 0;
        // SAFETY: a set that was filled above, and a place for a number.
        while unsafe { libc::sigwait(&raw const self.0, &raw mut signal) } != 0 {}
        signal
    }

    /// Starts the thread that waits for them. The name of the socket is taken away where the
    /// carrier itself does not come to that.
    pub(super) fn watch(self, waker: Arc<LoopWaker>, socket: PathBuf) -> io::Result<Ending> {
        let ending = Ending(Arc::default());
        let is_wanted = Arc::clone(&ending.0);
        let watch = move || {
            self.wait();
            is_wanted.store(true, Ordering::Release);
            waker.wake();
            let signal = self.wait();
            let _ = std::fs::remove_file(socket);
            exit(128 + signal)
        };
        thread::Builder::new().name("signals".into()).spawn(watch)?;
        Ok(ending)
    }
}

/// Whether the operator wants the carrier to end.
pub(super) struct Ending(Arc<AtomicBool>);

impl Ending {
    pub(super) fn is_wanted(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
