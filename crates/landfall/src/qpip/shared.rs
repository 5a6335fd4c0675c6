//! Who runs the adapter: a thread of its own, or whoever holds its handles.
//!
//! One lock holds the engine and its drivers, for a turn at a time. Commands of
//! the management take it too. Posting and polling do not: see
//! [`doorbell`](super::doorbell) and
//! [`completion_queue`](super::completion_queue).
//!
//! Whoever runs the adapter sleeps only after it has armed the bell and looked
//! once more; whoever gives it work rings. While it is awake, a ring is a look
//! at one atomic.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;

use landfall_placement::{Duration, Instant};
use landfall_transport::driver::Interest;
use landfall_transport::memory::Regions;
use landfall_transport::wait::until_ready;
use landfall_transport::{Bell, Clock, Wait};

use super::core::Core;
use super::doorbell::Doorbells;
use super::error::Error;
use crate::runtime::{Alarm, Patience, locked};

/// Nobody sleeps longer, whatever the timers say.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// How long a thread sleeps that leaves the descriptors to another.
const ASIDE: Duration = Duration::from_micros(100);
/// How long a thread that runs the adapter lets others pass, in looks.
const LOOKS: u32 = 1_000;
/// So many turns let the last words leave.
const LAST_TURNS: u32 = 256;

/// Who runs the adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A thread of its own.
    Offloaded,
    /// Whoever calls `turn`, or waits for something.
    Inline,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Shared {
    core: Mutex<Core>,
    /// Threads that want the lock: those who only drive let them pass.
    wanting: AtomicU32,
    pub(crate) doorbells: Arc<Doorbells>,
    pub(crate) regions: Regions,
    pub(crate) clock: Clock,
    pub(crate) wait: Wait,
    pub(crate) mode: Mode,
    /// Tells handles of this adapter from those of others.
    pub(crate) serial: u32,
    bell: Bell,
    /// A command was carried out, and no turn has begun since: something may
    /// have to be sent that no timer tells of.
    commanded: AtomicBool,
    /// Somebody sleeps at the descriptors.
    seat: AtomicBool,
    is_ending: AtomicBool,
    is_gone: AtomicBool,
}

impl Shared {
    pub(crate) fn new(core: Core, regions: Regions, wait: Wait, mode: Mode, bell: Bell) -> Self {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        Self {
            wanting: AtomicU32::new(0),
            doorbells: Arc::clone(&core.doorbells),
            regions,
            clock: core.clock,
            wait,
            mode,
            serial: SERIAL.fetch_add(1, Ordering::Relaxed),
            bell,
            commanded: AtomicBool::new(false),
            seat: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            core: Mutex::new(core),
        }
    }

    /// Looks at the core, and gives it nothing to do.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&mut Core) -> T) -> T {
        self.wanting.fetch_add(1, Ordering::SeqCst);
        let mut core = locked(&self.core);
        self.wanting.fetch_sub(1, Ordering::SeqCst);
        let result = look(&mut core);
        let wake = core.take_wakers();
        drop(core);
        wake.into_iter().for_each(Waker::wake);
        result
    }

    /// Carries out a command of the management. What was posted before, by any
    /// thread that this one has heard from, comes first.
    pub(crate) fn command<T>(&self, command: impl FnOnce(&mut Core, Instant) -> T) -> T {
        let result = self.look(|core| {
            let now = self.clock.now();
            core.take_posts(now);
            let result = command(core, now);
            core.hear();
            result
        });
        // Before the ring: whoever did not hear it finds this.
        self.commanded.store(true, Ordering::SeqCst);
        self.bell.ring();
        result
    }

    /// The adapter has something to do.
    #[inline]
    pub(crate) fn ring(&self) {
        self.bell.ring();
    }

    /// One turn. Gives whether anything moved.
    pub(crate) fn turn(&self) -> bool {
        for _ in 0..LOOKS {
            if self.wanting.load(Ordering::SeqCst) == 0 {
                break;
            }
            std::hint::spin_loop();
        }
        // A command that comes from now on is for the next turn, or in time for this.
        self.commanded.store(false, Ordering::SeqCst);
        let mut core = locked(&self.core);
        let moved = core.turn();
        let wake = core.take_wakers();
        drop(core);
        wake.into_iter().for_each(Waker::wake);
        moved
    }

    /// Sleeps until there is something to do, if nobody else does. False:
    /// somebody does. `must_not` is asked when rings are heard already.
    pub(crate) fn sleep(&self, at_most: Duration, must_not: impl Fn() -> bool) -> bool {
        if self.seat.swap(true, Ordering::Acquire) {
            return false;
        }
        let mut interests: Vec<Interest> = Vec::new();
        // Rung from here on.
        self.bell.arm();
        let until = self.look(|core| core.fall_asleep(&mut interests));
        interests.push(self.bell.interest());
        let is_idle = !self.doorbells.any() && !self.commanded.load(Ordering::SeqCst);
        if is_idle && !must_not() {
            let patience = until.map_or(LONGEST_SLEEP, |until| self.clock.until(until));
            // A poll that fails is a short sleep: the next turn tells more.
            let time = patience.min(at_most).min(LONGEST_SLEEP);
            if until_ready(&interests, time).unwrap_or(false) {
                self.look(Core::note_wakeup);
            }
        }
        self.bell.silence();
        self.seat.store(false, Ordering::Release);
        true
    }

    /// What the adapter's own thread does.
    pub(crate) fn run(&self) {
        // Whatever happens here, nobody waits for it in vain.
        let _end = End(self);
        let mut patience = Patience::new(self.wait);
        let is_ending = || self.is_ending.load(Ordering::SeqCst);
        while !is_ending() {
            if self.turn() {
                patience.renew();
            } else if patience.is_over(self.clock.now()) {
                self.sleep(LONGEST_SLEEP, is_ending);
            } else {
                std::hint::spin_loop();
            }
        }
        self.say_last_words();
    }

    /// What was to be sent when the last handle went still leaves.
    fn say_last_words(&self) {
        for _ in 0..LAST_TURNS {
            if !self.turn() {
                break;
            }
        }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::SeqCst)
    }

    /// The adapter runs, or will when its user lets it.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.is_gone() { Err(Error::AdapterGone) } else { Ok(()) }
    }

    /// Waits for a future on this thread, for so long at most. Where nobody else
    /// does, this thread runs the adapter meanwhile.
    pub(crate) fn wait_until<F: Future>(&self, future: F, until: Instant) -> Option<F::Output> {
        let alarm = Alarm::of_this_thread();
        let waker = Waker::from(Arc::clone(&alarm));
        let mut context = Context::from_waker(&waker);
        let mut future = pin!(future);
        let mut patience = Patience::new(self.wait);
        loop {
            if alarm.has_rung()
                && let Poll::Ready(output) = future.as_mut().poll(&mut context)
            {
                return Some(output);
            }
            let moved = self.mode == Mode::Inline && self.turn();
            let now = self.clock.now();
            if now >= until {
                return None;
            }
            if moved || alarm.is_ringing() {
                patience.renew();
            } else if patience.is_over(now) {
                self.rest(until.since(now), || alarm.is_ringing());
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Sleeps until the adapter has done something, or there is something to do
    /// for this thread in its stead.
    pub(crate) fn rest(&self, at_most: Duration, must_not: impl Fn() -> bool) {
        match self.mode {
            Mode::Offloaded => thread::park_timeout(at_most.min(LONGEST_SLEEP)),
            Mode::Inline if self.sleep(at_most, must_not) => {}
            // Another thread sleeps there; it may finish and go.
            Mode::Inline => thread::park_timeout(ASIDE.min(at_most)),
        }
    }
}

/// The end of the adapter's thread: nothing moves any more.
struct End<'a>(&'a Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.is_gone.store(true, Ordering::SeqCst);
        let lanes = self.0.look(Core::let_go);
        // Not under the lock: a driver may wait for the kernel.
        drop(lanes);
    }
}

/// What every handle holds: when the last is gone, the adapter ends.
#[derive(Debug)]
pub(crate) struct Handle(pub(crate) Arc<Shared>);

impl std::ops::Deref for Handle {
    type Target = Shared;

    #[inline]
    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.is_ending.store(true, Ordering::SeqCst);
        match self.mode {
            Mode::Offloaded => self.bell.ring(),
            Mode::Inline => {
                self.say_last_words();
                drop(End(self));
            }
        }
    }
}
