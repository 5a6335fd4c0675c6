//! [`Listener`]: idle queue pairs wait there for connections from outside. What a task or a
//! thread waits for is a [`Pending`].

use std::collections::HashMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use landfall_placement::Duration;
use qpip::{ListenerId, QueuePairId};

use super::error::{Error, Refused};
use super::queue_pair::QueuePair;
use super::state::{Handle, ListenerState, Submission};
use crate::runtime::locked;

/// A port where connections come in. Each is mated with an idle queue pair that
/// was offered before, in the order of the offers; while there is none,
/// connections wait in vain and are turned away.
///
/// Dropped, none come in any more, and queue pairs that wait there go with it.
pub struct Listener {
    handle: Arc<Handle>,
    id: ListenerId,
    local: SocketAddr,
    state: Arc<ListenerState>,
    offered: Mutex<HashMap<QueuePairId, QueuePair>>,
}

impl Listener {
    pub(super) fn listen(handle: &Arc<Handle>, local: SocketAddr) -> Result<Self, Error> {
        handle.check()?;
        let (id, state) = handle.command(|core, _| core.listen(local))?;
        Ok(Self { handle: Arc::clone(handle), id, local, state, offered: Mutex::default() })
    }

    /// Where it listens.
    #[must_use]
    pub const fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Lets an idle queue pair wait for a connection. Post receives before: the
    /// other side may send at once.
    ///
    /// # Errors
    /// The queue pair itself, where it is not idle, is for datagrams or of
    /// another adapter, or where as many wait as may.
    #[expect(clippy::result_large_err, reason = "the queue pair itself, which was on the stack")]
    pub fn offer(&self, queue_pair: QueuePair) -> Result<(), Refused<QueuePair>> {
        if !Arc::ptr_eq(queue_pair.handle(), &self.handle) {
            return Err(Refused::new(Error::ForeignHandle, queue_pair));
        }
        let (id, listener) = (queue_pair.id(), self.id);
        // It may be mated before the command has returned.
        locked(&self.offered).insert(id, queue_pair);
        let refused = self.handle.command(|core, _| core.offer(listener, id)).err();
        let Some(error) = refused else { return Ok(()) };
        let item = locked(&self.offered).remove(&id);
        item.map_or(Ok(()), |item| Err(Refused { error, item }))
    }

    /// How many queue pairs wait, with those that were mated and not accepted.
    #[must_use]
    pub fn offered(&self) -> usize {
        locked(&self.offered).len()
    }

    /// Waits for the next connection, and gives the queue pair that it was mated
    /// with.
    ///
    /// What completes for it, of receives that were posted before it was offered,
    /// comes to its completion queues by itself, but never first: when a completion
    /// is polled, this has its queue pair, or has given it. Who shares a completion
    /// queue among connections polls it, empties this without waiting, and then
    /// looks for whom the completion is.
    ///
    /// # Errors
    /// [`Error::AdapterGone`].
    pub fn accept(&self) -> Pending<impl Future<Output = Result<QueuePair, Error>> + Unpin + '_> {
        Pending::new(&self.handle, poll_fn(|cx| self.poll_accept(cx)))
    }

    fn poll_accept(&self, cx: &Context<'_>) -> Poll<Result<QueuePair, Error>> {
        loop {
            let Poll::Ready(mated) = self.state.poll(cx) else { return Poll::Pending };
            let id = match mated {
                Ok(id) => id,
                Err(error) => return Poll::Ready(Err(error)),
            };
            if let Some(queue_pair) = locked(&self.offered).remove(&id) {
                return Poll::Ready(Ok(queue_pair));
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let id = self.id;
        self.handle.submit(Submission::StopListening(id));
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("local", &self.local).finish_non_exhaustive()
    }
}

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
