//! Threads that wait for futures, and drive meanwhile.

use std::future::{Future, poll_fn};
use std::ops::ControlFlow;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;

use landfall_placement::{Duration, Instant};

use super::drive::{Drive, LONGEST_SLEEP, Turn, drive};
use super::driving::ASIDE;
use super::{Protocol, Runtime, ThreadWaker};

impl<P: Protocol> Runtime<P> {
    /// Waits until the future is done, or the time is over, and makes turns meanwhile if
    /// callers do. The future is polled only when it was woken: most turns find nothing for
    /// it.
    pub(crate) fn wait_until<F: Future>(&self, future: F, until: Instant) -> Option<F::Output> {
        let waker = ThreadWaker::of_this_thread();
        let task = Waker::from(Arc::clone(&waker));
        let drives = self.is_driven_by_callers();
        let _driver = drives.then(|| self.begin_driving());
        let future = pin!(future);
        drive(&mut Waiting { runtime: self, future, waker, task, until, drives }, self.wait)
    }

    /// Waits without a limit.
    pub(crate) fn wait_for<F: Future>(&self, future: F) -> F::Output {
        match self.wait_until(future, Instant::FAR_FUTURE) {
            Some(output) => output,
            None => unreachable!("584 years have passed"),
        }
    }

    /// The same for what a thread sees by itself while it spins: nobody has to wake it then.
    pub(crate) fn wait_looking<L: Observer>(
        &self,
        lookout: &mut L,
        until: Instant,
    ) -> Option<L::Output> {
        let mut looking = Looking { runtime: self, lookout, until, is_spent: false };
        match drive(&mut looking, self.wait) {
            Seen::This(output) => Some(output),
            Seen::Late => None,
            Seen::Nothing => self.wait_until(poll_fn(|context| lookout.poll_next(context)), until),
        }
    }

    /// Sleeps until there is something to do, or the waker of this thread is woken. False:
    /// another thread has the poll slot.
    fn sleep_at_seat(&self, waker: &ThreadWaker, at_most: Duration) -> bool {
        let _reached = waker.reach_by(self.poll_slot.bell());
        self.sleep(at_most, &[], || waker.is_woken()).is_some()
    }
}

/// A thread that waits for a future. It is polled only when it was woken: most turns find
/// nothing for it.
struct Waiting<'a, P: Protocol, F> {
    runtime: &'a Runtime<P>,
    future: Pin<&'a mut F>,
    waker: Arc<ThreadWaker>,
    /// The same, for the future.
    task: Waker,
    until: Instant,
    drives: bool,
}

impl<P: Protocol, F: Future> Drive for Waiting<'_, P, F> {
    type Output = Option<F::Output>;

    fn turn(&mut self) -> ControlFlow<Option<F::Output>, Turn> {
        let Self { runtime, waker, .. } = self;
        if waker.take_wake()
            && let Poll::Ready(output) =
                self.future.as_mut().poll(&mut Context::from_waker(&self.task))
        {
            return ControlFlow::Break(Some(output));
        }
        // At the end of it, what is waited for is over, too.
        let Turn { moved, at } = match self.drives && !runtime.has_ended() {
            true => runtime.turn_and_tell(),
            false => Turn { moved: false, at: runtime.clock.now() },
        };
        if at >= self.until {
            return ControlFlow::Break(None);
        }
        ControlFlow::Continue(Turn { moved: moved || waker.is_woken(), at })
    }

    fn sleep(&mut self, at: Instant) {
        let Self { runtime, waker, drives, .. } = self;
        let left = self.until.since(at);
        if !*drives {
            thread::park_timeout(left.min(LONGEST_SLEEP));
        } else if runtime.has_ended() || !runtime.sleep_at_seat(waker, left) {
            runtime.ask_for_seat();
            thread::park_timeout(ASIDE.min(left));
        }
    }
}

/// What a thread sees by itself, or is woken for.
pub(crate) trait Observer {
    type Output;

    /// It, if it is there.
    fn look(&mut self) -> Option<Self::Output>;
    /// The same, and where it is not, anyone who polls is woken for it.
    fn poll_next(&mut self, context: &Context<'_>) -> Poll<Self::Output>;
}

/// A thread that spins and looks.
struct Looking<'a, P: Protocol, L> {
    runtime: &'a Runtime<P>,
    lookout: &'a mut L,
    until: Instant,
    is_spent: bool,
}

enum Seen<T> {
    This(T),
    /// The time is over.
    Late,
    /// Nobody may spin any more.
    Nothing,
}

impl<P: Protocol, L: Observer> Drive for Looking<'_, P, L> {
    type Output = Seen<L::Output>;

    fn turn(&mut self) -> ControlFlow<Self::Output, Turn> {
        let Self { runtime, lookout, .. } = self;
        if let Some(output) = lookout.look() {
            return ControlFlow::Break(Seen::This(output));
        }
        if self.is_spent || runtime.has_ended() {
            return ControlFlow::Break(Seen::Nothing);
        }
        let turn = match runtime.is_driven_by_callers() {
            true => runtime.turn_and_tell(),
            false => Turn { moved: false, at: runtime.clock.now() },
        };
        if !turn.moved && turn.at >= self.until {
            return ControlFlow::Break(lookout.look().map_or(Seen::Late, Seen::This));
        }
        ControlFlow::Continue(turn)
    }

    fn sleep(&mut self, _: Instant) {
        self.is_spent = true;
    }
}
