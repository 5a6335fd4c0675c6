//! [`Pending`]: something that will happen, for tasks and for threads.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use landfall_placement::Duration;

use super::core::Handle;

/// Something that will happen: tasks `.await` it, threads [`wait`](Self::wait)
/// for it. Dropping it changes nothing but that nobody waits.
///
/// Of an adapter that runs inline, a thread that waits here makes its turns;
/// for a task that awaits somebody else has to.
#[must_use = "it happens anyway, but nobody hears of it"]
pub struct Pending<F> {
    future: F,
    handle: Arc<Handle>,
}

impl<F: Future> Pending<F> {
    pub(crate) fn new(handle: &Arc<Handle>, future: F) -> Self {
        Self { future, handle: Arc::clone(handle) }
    }

    /// Waits on this thread.
    pub fn wait(self) -> F::Output {
        self.handle.wait_for(self.future)
    }

    /// Waits on this thread for so long at most.
    pub fn wait_for(self, limit: Duration) -> Option<F::Output> {
        self.handle.wait_until(self.future, self.handle.clock.now() + limit)
    }
}

impl<F: Future + Unpin> Future for Pending<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        Pin::new(&mut self.future).poll(cx)
    }
}

impl<F> fmt::Debug for Pending<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pending")
    }
}
