//! Who drives: the lock around the core, the seat at the descriptors, and the
//! thread that drives when nobody else does.
//!
//! One lock holds the engine, its drivers and who waits for what. Three kinds
//! of threads take it, each for a turn at most:
//!
//! - **Whoever asks, also sends.** A handle calls the engine and makes a turn
//!   at once: the packet leaves on the calling thread, without a hand-over.
//! - **Whoever blocks, drives.** A thread that waits in a blocking handle makes
//!   turns until what it waits for has happened: no wake-up lies between the
//!   packet and its user.
//! - **The endpoint's own thread** drives whenever nobody else does. Tasks of an
//!   async runtime are woken by it, and connections are kept alive while
//!   nobody calls. It steps aside while threads block.
//!
//! A queue of commands to the driving thread was the alternative, as was a task
//! on a tokio runtime. Both cost a hand-over for each call and each event,
//! 30 µs where the other side slept, against 4 to 6 µs for the whole round
//! trip; a task would also tie the endpoint to one runtime, and to what else
//! runs there. Here futures work on any executor.
//!
//! Turns need the lock only. Sleeping at the descriptors needs the **seat**, so
//! that one thread sleeps there, and one bell wakes it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;
use std::thread;

use landfall_placement::{Duration, Instant};
use landfall_transport::driver::Interest;
use landfall_transport::wait::until_ready;
use landfall_transport::{Bell, Clock, Wait};

use super::core::Core;
use super::memory::Pool;
use crate::drive::{Patience, locked};

/// See the module.
#[derive(Debug)]
pub(crate) struct Shared {
    core: Mutex<Core>,
    /// Threads that want the lock: those who only drive let them pass.
    wanting: AtomicU32,
    pub(crate) pool: Arc<Pool>,
    pub(crate) clock: Clock,
    pub(crate) wait: Wait,
    bell: Bell,
    seat: AtomicBool,
    /// It is the endpoint's own thread that sleeps there.
    is_own_seated: AtomicBool,
    /// Threads that wait in blocking handles, and when one last did.
    blocking: AtomicU32,
    blocked_at: AtomicU64,
    /// The last handle is gone, or the endpoint was closed.
    is_ending: AtomicBool,
    /// All connections are over.
    is_over: AtomicBool,
    /// Nothing moves any more.
    has_ended: AtomicBool,
    end_watchers: Mutex<Vec<Waker>>,
    /// How long connections may take to close.
    pub(crate) linger: Duration,
}

/// After a thread has waited in a blocking handle, the endpoint's own thread
/// stays aside for so long: most likely it does so again.
const ASIDE: Duration = Duration::from_millis(1);
/// Nobody sleeps longer, whatever the timers say.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// How long a driving thread lets others pass, in looks.
const PATIENCE: u32 = 1000;

impl Shared {
    pub(crate) fn new(
        core: Core,
        pool: Arc<Pool>,
        wait: Wait,
        linger: Duration,
        bell: Bell,
    ) -> Self {
        let clock = core.clock;
        Self {
            core: Mutex::new(core),
            wanting: AtomicU32::new(0),
            pool,
            clock,
            wait,
            bell,
            seat: AtomicBool::new(false),
            is_own_seated: AtomicBool::new(false),
            blocking: AtomicU32::new(0),
            blocked_at: AtomicU64::new(0),
            is_ending: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            end_watchers: Mutex::default(),
            linger,
        }
    }

    /// A thread that panicked under the lock left nothing half done that the
    /// engine could notice.
    fn lock(&self) -> MutexGuard<'_, Core> {
        locked(&self.core)
    }

    /// Looks at the core, and does nothing that would have to be sent.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&mut Core) -> T) -> T {
        self.wanting.fetch_add(1, Ordering::SeqCst);
        let mut core = self.lock();
        self.wanting.fetch_sub(1, Ordering::SeqCst);
        let result = look(&mut core);
        let after = core.take_after();
        drop(core);
        after.run();
        result
    }

    /// Asks the engine for something, and lets what comes of it leave at once.
    pub(crate) fn ask<T>(&self, ask: impl FnOnce(&mut Core, Instant) -> T) -> T {
        let (result, must_wake) = self.look(|core| {
            let result = ask(core, self.clock.now());
            core.turn();
            (result, core.must_wake_sleeper())
        });
        self.pool.after_turn();
        if must_wake {
            self.bell.ring();
        }
        result
    }

    /// One turn. Gives whether anything moved.
    pub(crate) fn turn(&self) -> bool {
        for _ in 0..PATIENCE {
            if self.wanting.load(Ordering::SeqCst) == 0 {
                break;
            }
            std::hint::spin_loop();
        }
        let mut core = self.lock();
        let moved = core.turn();
        let must_wake = core.must_wake_sleeper();
        let after = core.take_after();
        drop(core);
        after.run();
        self.pool.after_turn();
        if must_wake {
            self.bell.ring();
        }
        moved
    }

    /// Sleeps at the descriptors, if nobody else does. False: somebody does.
    /// `must_not` is asked when rings are heard already.
    pub(crate) fn sleep(&self, at_most: Duration, must_not: impl Fn() -> bool) -> bool {
        if self.seat.swap(true, Ordering::Acquire) {
            return false;
        }
        let mut interests: Vec<Interest> = Vec::new();
        // Rung from here on.
        self.bell.arm();
        let until = self.look(|core| core.fall_asleep(&mut interests));
        let patience = until.map_or(LONGEST_SLEEP, |until| self.clock.until(until));
        interests.push(self.bell.interest());
        let mut is_ready = false;
        if !must_not() {
            // A poll that fails is a short sleep: the next turn tells more.
            let time = patience.min(at_most).min(LONGEST_SLEEP);
            is_ready = until_ready(&interests, time).unwrap_or(false);
        }
        self.look(|core| core.wake_up(is_ready));
        self.bell.silence();
        self.seat.store(false, Ordering::Release);
        true
    }

    /// A thread that blocks wants the seat of the endpoint's own thread.
    pub(crate) fn ask_for_seat(&self) {
        if self.is_own_seated.load(Ordering::SeqCst) {
            self.bell.ring();
        }
    }

    /// A thread begins to wait in a blocking handle: it drives.
    pub(crate) fn begin_blocking(&self) -> Blocking<'_> {
        self.blocking.fetch_add(1, Ordering::SeqCst);
        Blocking(self)
    }

    fn is_driven_by_others(&self) -> bool {
        self.blocking.load(Ordering::SeqCst) > 0
            || self.clock.now().since(Instant::from_nanos(self.blocked_at.load(Ordering::Relaxed)))
                < ASIDE
                && self.blocked_at.load(Ordering::Relaxed) > 0
    }

    /// No handle is left, or the endpoint shall close: the endpoint's thread
    /// brings everything to its end.
    pub(crate) fn end(&self) {
        self.is_ending.store(true, Ordering::SeqCst);
        self.bell.ring();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    /// Is every connection of an endpoint that closes over? The waker is woken
    /// when they are.
    pub(crate) fn watch_end(&self, waker: &Waker) -> bool {
        let mut watchers = locked(&self.end_watchers);
        let is_over = self.is_over.load(Ordering::SeqCst);
        if !is_over {
            watchers.push(waker.clone());
        }
        is_over
    }

    /// What the endpoint's own thread does.
    pub(crate) fn drive(&self) {
        // Whatever happens here, nobody waits for it in vain.
        let _end = End(self);
        let mut patience = Patience::new(self.wait);
        while !self.is_ending.load(Ordering::SeqCst) {
            if self.is_driven_by_others() {
                thread::park_timeout(ASIDE);
                continue;
            }
            if self.turn() {
                patience.renew();
            } else if patience.is_over(self.clock.now()) {
                self.is_own_seated.store(true, Ordering::SeqCst);
                self.sleep(LONGEST_SLEEP, || self.is_ending.load(Ordering::SeqCst));
                self.is_own_seated.store(false, Ordering::SeqCst);
            } else {
                std::hint::spin_loop();
            }
        }
        self.finish();
    }

    /// Closes every connection, ends what does not want to, and stays a while
    /// for peers that did not hear the last word.
    fn finish(&self) {
        self.look(|core| core.close_all(self.clock.now()));
        if !self.drive_until(Core::is_closed) {
            self.look(|core| core.abort_all(self.clock.now()));
        }
        self.tell_end();
        self.drive_until(Core::is_quiet);
    }

    /// Makes turns until this is so, for as long as an endpoint may linger.
    fn drive_until(&self, is_so: fn(&Core) -> bool) -> bool {
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
            if !moved && !self.sleep(left, || false) {
                thread::park_timeout(ASIDE);
            }
        }
    }

    /// Every connection is over: whoever closes the endpoint may go on.
    fn tell_end(&self) {
        let mut watchers = locked(&self.end_watchers);
        self.is_over.store(true, Ordering::SeqCst);
        let watchers = std::mem::take(&mut *watchers);
        watchers.into_iter().for_each(Waker::wake);
    }
}

/// The end of the driving thread: nothing moves any more.
struct End<'a>(&'a Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        let lanes = self.0.look(Core::let_go);
        // Not under the lock: a driver may wait for the kernel.
        drop(lanes);
        self.0.pool.after_turn();
        self.0.has_ended.store(true, Ordering::SeqCst);
        self.0.tell_end();
    }
}

/// A thread waits in a blocking handle.
#[derive(Debug)]
pub(crate) struct Blocking<'a>(&'a Shared);

impl Drop for Blocking<'_> {
    fn drop(&mut self) {
        self.0.blocked_at.store(self.0.clock.now().as_nanos(), Ordering::Relaxed);
        self.0.blocking.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What every handle holds: when the last is gone, the endpoint ends.
#[derive(Debug)]
pub(crate) struct Handle(pub(crate) Arc<Shared>);

impl std::ops::Deref for Handle {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.end();
    }
}
