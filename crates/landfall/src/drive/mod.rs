//! What the front doors of all protocols need to drive an engine: drivers of any
//! kind in one list, threads that wait, and locks that outlive a panic.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `way` | how a path is opened |
//! | `over` | a way, or a simulated adapter |
//! | `lane` | a path that is open |
//! | `plug` | a path by a simulated adapter (feature `nic`) |
//! | `driven` | who makes the turns, and who sleeps at the descriptors |

#[cfg(feature = "clan")]
mod driven;
#[cfg(any(feature = "clan", feature = "stp"))]
mod lane;
#[cfg(any(feature = "clan", feature = "stp"))]
mod over;
#[cfg(all(feature = "nic", any(feature = "clan", feature = "qpip", feature = "stp")))]
pub(crate) mod plug;
#[cfg(any(feature = "clan", feature = "stp"))]
mod way;

use std::cell::OnceCell;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Wake;
use std::thread::{self, Thread};

use landfall_placement::{Engine, Instant, PathId, PathLimits};
use landfall_transport::driver::Interests;
use landfall_transport::{Capabilities, Counters, Driver, Progress, Wait};

#[cfg(feature = "clan")]
pub(crate) use driven::{After, Core, Driven, Handle};
#[cfg(any(feature = "clan", feature = "stp"))]
pub(crate) use lane::{Kind, Lane};
#[cfg(any(feature = "clan", feature = "stp"))]
pub(crate) use over::Over;
#[cfg(any(feature = "clan", feature = "stp"))]
pub(crate) use way::Way;

/// [`Driver`] for one engine, so that drivers of several kinds fit one list.
pub(crate) trait AnyDriver<E>: Send {
    fn path(&self) -> PathId;
    fn limits(&self) -> PathLimits;
    fn capabilities(&self) -> &Capabilities;
    fn counters(&self) -> &Counters;
    fn counters_mut(&mut self) -> &mut Counters;
    fn turn(&mut self, engine: &mut E, now: Instant) -> io::Result<Progress>;
    fn interests(&self) -> Interests;
    fn poll_timeout(&self) -> Option<Instant>;

    /// The path went down: there are no turns until it is up again.
    fn cut(&mut self, engine: &mut E, now: Instant) {
        let _ = (engine, now);
    }
}

impl<E: Engine, D: Driver + Send> AnyDriver<E> for D {
    fn path(&self) -> PathId {
        Driver::path(self)
    }

    fn limits(&self) -> PathLimits {
        Driver::limits(self)
    }

    fn capabilities(&self) -> &Capabilities {
        Driver::capabilities(self)
    }

    fn counters(&self) -> &Counters {
        Driver::counters(self)
    }

    fn counters_mut(&mut self) -> &mut Counters {
        Driver::counters_mut(self)
    }

    fn turn(&mut self, engine: &mut E, now: Instant) -> io::Result<Progress> {
        Driver::turn(self, engine, now)
    }

    fn interests(&self) -> Interests {
        Driver::interests(self)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Driver::poll_timeout(self)
    }
}

/// A thread that panicked under one of these locks left nothing half done.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long a thread spins before it sleeps.
#[derive(Debug)]
pub(crate) struct Patience {
    wait: Wait,
    idle_since: Option<Instant>,
}

impl Patience {
    pub(crate) const fn new(wait: Wait) -> Self {
        Self { wait, idle_since: None }
    }

    /// Something moved.
    pub(crate) const fn renew(&mut self) {
        self.idle_since = None;
    }

    /// Nothing moved: is it time to sleep?
    pub(crate) fn is_over(&mut self, now: Instant) -> bool {
        match self.wait {
            Wait::Spin => false,
            Wait::Block => true,
            Wait::SpinThenBlock(budget) => now.since(*self.idle_since.get_or_insert(now)) >= budget,
        }
    }
}

/// Wakes a thread that waits for a future.
pub(crate) struct Alarm {
    thread: Thread,
    is_woken: AtomicBool,
}

thread_local! {
    static ALARM: OnceCell<Arc<Alarm>> = const { OnceCell::new() };
}

impl Alarm {
    /// The one of this thread. It has just rung: what is waited for has to be
    /// looked at once.
    pub(crate) fn of_this_thread() -> Arc<Self> {
        let new = || Arc::new(Self { thread: thread::current(), is_woken: AtomicBool::new(true) });
        let alarm = ALARM.with(|alarm| Arc::clone(alarm.get_or_init(new)));
        alarm.is_woken.store(true, Ordering::Relaxed);
        alarm
    }

    /// Has it rung since the last time that this was asked?
    pub(crate) fn has_rung(&self) -> bool {
        self.is_woken.swap(false, Ordering::Acquire)
    }

    /// Will the next look say that it has rung?
    pub(crate) fn is_ringing(&self) -> bool {
        self.is_woken.load(Ordering::Acquire)
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::Release)
            && thread::current().id() != self.thread.id()
        {
            self.thread.unpark();
        }
    }
}
