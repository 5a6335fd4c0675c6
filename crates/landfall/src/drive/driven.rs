//! [`Driven`]: who drives an engine: the lock around it, the seat at the
//! descriptors, and the thread that drives when nobody else does.
//!
//! One lock holds the engine, its drivers and who waits for what. Three kinds
//! of threads take it, each for a turn at most:
//!
//! - **Whoever asks, also sends.** A handle calls the engine and makes a turn
//!   at once: the packet leaves on the calling thread, without a hand-over.
//! - **Whoever waits, drives.** A thread that blocks or spins makes turns until
//!   what it waits for has happened: no wake-up lies between the packet and its
//!   user.
//! - **A thread of its own** drives whenever nobody else does. Tasks of an async
//!   runtime are woken by it, and links are kept alive while nobody calls. It
//!   steps aside while others drive.
//!
//! Turns need the lock only. Sleeping at the descriptors needs the **seat**, so
//! that one thread sleeps there, and one bell wakes it.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, TryLockError};
use std::task::{Context, Poll, Waker};
use std::thread::{self, Thread};

use landfall_placement::{Duration, Instant};
use landfall_transport::driver::Interest;
use landfall_transport::wait::until_ready;
use landfall_transport::{Bell, Clock, Wait};

use super::{Alarm, Patience, locked};

/// What is behind the lock.
pub(crate) trait Core: Send + 'static {
    /// What is done when the lock is no longer held: wakers may run anything.
    type After: After;
    /// What is dropped without the lock at the end of all.
    type Left: Send;

    /// One turn of every path, and what came of it. Gives whether anything moved.
    fn turn(&mut self, now: Instant) -> bool;
    /// A thread is about to sleep: what it waits for, and until when.
    fn fall_asleep(&mut self, into: &mut Vec<Interest>) -> Option<Instant>;
    /// The thread is awake, and finds something to do or does not.
    fn wake_up(&mut self, is_ready: bool);
    /// After a turn while a thread sleeps: does it sleep for the wrong things?
    fn must_wake_sleeper(&mut self) -> bool;
    fn take_after(&mut self) -> Self::After;

    /// Nothing new begins; what is under way may end in peace.
    fn close(&mut self, now: Instant);
    /// Has it?
    fn is_closed(&self) -> bool;
    /// Enough was waited: what is not over ends now, and the other sides are told.
    fn part(&mut self, now: Instant);
    /// Did all who had to be told hear it?
    fn is_quiet(&self) -> bool;
    /// The last of all: nothing moves any more.
    fn let_go(&mut self) -> Self::Left;
}

/// What a call leaves to be done without the lock.
pub(crate) trait After {
    fn run(self);
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Driven<C> {
    core: Mutex<C>,
    /// Threads that want the lock: those who only drive let them pass.
    wanting: AtomicU32,
    pub(crate) clock: Clock,
    pub(crate) wait: Wait,
    bell: Bell,
    seat: AtomicBool,
    /// It is the thread of its own that sleeps there.
    is_own_seated: AtomicBool,
    /// That thread, and whether it stays aside.
    own: OnceLock<Thread>,
    is_own_aside: AtomicBool,
    /// Threads that wait in blocking handles, and when one last drove.
    blocking: AtomicU32,
    driven_at: AtomicU64,
    /// The last handle is gone, or it is closed.
    is_ending: AtomicBool,
    /// All that was under way is over.
    is_over: AtomicBool,
    /// Nothing moves any more.
    has_ended: AtomicBool,
    end_watchers: Mutex<Vec<Waker>>,
    linger: Duration,
}

/// After another thread has driven, the own thread stays aside for so long: most
/// likely it does so again.
const ASIDE: Duration = Duration::from_millis(1);
/// Nobody sleeps longer, whatever the timers say.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// How long a driving thread lets others pass, in looks.
const LOOKS: u32 = 1000;

impl<C: Core> Driven<C> {
    pub(crate) fn new(core: C, clock: Clock, wait: Wait, linger: Duration, bell: Bell) -> Self {
        Self {
            core: Mutex::new(core),
            wanting: AtomicU32::new(0),
            clock,
            wait,
            bell,
            seat: AtomicBool::new(false),
            is_own_seated: AtomicBool::new(false),
            own: OnceLock::new(),
            is_own_aside: AtomicBool::new(false),
            blocking: AtomicU32::new(0),
            driven_at: AtomicU64::new(0),
            is_ending: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            end_watchers: Mutex::default(),
            linger,
        }
    }

    /// Looks at the core, and does nothing that would have to be sent.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&mut C) -> T) -> T {
        self.wanting.fetch_add(1, Ordering::SeqCst);
        let mut core = locked(&self.core);
        self.wanting.fetch_sub(1, Ordering::SeqCst);
        let result = look(&mut core);
        let after = core.take_after();
        drop(core);
        after.run();
        result
    }

    /// Asks the engine for something, and lets what comes of it leave at once.
    pub(crate) fn ask<T>(&self, ask: impl FnOnce(&mut C, Instant) -> T) -> T {
        let (result, must_wake) = self.look(|core| {
            let now = self.clock.now();
            let result = ask(core, now);
            core.turn(now);
            (result, core.must_wake_sleeper())
        });
        if must_wake {
            self.bell.ring();
        }
        result
    }

    /// One turn. Gives whether anything moved.
    pub(crate) fn turn(&self) -> bool {
        self.turn_and_tell().0
    }

    /// The same, and when it was made: a clock costs as much as a look at a socket.
    fn turn_and_tell(&self) -> (bool, Instant) {
        for _ in 0..LOOKS {
            if self.wanting.load(Ordering::SeqCst) == 0 {
                break;
            }
            std::hint::spin_loop();
        }
        let mut core = locked(&self.core);
        let now = self.clock.now();
        let rest = self.turn_with(&mut core, now);
        drop(core);
        (rest(), now)
    }

    /// One turn for a thread that spins, unless somebody else makes one just now.
    pub(crate) fn relax(&self) -> bool {
        let is_wanted = self.wanting.load(Ordering::SeqCst) > 0;
        let tried = (!is_wanted).then(|| self.core.try_lock());
        let core = match tried {
            Some(Ok(core)) => Some(core),
            Some(Err(TryLockError::Poisoned(core))) => Some(core.into_inner()),
            Some(Err(TryLockError::WouldBlock)) | None => None,
        };
        let now = self.clock.now();
        self.driven_at.store(now.as_nanos(), Ordering::Relaxed);
        let Some(mut core) = core else {
            std::hint::spin_loop();
            return false;
        };
        let rest = self.turn_with(&mut core, now);
        drop(core);
        rest()
    }

    /// A turn; the rest is for when the lock is not held any more.
    fn turn_with(&self, core: &mut C, now: Instant) -> impl FnOnce() -> bool + use<'_, C> {
        let moved = core.turn(now);
        let must_wake = core.must_wake_sleeper();
        let after = core.take_after();
        move || {
            after.run();
            if must_wake {
                self.bell.ring();
            }
            moved
        }
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
        if self.seat.swap(true, Ordering::Acquire) {
            return None;
        }
        let mut interests: Vec<Interest> = Vec::new();
        // Rung from here on.
        self.bell.arm();
        let until = self.look(|core| core.fall_asleep(&mut interests));
        let patience = until.map_or(LONGEST_SLEEP, |until| self.clock.until(until));
        interests.push(self.bell.interest());
        interests.extend_from_slice(others);
        let mut is_ready = false;
        if !must_not() {
            // A poll that fails is a short sleep: the next turn tells more.
            let time = patience.min(at_most).min(LONGEST_SLEEP);
            is_ready = until_ready(&interests, time).unwrap_or(false);
        }
        self.look(|core| core.wake_up(is_ready));
        self.bell.silence();
        self.seat.store(false, Ordering::Release);
        Some(is_ready)
    }

    /// A thread that blocks wants the seat of the own thread.
    pub(crate) fn ask_for_seat(&self) {
        if self.is_own_seated.load(Ordering::SeqCst) {
            self.bell.ring();
        }
    }

    /// This thread drives no more, and will be told by a descriptor: the own
    /// thread has to see to it from now on.
    pub(crate) fn hand_over(&self) {
        self.driven_at.store(0, Ordering::SeqCst);
        if self.is_own_aside.load(Ordering::SeqCst)
            && let Some(own) = self.own.get()
        {
            own.unpark();
        }
    }

    /// Makes turns until the future is done, or the time is over. The future is
    /// polled only when it was woken: most turns find nothing for it.
    pub(crate) fn drive_until<F: Future>(&self, future: F, until: Instant) -> Option<F::Output> {
        /// How long a thread sleeps that leaves the descriptors to another: that
        /// one may finish and go. About what a wake costs.
        const ASIDE: Duration = Duration::from_micros(100);
        let alarm = Alarm::of_this_thread();
        let waker = Waker::from(Arc::clone(&alarm));
        let mut context = Context::from_waker(&waker);
        let mut future = pin!(future);
        let mut patience = Patience::new(self.wait);
        let _blocking = self.begin_blocking();
        loop {
            if alarm.has_rung()
                && let Poll::Ready(output) = future.as_mut().poll(&mut context)
            {
                return Some(output);
            }
            // It is over, and so is whatever is waited for.
            let (moved, now) = match self.has_ended() {
                true => (false, self.clock.now()),
                false => self.turn_and_tell(),
            };
            if now >= until {
                return None;
            }
            if moved || alarm.is_ringing() {
                patience.renew();
            } else if !patience.is_over(now) {
                std::hint::spin_loop();
            } else if self.has_ended() || self.sleep(until.since(now), &[], || false).is_none() {
                self.ask_for_seat();
                thread::park_timeout(ASIDE.min(until.since(now)));
            }
        }
    }

    /// A thread begins to wait in a blocking handle: it drives.
    pub(crate) fn begin_blocking(&self) -> Blocking<'_, C> {
        self.blocking.fetch_add(1, Ordering::SeqCst);
        Blocking(self)
    }

    fn is_driven_by_others(&self) -> bool {
        let driven_at = self.driven_at.load(Ordering::SeqCst);
        self.blocking.load(Ordering::SeqCst) > 0
            || driven_at > 0 && self.clock.now().since(Instant::from_nanos(driven_at)) < ASIDE
    }

    /// Did others drive, until not long ago? Who spins may only have been interrupted, and
    /// perhaps shares a processor with the own thread: that one must not spin in its place.
    fn was_driven_lately(&self) -> bool {
        const LATELY: Duration = Duration::from_secs(1);
        let driven_at = self.driven_at.load(Ordering::SeqCst);
        driven_at > 0 && self.clock.now().since(Instant::from_nanos(driven_at)) < LATELY
    }

    /// No handle is left, or it shall close: the own thread brings everything to
    /// its end.
    pub(crate) fn end(&self) {
        self.is_ending.store(true, Ordering::SeqCst);
        self.bell.ring();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    /// Is everything over? The waker is woken when it is.
    pub(crate) fn watch_end(&self, waker: &Waker) -> bool {
        let mut watchers = locked(&self.end_watchers);
        let is_over = self.is_over.load(Ordering::SeqCst);
        if !is_over {
            watchers.push(waker.clone());
        }
        is_over
    }

    /// What the own thread does.
    pub(crate) fn drive(&self) {
        let _ = self.own.set(thread::current());
        // Whatever happens here, nobody waits for it in vain.
        let _end = End(self);
        let mut patience = Patience::new(self.wait);
        while !self.is_ending.load(Ordering::SeqCst) {
            if self.is_driven_by_others() {
                self.stay_aside();
                continue;
            }
            if self.turn() {
                patience.renew();
            } else if self.was_driven_lately() || patience.is_over(self.clock.now()) {
                self.is_own_seated.store(true, Ordering::SeqCst);
                let is_ending = || self.is_ending.load(Ordering::SeqCst);
                let slept = self.sleep(LONGEST_SLEEP, &[], is_ending);
                self.is_own_seated.store(false, Ordering::SeqCst);
                if slept.is_none() {
                    self.stay_aside();
                }
            } else {
                std::hint::spin_loop();
            }
        }
        self.finish();
    }

    fn stay_aside(&self) {
        self.is_own_aside.store(true, Ordering::SeqCst);
        // Whoever hands over looks at this after it said so.
        if self.is_driven_by_others() || self.seat.load(Ordering::SeqCst) {
            thread::park_timeout(ASIDE);
        }
        self.is_own_aside.store(false, Ordering::SeqCst);
    }

    /// Lets what is under way end, says good-bye, and stays a while for peers that
    /// did not hear the last word.
    fn finish(&self) {
        self.look(|core| core.close(self.clock.now()));
        self.finish_until(C::is_closed);
        self.ask(C::part);
        self.tell_end();
        self.finish_until(C::is_quiet);
    }

    /// Makes turns until this is so, for as long as it may linger.
    fn finish_until(&self, is_so: fn(&C) -> bool) -> bool {
        let until = self.clock.now() + self.linger;
        loop {
            let moved = self.turn();
            if self.look(|core| is_so(core)) {
                return true;
            }
            let left = until.since(self.clock.now());
            if left.is_zero() {
                return false;
            }
            if !moved && self.sleep(left, &[], || false).is_none() {
                thread::park_timeout(ASIDE);
            }
        }
    }

    /// Everything is over: whoever closes it may go on.
    fn tell_end(&self) {
        let mut watchers = locked(&self.end_watchers);
        self.is_over.store(true, Ordering::SeqCst);
        let watchers = std::mem::take(&mut *watchers);
        watchers.into_iter().for_each(Waker::wake);
    }
}

/// The end of the driving thread: nothing moves any more.
struct End<'a, C: Core>(&'a Driven<C>);

impl<C: Core> Drop for End<'_, C> {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Ordering::SeqCst);
        let left = self.0.look(C::let_go);
        // Not under the lock: a driver may wait for the kernel.
        drop(left);
        self.0.tell_end();
    }
}

/// A thread waits in a blocking handle.
#[derive(Debug)]
pub(crate) struct Blocking<'a, C: Core>(&'a Driven<C>);

impl<C: Core> Drop for Blocking<'_, C> {
    fn drop(&mut self) {
        self.0.driven_at.store(self.0.clock.now().as_nanos(), Ordering::Relaxed);
        self.0.blocking.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What every handle holds: when the last is gone, it ends.
#[derive(Debug)]
pub(crate) struct Handle<C: Core>(pub(crate) Arc<Driven<C>>);

impl<C: Core> std::ops::Deref for Handle<C> {
    type Target = Driven<C>;

    #[inline]
    fn deref(&self) -> &Driven<C> {
        &self.0
    }
}

impl<C: Core> Drop for Handle<C> {
    fn drop(&mut self) {
        self.end();
    }
}
