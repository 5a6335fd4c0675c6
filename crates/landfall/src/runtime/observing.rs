//! Threads that wait for what they see by themselves, where nothing has to be driven.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;

use landfall_placement::Instant;
use landfall_transport::{Clock, Wait};

use super::drive::{Drive, LONGEST_SLEEP, Turn, drive};
use super::waiting::Observer;
use super::waker::ThreadWaker;

/// Looks until something is there or the time is over: it spins for as long as `wait` says, then
/// sleeps until it is woken.
pub(crate) fn wait_observing<L: Observer>(
    observer: &mut L,
    (clock, wait): (Clock, Wait),
    until: Instant,
) -> Option<L::Output> {
    let waker = ThreadWaker::of_this_thread();
    let task = Waker::from(Arc::clone(&waker));
    drive(&mut Observing { observer, clock, until, waker, task, found: None }, wait)
}

struct Observing<'a, L: Observer> {
    observer: &'a mut L,
    clock: Clock,
    until: Instant,
    waker: Arc<ThreadWaker>,
    /// The same, for what wakes it.
    task: Waker,
    /// Found at the look before the sleep.
    found: Option<L::Output>,
}

impl<L: Observer> Drive for Observing<'_, L> {
    type Output = Option<L::Output>;

    fn turn(&mut self) -> ControlFlow<Self::Output, Turn> {
        if let Some(found) = self.found.take().or_else(|| self.observer.look()) {
            return ControlFlow::Break(Some(found));
        }
        let at = self.clock.now();
        if at >= self.until {
            return ControlFlow::Break(None);
        }
        ControlFlow::Continue(Turn { moved: false, at })
    }

    fn sleep(&mut self, at: Instant) {
        // A wake from here on is one for the look that follows.
        self.waker.take_wake();
        match self.observer.poll_next(&Context::from_waker(&self.task)) {
            Poll::Ready(found) => self.found = Some(found),
            Poll::Pending if self.waker.is_woken() => {}
            Poll::Pending => thread::park_timeout(self.until.since(at).min(LONGEST_SLEEP)),
        }
    }
}
