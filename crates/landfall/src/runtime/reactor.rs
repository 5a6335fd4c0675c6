//! [`Reactor`]: turns by a loop of the user, beside descriptors of its own.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use landfall_placement::Duration;
use landfall_transport::driver::Interest;
use landfall_transport::{Bell, Selector};

use super::{Protocol, Runtime};

/// What drives an endpoint or adapter from a loop of your own: with `poll`, `epoll`, `mio` or
/// whatever else waits for descriptors.
///
/// In short: make turns until one moves nothing, poll your futures with its
/// [`waker`](Self::waker), [`prepare`](Self::prepare), wait until the descriptor is readable
/// or the time is over, and begin anew.
///
/// When the last handle is dropped, what is under way ends with the turns that follow, and
/// [`has_ended`](Self::has_ended) says when there is nothing left to drive. Dropped before
/// that, it ends at once.
pub struct Reactor {
    driven: Arc<dyn Driven>,
    selector: Selector,
    wakeup: Arc<Wakeup>,
    /// Used again and again.
    interests: Vec<Interest>,
    is_prepared: bool,
}

/// Ends a wait.
#[derive(Debug)]
struct Wakeup {
    bell: Arc<Bell>,
    /// Since the last turn began.
    is_woken: AtomicBool,
}

impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::SeqCst) {
            self.bell.ring();
        }
    }
}

/// What a reactor asks of a runtime, whatever its protocol.
pub(super) trait Driven: Send + Sync {
    /// One turn. Gives whether anything moved.
    fn turn(&self) -> bool;
    /// A wait is about to begin: what for, and how long at most.
    fn prepare(&self, into: &mut Vec<Interest>) -> Option<Duration>;
    fn has_ended(&self) -> bool;
    fn detach(&self);
}

impl<P: Protocol> Driven for Runtime<P> {
    fn turn(&self) -> bool {
        self.turn_by_reactor()
    }

    fn prepare(&self, into: &mut Vec<Interest>) -> Option<Duration> {
        self.prepare_reactor(into)
    }

    fn has_ended(&self) -> bool {
        Self::has_ended(self)
    }

    fn detach(&self) {
        self.detach_reactor();
    }
}

impl Reactor {
    /// Of a runtime that has none yet.
    pub(crate) fn new<P: Protocol>(runtime: Arc<Runtime<P>>) -> io::Result<Self> {
        let (selector, bell) = (Selector::new()?, Arc::new(Bell::new()?));
        if !runtime.attach_reactor(Arc::clone(&bell)) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it has a reactor already"));
        }
        let wakeup = Arc::new(Wakeup { bell, is_woken: AtomicBool::new(false) });
        let (interests, is_prepared) = (Vec::new(), false);
        Ok(Self { driven: runtime, selector, wakeup, interests, is_prepared })
    }

    /// One turn: sends what there is to be sent, takes what came, lets timers fire, and wakes
    /// whoever waits for that. Gives whether anything moved: then another may find more.
    pub fn turn(&mut self) -> bool {
        if std::mem::take(&mut self.is_prepared) {
            self.wakeup.bell.silence();
        }
        self.wakeup.is_woken.store(false, Ordering::SeqCst);
        self.driven.turn()
    }

    /// A waker for futures that are polled between a turn and the next wait: woken by the
    /// turns, or by another thread, it ends the wait.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.wakeup))
    }

    /// A wait is about to begin: for so long at most; nothing: until the descriptor is
    /// readable.
    ///
    /// # Errors
    /// The kernel does not let a descriptor be waited for.
    pub fn prepare(&mut self) -> io::Result<Option<Duration>> {
        // Rings are heard from here on.
        self.wakeup.bell.arm();
        self.is_prepared = true;
        self.interests.clear();
        let at_most = self.driven.prepare(&mut self.interests);
        self.interests.push(self.wakeup.bell.interest());
        self.selector.set(&self.interests)?;
        let is_woken = self.wakeup.is_woken.load(Ordering::SeqCst);
        Ok(if is_woken { Some(Duration::ZERO) } else { at_most })
    }

    /// Is there nothing left to drive?
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.driven.has_ended()
    }
}

/// Readable when a turn makes sense, once [`Reactor::prepare`] was called.
impl AsFd for Reactor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.selector.as_fd()
    }
}

impl AsRawFd for Reactor {
    fn as_raw_fd(&self) -> RawFd {
        self.selector.as_raw_fd()
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        self.driven.detach();
    }
}

impl fmt::Debug for Reactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reactor").field("descriptor", &self.as_raw_fd()).finish_non_exhaustive()
    }
}
