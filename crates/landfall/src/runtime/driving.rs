//! [`Runtime`]: the lock around a protocol, and the turns.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::Waker;
use std::thread;

use landfall_placement::{Duration, Instant};
use landfall_transport::driver::Interest;
use landfall_transport::wait::until_ready;
use landfall_transport::{Bell, Clock, Wait};

use super::drive::{LONGEST_SLEEP, Turn};
use super::lock::EngineLock;
use super::poll_slot::PollSlot;
use super::reactor::{Reactor, ReactorHandle};
use super::shutdown::{Shutdown, Stage};
use super::state::{Leftover, State};
use super::sync::MutexGuard;
use super::user_drivers::{DriverGuard, UserDrivers};
use super::{Deferred, Protocol};

/// Who makes the turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driving {
    /// Anyone who calls or waits; a thread of its own whenever nobody does.
    Shared,
    /// A thread of its own, and nobody else: anyone who calls goes on meanwhile.
    OwnThread,
    /// Anyone who calls or waits, and nobody else.
    Callers,
}

/// What can be chosen about a runtime.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RuntimeConfig {
    pub(crate) driving: Driving,
    /// How a driving thread waits.
    pub(crate) wait: Wait,
    /// How long what is under way may take to end.
    pub(crate) linger: Duration,
    /// The name of its own thread.
    pub(crate) thread: &'static str,
}

/// The runtime of an engine: the lock around its protocol, and who makes its turns.
pub(crate) struct Runtime<P: Protocol> {
    lock: EngineLock<State<P>, P::Submission>,
    pub(crate) clock: Clock,
    pub(crate) wait: Wait,
    pub(super) driving: Driving,
    pub(super) poll_slot: PollSlot,
    /// Of a user who makes the turns when a descriptor is readable.
    reactor: Option<Arc<Reactor>>,
    pub(super) user_drivers: UserDrivers,
    pub(super) shutdown: Shutdown,
}

/// How long a driving thread lets others pass, in looks.
const LOOKS: u32 = 1000;
/// How long a thread sleeps that leaves the descriptors to another: that one may finish and
/// go. About what a wake costs.
pub(super) const ASIDE: Duration = Duration::from_micros(100);
/// This many things may wait for the lock's holder. Anyone who finds no place waits for the lock.
const SUBMISSIONS: usize = 128;
/// This many turns for others are made before those are woken that wait for what they brought.
const ROUNDS: usize = 8;
/// This many turns let the last words leave where nobody waits for an answer.
const LAST_TURNS: u32 = 256;

impl<P: Protocol> Runtime<P> {
    /// Starts it: with a thread of its own, if it has one.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn start(
        protocol: P,
        clock: Clock,
        bell: Bell,
        config: RuntimeConfig,
    ) -> io::Result<Arc<Self>> {
        let runtime = Arc::new(Self::new(protocol, clock, bell, config, None));
        if config.driving != Driving::Callers {
            let (own, name) = (Arc::clone(&runtime), config.thread.to_owned());
            thread::Builder::new().name(name).spawn(move || own.drive_as_own())?;
        }
        Ok(runtime)
    }

    /// Starts it without a thread of its own: anyone who calls or waits makes the turns, and
    /// for what comes while nobody does, a reactor of the user's own.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub(crate) fn start_for_reactor(
        protocol: P,
        clock: Clock,
        bell: Bell,
        config: RuntimeConfig,
    ) -> io::Result<(Arc<Self>, ReactorHandle<P>)> {
        let (config, reactor) =
            (RuntimeConfig { driving: Driving::Callers, ..config }, Arc::new(Reactor::new()?));
        let known = Some(Arc::clone(&reactor));
        let runtime = Arc::new(Self::new(protocol, clock, bell, config, known));
        Ok((Arc::clone(&runtime), ReactorHandle::new(runtime, reactor)))
    }

    fn new(
        protocol: P,
        clock: Clock,
        bell: Bell,
        config: RuntimeConfig,
        reactor: Option<Arc<Reactor>>,
    ) -> Self {
        Self {
            lock: EngineLock::new(State::new(protocol), SUBMISSIONS),
            clock,
            wait: config.wait,
            driving: config.driving,
            poll_slot: PollSlot::new(bell),
            reactor,
            user_drivers: UserDrivers::new(clock),
            shutdown: Shutdown::new(config.linger),
        }
    }

    /// Looks at the protocol, and does nothing that would have to be sent.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&mut P) -> T) -> T {
        let mut state = self.lock.lock();
        let must_turn = self.serve(&mut state);
        let result = look(&mut state.protocol);
        let leftover = match must_turn {
            true => self.turn_with(&mut state, self.clock.now()),
            false => Leftover::without_turn(&mut state),
        };
        self.release(state, leftover);
        result
    }

    /// Asks the protocol for something, and lets what comes of it leave at once; by the
    /// thread that drives, if callers don't.
    pub(crate) fn ask<T>(&self, ask: impl FnOnce(&mut P, Instant) -> T) -> T {
        let mut state = self.lock.lock();
        self.serve(&mut state);
        let now = self.clock.now();
        let result = ask(&mut state.protocol, now);
        self.turn_or_tell(state, now);
        result
    }

    /// Asks the protocol for something that has no answer, and never waits for another
    /// thread's turn: where one makes a turn just now, it makes one more for this.
    pub(crate) fn submit(&self, submission: P::Submission) {
        let left = match self.driving {
            Driving::OwnThread => self.lock.leave(submission).map(|()| None),
            Driving::Shared | Driving::Callers => self.lock.submit(submission),
        };
        match left {
            Ok(Some(mut state)) => {
                let now = self.clock.now();
                let leftover = self.turn_with(&mut state, now);
                self.release(state, leftover);
            }
            Ok(None) if self.driving == Driving::OwnThread => match self.has_ended() {
                // There is no thread any more that it could be left to.
                true => self.look(|_| ()),
                false => self.poll_slot.ring(),
            },
            Ok(None) => {}
            Err(submission) => self.ask(|protocol, now| protocol.serve(now, submission)),
        }
    }

    /// The same, with the next turn: what several calls submit so makes one.
    #[cfg(feature = "stp")]
    pub(crate) fn submit_later(&self, submission: P::Submission) {
        if let Err(submission) = self.lock.leave(submission) {
            self.submit(submission);
        }
    }

    /// A turn for what was submitted, by this thread or by the one that drives.
    #[cfg(feature = "stp")]
    pub(crate) fn serve_submitted(&self) {
        match self.driving {
            Driving::OwnThread => self.poll_slot.ring(),
            Driving::Shared | Driving::Callers => _ = self.turn(),
        }
    }

    /// Something was asked for: a turn, by this thread or by the one that drives.
    fn turn_or_tell(&self, mut state: MutexGuard<'_, State<P>>, now: Instant) {
        let tells = self.driving == Driving::OwnThread;
        let leftover = if tells {
            state.must_turn = true;
            Leftover::without_turn(&mut state)
        } else {
            self.turn_with(&mut state, now)
        };
        self.release(state, leftover);
        if tells {
            self.poll_slot.ring();
        }
    }

    /// One turn. Returns whether anything moved.
    pub(crate) fn turn(&self) -> bool {
        self.turn_and_tell().moved
    }

    /// The same, and when it was made.
    pub(super) fn turn_and_tell(&self) -> Turn {
        self.turn_unless(|| false)
    }

    /// The same, unless that is so by the time that this thread has the lock.
    pub(super) fn turn_unless(&self, must_not: impl FnOnce() -> bool) -> Turn {
        for _ in 0..LOOKS {
            if !self.lock.is_wanted() {
                break;
            }
            std::hint::spin_loop();
        }
        let mut state = self.lock.lock_to_drive();
        let at = self.clock.now();
        if must_not() {
            let leftover = Leftover::without_turn(&mut state);
            return Turn { moved: self.release(state, leftover), at };
        }
        let leftover = self.turn_with(&mut state, at);
        Turn { moved: self.release(state, leftover), at }
    }

    /// One turn for a thread that spins, unless somebody else makes one just now.
    pub(crate) fn relax(&self) -> bool {
        let state = if self.lock.is_wanted() { None } else { self.lock.try_lock() };
        let now = self.clock.now();
        self.user_drivers.note(now);
        let Some(mut state) = state else {
            std::hint::spin_loop();
            return false;
        };
        let leftover = self.turn_with(&mut state, now);
        self.release(state, leftover)
    }

    /// Does what was submitted. Returns whether anything was.
    fn serve(&self, state: &mut MutexGuard<'_, State<P>>) -> bool {
        let mut served = false;
        while let Some(submission) = self.lock.next(state) {
            state.protocol.serve(self.clock.now(), submission);
            served = true;
        }
        served
    }

    fn turn_with(&self, state: &mut MutexGuard<'_, State<P>>, now: Instant) -> Leftover<P> {
        let served = self.serve(state);
        let (moved, is_over) = state.turn(now, &self.shutdown);
        let ended = (state.stage == Stage::Ended).then(|| state.end(&self.shutdown)).flatten();
        Leftover {
            moved: moved || served,
            must_wake: state.must_wake_sleeper(),
            is_over,
            deferred: state.protocol.take_deferred(),
            ended,
        }
    }

    /// Lets go of the lock, once nothing is left that was submitted meanwhile, and does what
    /// is done without it. Returns whether anything moved.
    fn release(&self, state: MutexGuard<'_, State<P>>, leftover: Leftover<P>) -> bool {
        let mut again = self.lock.release(state);
        if again.is_none() {
            return self.finish(leftover);
        }
        let (mut moved, mut leftovers) = (false, vec![leftover]);
        while let Some(mut state) = again {
            leftovers.push(self.turn_with(&mut state, self.clock.now()));
            again = if leftovers.len() < ROUNDS {
                self.lock.release(state)
            } else {
                drop(state);
                None
            };
            if again.is_none() {
                // Wakers may call back: the lock is not held here.
                for leftover in leftovers.drain(..) {
                    moved |= self.finish(leftover);
                }
                again = self.lock.take_for_others();
            }
        }
        moved
    }

    /// What is left of a turn, without the lock. Returns whether anything moved.
    fn finish(&self, leftover: Leftover<P>) -> bool {
        let Leftover { moved, must_wake, is_over, deferred, ended } = leftover;
        deferred.run();
        if must_wake {
            self.poll_slot.ring();
        }
        if is_over {
            self.shutdown.wake_watchers();
        }
        if let Some(reactor) = &self.reactor {
            if ended.is_some() {
                reactor.forget_all();
            }
            // There may be more to do, and what its user waits for may be done.
            if moved || must_wake || ended.is_some() {
                reactor.ring();
            }
        }
        // A driver may wait for the kernel.
        drop(ended);
        moved
    }

    /// The thread or reactor that drives has something to do.
    #[inline]
    pub(crate) fn ring(&self) {
        self.poll_slot.ring();
        if let Some(reactor) = &self.reactor {
            reactor.ring();
        }
    }

    /// A reactor goes on to wait: for what, and until when.
    pub(super) fn leave_to_reactor(&self, into: &mut Vec<Interest>) -> Option<Instant> {
        self.look_at(|state| state.leave_to_reactor(into, &self.shutdown))
    }

    /// Was anything left that nobody has served?
    pub(super) fn has_submissions(&self) -> bool {
        self.lock.has_submissions()
    }

    /// Sleeps at the descriptors and at those of `others`, if nobody else does.
    /// None: somebody does. Otherwise whether any is ready. `must_not` is asked
    /// when rings are heard already.
    pub(crate) fn sleep(
        &self,
        at_most: Duration,
        others: &[Interest],
        must_not: impl Fn() -> bool,
    ) -> Option<bool> {
        // Rings are heard from here on.
        let _polling = self.poll_slot.take()?;
        let mut interests: Vec<Interest> = Vec::new();
        let until = self.look_at(|state| state.fall_asleep(&mut interests));
        let patience = until.map_or(LONGEST_SLEEP, |until| self.clock.until(until));
        let time = patience.min(at_most).min(LONGEST_SLEEP);
        interests.push(self.poll_slot.bell().interest());
        interests.extend_from_slice(others);
        let mut is_ready = false;
        if !time.is_zero() && !self.lock.has_submissions() && !must_not() {
            // A poll that fails is a short sleep: the next turn tells more.
            is_ready = until_ready(&interests, time).unwrap_or(false);
        }
        self.look_at(|state| state.wake_up(is_ready));
        Some(is_ready)
    }

    /// Sleeps as [`sleep`](Self::sleep) does, or for a moment while another thread leaves the
    /// place. Returns whether a turn makes sense.
    pub(crate) fn rest(
        &self,
        at_most: Duration,
        others: &[Interest],
        must_not: impl Fn() -> bool,
    ) -> bool {
        if self.sleep(at_most, others, &must_not).is_some() {
            return true;
        }
        self.ask_for_seat();
        if !must_not() {
            // A poll that fails is a short sleep.
            let _ = until_ready(others, ASIDE.min(at_most));
        }
        false
    }

    /// For a thread that makes a turn next, or will be told to.
    fn look_at<T>(&self, look: impl FnOnce(&mut State<P>) -> T) -> T {
        let mut state = self.lock.lock();
        state.must_turn |= self.serve(&mut state);
        let result = look(&mut state);
        let leftover = Leftover::without_turn(&mut state);
        self.release(state, leftover);
        result
    }

    /// A thread that blocks wants the poll slot of the own thread.
    pub(super) fn ask_for_seat(&self) {
        self.poll_slot.ask_for();
    }

    /// This thread drives no more, and will be told by a descriptor: the own
    /// thread has to see to it from now on.
    pub(crate) fn hand_over(&self) {
        self.user_drivers.hand_over();
    }

    /// A thread begins to wait in a blocking handle: it drives.
    pub(crate) fn begin_driving(&self) -> DriverGuard<'_> {
        self.user_drivers.begin()
    }

    /// Do threads that wait make turns?
    pub(crate) fn is_driven_by_callers(&self) -> bool {
        self.driving != Driving::OwnThread
    }

    /// No handle is left, or it shall close. Where nobody but callers drives and none is
    /// left, the last words leave on this thread.
    pub(crate) fn end(&self) {
        self.shutdown.ask();
        self.ring();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.shutdown.has_ended()
    }

    /// Is everything over that was under way? The waker is woken when it is.
    pub(crate) fn watch_end(&self, waker: &Waker) -> bool {
        self.shutdown.watch(waker)
    }

    /// The last handle is gone, and nobody drives any more: what has to be said leaves now.
    pub(super) fn end_here(&self) {
        self.shutdown.ask();
        for _ in 0..LAST_TURNS {
            if self.has_ended() || !self.turn() {
                break;
            }
        }
        if !self.has_ended() {
            self.ask(P::abort);
            self.end_now();
        }
    }

    /// Nothing moves any more.
    pub(super) fn end_now(&self) {
        let mut state = self.lock.lock();
        state.stage = Stage::Ended;
        let ended = state.end(&self.shutdown);
        let deferred = state.protocol.take_deferred();
        let leftover = Leftover { moved: false, must_wake: true, is_over: true, deferred, ended };
        self.release(state, leftover);
    }
}

impl<P: Protocol> fmt::Debug for Runtime<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("driving", &self.driving).finish_non_exhaustive()
    }
}

/// What every handle holds: when the last is gone, the runtime ends.
#[derive(Debug)]
pub(crate) struct Handle<P: Protocol>(pub(crate) Arc<Runtime<P>>);

impl<P: Protocol> std::ops::Deref for Handle<P> {
    type Target = Runtime<P>;

    #[inline]
    fn deref(&self) -> &Runtime<P> {
        &self.0
    }
}

impl<P: Protocol> Drop for Handle<P> {
    fn drop(&mut self) {
        match self.0.driving {
            Driving::Callers => match &self.0.reactor {
                // The turns of the reactor bring it to its end.
                Some(reactor) if reactor.is_left_to() => self.0.end(),
                _ => self.0.end_here(),
            },
            Driving::Shared | Driving::OwnThread => self.0.end(),
        }
    }
}
