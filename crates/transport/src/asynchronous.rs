//! Waiting on a tokio runtime: turns run on the task, sleep is tokio's.

use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::task::Poll;

use arrayvec::ArrayVec;
use landfall_placement::{Duration, Engine};
use tokio::io::Interest as TokioInterest;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};
use tokio::time::sleep;

use crate::driver::{Clock, Driver, Interests, Progress};
use crate::wait::next_wake;

/// Runs turns of a driver on a tokio task.
///
/// ```no_run
/// # use landfall_placement::{Engine, Duration};
/// # use landfall_transport::{AsyncWaiter, Clock, Driver};
/// # async fn run<D: Driver, E: Engine>(driver: &mut D, engine: &mut E) -> std::io::Result<()> {
/// let clock = Clock::start();
/// let waiter = AsyncWaiter::new(driver)?;
/// loop {
///     waiter.turn(driver, engine, &clock, Duration::from_secs(1)).await?;
///     while let Some(event) = engine.poll_event() {
///         // tell the user
///         # drop(event);
///     }
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncWaiter {
    /// Duplicates of the driver's descriptors: they stay open as long as the
    /// runtime watches them, whatever becomes of the driver.
    watched: ArrayVec<AsyncFd<OwnedFd>, 2>,
}

impl AsyncWaiter {
    /// Lets the runtime of this task watch the driver's descriptors.
    ///
    /// # Errors
    /// No descriptor is left, or the runtime has no I/O driver.
    pub fn new<D: Driver>(driver: &D) -> io::Result<Self> {
        let mut watched = ArrayVec::new();
        for fd in driver.descriptors() {
            let both = TokioInterest::READABLE | TokioInterest::WRITABLE;
            // SAFETY: the duplicate is this watcher's own, and is closed by
            // nobody before the runtime has forgotten it.
            let fd = unsafe { AsyncFd::register_with_interest(fd.try_clone_to_owned()?, both) };
            watched.push(fd.map_err(|error| error.into_parts().1)?);
        }
        Ok(Self { watched })
    }

    /// Makes a turn once one can move something, a timer is due, or `at_most`
    /// has passed. May be dropped at any moment: nothing is lost.
    ///
    /// # Errors
    /// Those of the turn.
    pub async fn turn<D: Driver, E: Engine>(
        &self,
        driver: &mut D,
        engine: &mut E,
        clock: &Clock,
        at_most: Duration,
    ) -> io::Result<Progress> {
        let progress = driver.turn(engine, clock.now())?;
        if progress.any() {
            return Ok(progress);
        }
        let wake = next_wake(driver, engine);
        let patience = wake.map_or(at_most, |at| clock.until(at).min(at_most));
        let mut ready = self.ready(&driver.interests(), patience).await?;
        if !ready.is_empty() {
            driver.counters_mut().wakeups += 1;
        }
        let progress = driver.turn(engine, clock.now())?;
        if !progress.any() {
            // Ready, but for nothing: the runtime shall wait for the next edge.
            // What came since it told us stays seen.
            ready.iter_mut().for_each(AsyncFdReadyGuard::clear_ready);
        }
        Ok(progress)
    }

    /// Waits until a descriptor is ready or patience is over (then none is).
    async fn ready(
        &self,
        interests: &Interests,
        patience: Duration,
    ) -> io::Result<ArrayVec<AsyncFdReadyGuard<'_, OwnedFd>, 4>> {
        let mut over = pin!(sleep(patience));
        poll_fn(|context| {
            let mut ready = ArrayVec::new();
            for (watched, interest) in self.watched.iter().zip(interests) {
                if interest.readable
                    && let Poll::Ready(guard) = watched.poll_read_ready(context)?
                {
                    ready.push(guard);
                }
                if interest.writable
                    && let Poll::Ready(guard) = watched.poll_write_ready(context)?
                {
                    ready.push(guard);
                }
            }
            if ready.is_empty() && over.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            Poll::Ready(Ok(ready))
        })
        .await
    }
}
