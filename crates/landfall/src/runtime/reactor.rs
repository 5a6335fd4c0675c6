//! [`ReactorHandle`]: the turns of a runtime without a thread of its own, for a reactor of the
//! user's own.
//!
//! The reactor sleeps at one descriptor, and calls [`turn`](ReactorHandle::turn) when it is
//! readable. Whatever gives the runtime something to do makes it readable: a path, a moment, a
//! handle on any thread. It is level-triggered: nothing is lost where nobody looks.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use landfall_placement::Duration;
use landfall_transport::driver::Interest;
use landfall_transport::{Bell, ReadySet};

use super::{Protocol, Runtime};

/// This many turns are made in one go: the reactor has others to serve.
const TURNS: u32 = 16;

/// What came of [`EndpointDriver::turn`](crate::stp::EndpointDriver::turn) and its like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TurnReport {
    /// Something happened: a packet came or left, or an operation went on. What is waited for
    /// may be done.
    pub moved: bool,
    /// When the next call makes sense though the descriptor may not be readable before: zero
    /// where there is more to do, nothing where only the descriptor tells. The descriptor is
    /// readable then, too.
    pub next: Option<Duration>,
    /// All is over: nothing moves any more.
    pub is_over: bool,
}

/// What a reactor of the user's own waits for.
#[derive(Debug)]
pub(super) struct Reactor {
    ready: ReadySet,
    /// Rung when something is to be done that neither a path nor a moment tells of.
    bell: Bell,
    /// Its handle exists: somebody makes turns.
    is_attended: AtomicBool,
    /// Nobody else has a handle any more.
    is_alone: AtomicBool,
}

impl Reactor {
    pub(super) fn new() -> io::Result<Self> {
        let (ready, bell) = (ReadySet::new()?, Bell::new()?);
        ready.watch(&[bell.interest()])?;
        bell.arm();
        // Readable from the start: the first turn tells what to wait for.
        bell.ring();
        let (is_attended, is_alone) = (AtomicBool::new(true), AtomicBool::new(false));
        Ok(Self { ready, bell, is_attended, is_alone })
    }

    /// There is something to do. Where the reactor is awake it costs a look at one atomic.
    #[inline]
    pub(super) fn ring(&self) {
        self.bell.ring();
    }

    /// The last handle of the user is gone. Does somebody make turns from now on?
    pub(super) fn is_left_to(&self) -> bool {
        self.is_alone.store(true, Ordering::SeqCst);
        self.is_attended.load(Ordering::SeqCst)
    }

    /// Nobody makes turns here any more. Were all other handles gone?
    fn leave(&self) -> bool {
        self.is_attended.store(false, Ordering::SeqCst);
        self.is_alone.load(Ordering::SeqCst)
    }

    /// Waits for nothing: descriptors are about to be closed.
    pub(super) fn forget_all(&self) {
        // What is closed leaves the set by itself.
        let _ = self.ready.watch(&[self.bell.interest()]);
    }
}

/// Makes the turns of a runtime that has no thread. It keeps nothing open: when every other handle is gone, the runtime ends,
/// and its turns bring it to that end. Where it is dropped before, they end at once.
pub(crate) struct ReactorHandle<P: Protocol> {
    runtime: Arc<Runtime<P>>,
    reactor: Arc<Reactor>,
}

impl<P: Protocol> ReactorHandle<P> {
    pub(super) const fn new(runtime: Arc<Runtime<P>>, reactor: Arc<Reactor>) -> Self {
        Self { runtime, reactor }
    }

    /// Does what is due, and never waits.
    pub(crate) fn turn(&self) -> TurnReport {
        let Self { runtime, reactor } = self;
        reactor.bell.silence();
        let (mut moved, mut is_busy) = (false, true);
        for _ in 0..TURNS {
            if !is_busy || runtime.has_ended() {
                break;
            }
            is_busy = runtime.turn();
            moved |= is_busy;
        }
        // Rings are heard from here on.
        reactor.bell.arm();
        let mut interests: Vec<Interest> = Vec::new();
        let until = runtime.leave_to_reactor(&mut interests);
        interests.push(reactor.bell.interest());
        let is_over = runtime.has_ended();
        let watched = reactor.ready.watch(&interests);
        let timed = reactor.ready.wake_at(&runtime.clock, until);
        let next = until.map(|until| runtime.clock.until(until));
        let has_more = is_busy || runtime.has_submissions() || next == Some(Duration::ZERO);
        // Where the kernel has no room for another descriptor, turns look at all of them.
        if !is_over && (has_more || watched.is_err() || timed.is_err()) {
            reactor.bell.ring();
            return TurnReport { moved, next: Some(Duration::ZERO), is_over };
        }
        TurnReport { moved, next: next.filter(|_| !is_over), is_over }
    }
}

impl<P: Protocol> AsFd for ReactorHandle<P> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reactor.ready.as_fd()
    }
}

impl<P: Protocol> Drop for ReactorHandle<P> {
    fn drop(&mut self) {
        if self.reactor.leave() {
            self.runtime.end_here();
        }
    }
}

impl<P: Protocol> fmt::Debug for ReactorHandle<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReactorHandle").field("runtime", &self.runtime).finish_non_exhaustive()
    }
}
