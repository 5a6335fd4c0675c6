//! [`NodeHandle`]: what every handle of a node holds.

use std::future::Future;
use std::sync::Arc;
use std::time::Instant as StdInstant;

use landfall_placement::{Duration, Instant};
use landfall_transport::driver::Interest;
use landfall_transport::wait::until_ready;

use super::Core;
use crate::clan::Error;
use crate::clan::network::memory::Pool;
use crate::runtime::{Handle, Runtime};

/// When the last is gone, the node ends.
#[derive(Clone, Debug)]
pub(crate) struct NodeHandle(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    handle: Handle<Core>,
    pool: Arc<Pool>,
}

impl std::ops::Deref for NodeHandle {
    type Target = Runtime<Core>;

    #[inline]
    fn deref(&self) -> &Runtime<Core> {
        &self.0.handle
    }
}

impl NodeHandle {
    pub(crate) fn new(runtime: Arc<Runtime<Core>>, pool: Arc<Pool>) -> Self {
        Self(Arc::new(Inner { handle: Handle(runtime), pool }))
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.0.pool
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// # Errors
    /// The node does not run any more.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.has_ended() { Err(Error::NodeGone) } else { Ok(()) }
    }

    /// Puts something into the engine that need not leave at once.
    #[inline]
    pub(crate) fn enter<T>(&self, enter: impl FnOnce(&mut Core, Instant) -> T) -> T {
        self.look(|core| enter(core, self.clock.now()))
    }

    /// Waits for a future on this thread, which drives the node meanwhile;
    /// nothing if the deadline is over before.
    ///
    /// # Errors
    /// The node does not run any more.
    pub(crate) fn block_on<F: Future>(
        &self,
        future: F,
        deadline: Option<StdInstant>,
    ) -> Result<Option<F::Output>, Error> {
        let left = |deadline: StdInstant| deadline.saturating_duration_since(StdInstant::now());
        let until =
            deadline.map_or(Instant::FAR_FUTURE, |deadline| self.clock.now() + left(deadline));
        let done = self.wait_until(future, until);
        if done.is_none() {
            self.check()?;
        }
        Ok(done)
    }

    /// One turn, and if it brought nothing, sleep at the node's descriptors and at
    /// others until something comes or the deadline is over.
    ///
    /// # Errors
    /// The node does not run any more.
    pub(crate) fn select(
        &self,
        others: &[Interest],
        deadline: Option<StdInstant>,
        has_news: impl Fn() -> bool,
    ) -> Result<(), Error> {
        /// While another thread leaves the seat.
        const ASIDE: Duration = Duration::from_micros(100);
        const LONG: Duration = Duration::from_secs(1);
        let _driver = self.begin_driving();
        self.check()?;
        let moved = self.turn();
        if moved || has_news() {
            return Ok(());
        }
        let at_most = deadline.map_or(LONG, |deadline| {
            deadline.saturating_duration_since(StdInstant::now()).min(LONG)
        });
        if at_most.is_zero() {
            return Ok(());
        }
        if self.sleep(at_most, others, &has_news).is_some() {
            self.turn();
        } else {
            self.ask_for_seat();
            // A poll that fails is a short sleep.
            let _ = until_ready(others, ASIDE.min(at_most));
        }
        Ok(())
    }
}
