//! How threads and tasks wait for a socket, and how nobody is forgotten.
//!
//! Each direction of a socket is a [`Half`]: its state under a lock, and the crowd of
//! those that wait for it. What carries the socket knows one waker per side, which
//! wakes the whole crowd; so several threads and tasks may wait at a time, and one that
//! goes away takes nobody else's wake-up with it.
//!
//! That waker does one thing more: it lets the state do what is due
//! ([`Progress`]: take in what came, push out what waits), on the thread that brought the
//! news. A message is taken in though nobody reads just now, and no thread is needed
//! for that.

use std::cell::OnceCell;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// A thread that panicked under one of these locks left nothing half done.
pub(crate) fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is due whenever there is news, no matter who waits.
pub(crate) trait Progress {
    /// Does it. The context's waker comes back here.
    fn make_progress(&mut self, cx: &mut Context<'_>);
}

/// One direction of a socket: its state, and the threads and tasks that wait for it.
pub(crate) struct Half<T> {
    state: Mutex<T>,
    /// There was news while somebody else had the lock.
    is_due: AtomicBool,
    crowd: Mutex<Vec<Waker>>,
    waker: Waker,
}

/// More wait for one side than is sensible: the oldest is woken and has to come again.
const MOST_WAITING: usize = 64;

impl<T: Progress + Send + 'static> Half<T> {
    pub(crate) fn new(state: T) -> Arc<Self> {
        Arc::new_cyclic(|side| Self {
            state: Mutex::new(state),
            is_due: AtomicBool::new(false),
            crowd: Mutex::default(),
            // Weak: the state holds it, by way of what carries the socket.
            waker: Waker::from(Arc::new(HalfWaker(Weak::clone(side)))),
        })
    }

    /// One step, without waiting. Where it gives `Pending`, the crowd is woken later.
    pub(crate) fn step<R>(&self, step: impl FnOnce(&mut T, &mut Context<'_>) -> R) -> R {
        let result = step(&mut locked(&self.state), &mut Context::from_waker(&self.waker));
        self.catch_up();
        result
    }

    /// The same for a task.
    pub(crate) fn poll<R>(
        &self,
        cx: &Context<'_>,
        mut step: impl FnMut(&mut T, &mut Context<'_>) -> Poll<R>,
    ) -> Poll<R> {
        if let Poll::Ready(result) = self.step(&mut step) {
            return Poll::Ready(result);
        }
        // News from now on wakes this task; news up to now the second look finds.
        self.join(cx.waker());
        self.step(&mut step)
    }

    /// The same for a thread; nothing if the deadline was first.
    pub(crate) fn wait<R>(
        &self,
        deadline: Option<Instant>,
        mut step: impl FnMut(&mut T, &mut Context<'_>) -> Poll<R>,
    ) -> Option<R> {
        // What is there already costs no more than the look.
        if let Poll::Ready(result) = self.step(&mut step) {
            return Some(result);
        }
        block_until(deadline, |cx| self.poll(cx, &mut step))
    }

    fn join(&self, waker: &Waker) {
        let mut crowd = locked(&self.crowd);
        if crowd.iter().any(|known| known.will_wake(waker)) {
            return;
        }
        let oldest = (crowd.len() >= MOST_WAITING).then(|| crowd.remove(0));
        crowd.push(waker.clone());
        drop(crowd);
        oldest.into_iter().for_each(Waker::wake);
    }

    /// Wakes everybody who waits here.
    pub(crate) fn rouse(&self) {
        let crowd = std::mem::take(&mut *locked(&self.crowd));
        crowd.into_iter().for_each(Waker::wake);
    }

    /// Does what became due while the lock was held. Anyone who brings news marks it before
    /// it tries the lock, anyone who had the lock looks at the mark behind it: one of the
    /// two does it.
    fn catch_up(&self) {
        while self.is_due.swap(false, Ordering::SeqCst) {
            let Some(mut state) = self.try_state() else {
                self.is_due.store(true, Ordering::SeqCst);
                // It may have been given back before that.
                match self.try_state() {
                    Some(free) => drop(free),
                    None => return,
                }
                continue;
            };
            state.make_progress(&mut Context::from_waker(&self.waker));
            drop(state);
            self.rouse();
        }
    }

    fn try_state(&self) -> Option<MutexGuard<'_, T>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl<T> fmt::Debug for Half<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Half").finish_non_exhaustive()
    }
}

/// The waker of a side.
struct HalfWaker<T>(Weak<Half<T>>);

impl<T: Progress + Send + 'static> Wake for HalfWaker<T> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(side) = self.0.upgrade() {
            side.is_due.store(true, Ordering::SeqCst);
            side.catch_up();
            side.rouse();
        }
    }
}

/// Wakes a thread.
struct Alarm {
    thread: Thread,
    has_rung: AtomicBool,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.has_rung.swap(true, Ordering::SeqCst) {
            self.thread.unpark();
        }
    }
}

thread_local! {
    static ALARM: OnceCell<Arc<Alarm>> = const { OnceCell::new() };
}

/// How long a thread looks before it sleeps: about what being woken costs.
const LOOKING: Duration = Duration::from_micros(50);

/// Waits on this thread; nothing if the deadline was first.
pub(crate) fn block_until<R>(
    deadline: Option<Instant>,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<R>,
) -> Option<R> {
    let new = || Arc::new(Alarm { thread: thread::current(), has_rung: AtomicBool::new(false) });
    let alarm = ALARM.with(|alarm| Arc::clone(alarm.get_or_init(new)));
    let waker = Waker::from(Arc::clone(&alarm));
    let mut cx = Context::from_waker(&waker);
    loop {
        alarm.has_rung.store(false, Ordering::SeqCst);
        if let Poll::Ready(result) = poll(&mut cx) {
            return Some(result);
        }
        let start = Instant::now();
        while !alarm.has_rung.load(Ordering::SeqCst) {
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return None;
            }
            if now - start < LOOKING {
                // Its core goes to anyone who wants it: the answer may be the work of an adapter's
                // thread that waits for this very core. Where nobody does, that costs less
                // than an answer takes.
                thread::yield_now();
                continue;
            }
            match deadline {
                Some(deadline) => thread::park_timeout(deadline - now),
                None => thread::park(),
            }
        }
    }
}

/// Waits for a future on this thread; nothing if the deadline was first.
#[cfg(any(feature = "qpip", feature = "stp"))]
pub(crate) fn block_on<F: Future>(deadline: Option<Instant>, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    block_until(deadline, |cx| future.as_mut().poll(cx))
}

/// Polls a future once that may be dropped without loss.
pub(crate) fn poll_once<F: Future>(cx: &mut Context<'_>, future: F) -> Poll<F::Output> {
    pin!(future).poll(cx)
}
