//! Deadlines: how long a call may take, for tasks. The endpoint wakes them itself, so that no
//! timer of an executor is needed.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use landfall_placement::{Duration, Instant};

use super::error::Error;
use super::state::Handle;

/// Who is to be woken, and when.
#[derive(Debug, Default)]
pub(crate) struct Alarms {
    by_time: BTreeMap<(Instant, u64), Waker>,
    next: u64,
}

impl Alarms {
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        self.by_time.first_key_value().map(|((at, _), _)| *at)
    }

    /// Those that are due.
    pub(crate) fn take_due(&mut self, now: Instant, wake: &mut Vec<Waker>) {
        while let Some(first) = self.by_time.first_entry()
            && first.key().0 <= now
        {
            wake.push(first.remove());
        }
    }

    /// All of them: nothing wakes them any more.
    pub(crate) fn take_all(&mut self, wake: &mut Vec<Waker>) {
        wake.extend(std::mem::take(&mut self.by_time).into_values());
    }
}

/// One of them, which ends with this.
struct Alarm<'a> {
    handle: &'a Arc<Handle>,
    at: Instant,
    set: Option<(u64, Waker)>,
}

impl Alarm<'_> {
    fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        if self.handle.clock.now() >= self.at {
            return Poll::Ready(());
        }
        if self.set.as_ref().is_some_and(|(_, waker)| waker.will_wake(cx.waker())) {
            return Poll::Pending;
        }
        let known = self.set.as_ref().map(|(name, _)| *name);
        let (at, waker) = (self.at, cx.waker().clone());
        let (name, before) = self.handle.ask(|core, _| {
            let name = known.unwrap_or(core.alarms.next);
            core.alarms.next = core.alarms.next.max(name + 1);
            (name, core.alarms.by_time.insert((at, name), waker))
        });
        // With a waker a whole task may go: not under the lock.
        drop(before);
        self.set = Some((name, cx.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if let Some((name, _)) = self.set.take() {
            let key = (self.at, name);
            let before = self.handle.look(|core| core.alarms.by_time.remove(&key));
            drop(before);
        }
    }
}

/// Waits for so long at most; what is not over then is dropped.
pub(crate) async fn within<F: Future>(
    handle: &Arc<Handle>,
    limit: Duration,
    future: F,
) -> Result<F::Output, Error> {
    let mut future = pin!(future);
    let mut alarm = Alarm { handle, at: handle.clock.now() + limit, set: None };
    poll_fn(|cx| {
        if let Poll::Ready(done) = future.as_mut().poll(cx) {
            return Poll::Ready(Ok(done));
        }
        alarm.poll(cx).map(|()| Err(Error::TimedOut { limit }))
    })
    .await
}
