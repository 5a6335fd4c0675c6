//! [`State`]: what is behind the lock of a runtime, and what a turn leaves to be done without
//! it.

use landfall_placement::Instant;
use landfall_transport::driver::Interest;

use super::poll_slot::Sleeper;
use super::shutdown::{Shutdown, Stage};
use super::{Path, Protocol};

/// What is behind the lock.
pub(super) struct State<P> {
    pub(super) protocol: P,
    sleeper: Option<Sleeper>,
    /// What a reactor of the user's own waits for.
    reactor: Option<Sleeper>,
    pub(super) stage: Stage,
    /// Something was asked for, and no turn was made since.
    pub(super) must_turn: bool,
}

/// What a turn leaves to be done when the lock is not held any more.
#[must_use = "somebody may wait for it"]
pub(super) struct Leftover<P: Protocol> {
    pub(super) moved: bool,
    /// A thread or a reactor sleeps for the wrong things.
    pub(super) must_wake: bool,
    pub(super) is_over: bool,
    pub(super) deferred: P::Deferred,
    pub(super) ended: Option<Ended<P>>,
}

/// What is left of a runtime at its end, in the order in which it is dropped.
pub(super) struct Ended<P: Protocol> {
    _paths: Vec<Path<P::Engine>>,
    _cleanup: P::Cleanup,
}

impl<P: Protocol> Leftover<P> {
    /// What is left where no turn was made.
    pub(super) fn without_turn(state: &mut State<P>) -> Self {
        let deferred = state.protocol.take_deferred();
        Self { moved: false, must_wake: false, is_over: false, deferred, ended: None }
    }
}

impl<P: Protocol> State<P> {
    pub(super) const fn new(protocol: P) -> Self {
        Self { protocol, sleeper: None, reactor: None, stage: Stage::Running, must_turn: false }
    }

    /// One turn, and how far it brings the end. Returns whether anything moved, and whether
    /// all is over that was under way.
    pub(super) fn turn(&mut self, now: Instant, shutdown: &Shutdown) -> (bool, bool) {
        // Events of the engine say in whose turn they are told.
        #[cfg(feature = "tracing")]
        let _turn = {
            let (engine, at) = (core::any::type_name::<P::Engine>(), core::ptr::from_ref(self));
            tracing::trace_span!("turn", engine, runtime = ?at).entered()
        };
        self.must_turn = false;
        if self.stage == Stage::Running && shutdown.is_asked() {
            self.protocol.close(now);
            self.stage = Stage::Closing(now + shutdown.linger);
        }
        let moved = self.protocol.turn(now);
        match self.stage {
            Stage::Closing(until) if self.protocol.is_closed() || now >= until => {
                self.protocol.abort(now);
                self.protocol.turn(now);
                self.stage = Stage::Leaving(now + shutdown.linger);
                (true, true)
            }
            Stage::Leaving(until) if self.protocol.is_quiet() || now >= until => {
                self.stage = Stage::Ended;
                (true, false)
            }
            _ => (moved, false),
        }
    }

    /// The end, once: what is to be dropped without the lock.
    pub(super) fn end(&mut self, shutdown: &Shutdown) -> Option<Ended<P>> {
        if shutdown.has_ended() {
            return None;
        }
        shutdown.note_ended();
        self.reactor = None;
        let cleanup = self.protocol.release();
        Some(Ended { _paths: self.protocol.paths_mut().take(), _cleanup: cleanup })
    }

    /// When a turn makes sense, even if nothing comes.
    fn next_wake(&self) -> Option<Instant> {
        [self.protocol.next_wake(), self.stage.until()].into_iter().flatten().min()
    }

    /// A thread is about to sleep: what it waits for, and until when.
    pub(super) fn fall_asleep(&mut self, into: &mut Vec<Interest>) -> Option<Instant> {
        let until = self.what_to_wait_for(into);
        self.sleeper = Some(Sleeper { until, interests: into.clone() });
        until
    }

    /// The same for a reactor of the user's own, which is told by a descriptor.
    pub(super) fn leave_to_reactor(
        &mut self,
        into: &mut Vec<Interest>,
        shutdown: &Shutdown,
    ) -> Option<Instant> {
        let until = self.what_to_wait_for(into);
        self.reactor = Some(Sleeper { until, interests: into.clone() });
        let must_begin_end = self.stage == Stage::Running && shutdown.is_asked();
        if must_begin_end { Some(Instant::ZERO) } else { until }
    }

    fn what_to_wait_for(&self, into: &mut Vec<Interest>) -> Option<Instant> {
        self.protocol.paths().interests(into);
        let has_work = self.must_turn || self.protocol.has_work();
        if has_work { Some(Instant::ZERO) } else { self.next_wake() }
    }

    /// The thread is awake, and finds something to do or does not.
    pub(super) fn wake_up(&mut self, is_ready: bool) {
        self.sleeper = None;
        if is_ready {
            self.protocol.paths_mut().count_wakeup();
        }
    }

    /// After a turn while a thread or a reactor sleeps: does one sleep for the wrong things?
    pub(super) fn must_wake_sleeper(&mut self) -> bool {
        if self.sleeper.is_none() && self.reactor.is_none() {
            return false;
        }
        let mut interests = Vec::new();
        self.protocol.paths().interests(&mut interests);
        let (next_wake, is_ending) = (self.next_wake(), self.stage != Stage::Running);
        let is_stale = |sleeper: &Sleeper| is_ending || sleeper.is_stale(next_wake, &interests);
        // A reactor is told once, and then knows that it has to look.
        let tells_reactor = self.reactor.take_if(|sleeper| is_stale(sleeper)).is_some();
        tells_reactor || self.sleeper.as_ref().is_some_and(is_stale)
    }
}
