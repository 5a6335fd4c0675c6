//! [`Events`]: the asynchronous event queue. Tripwires, DMA completions and
//! out-of-band messages of any number of endpoints, in one circular queue.
//!
//! The node puts in, the application takes out, and neither waits for the other.
//! An event costs the same however many sources are registered, and is taken out
//! without a system call. A source has at most one event in the queue: what comes
//! of it until that one is taken out is told by that one. So a queue as long as
//! there are sources never overflows; a shorter one says how many events it lost,
//! in their place ([`Event::Overflow`]), and what is behind them is still there to
//! be asked.
//!
//! To sleep next to other I/O there is a descriptor, for `select`, `poll`, `epoll`
//! or tokio's `AsyncFd`: see [`Events::arm`].

pub use crate::clan::Event;

pub(crate) use crate::clan::events::{EventSender, Kind, Registration};

use std::future::poll_fn;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use clan_dsm::Ended;
use landfall_transport::driver::Interest;

use super::dma::DmaQueue;
use super::endpoint::Endpoint;
use super::engines::NodeHandle;
use super::tripwire::Tripwire;
use crate::clan::Error;
use crate::clan::dma::DmaEvents;
use crate::clan::events::{EventQueue, Queue};
use crate::clan::messaging::MessageEvents;
use crate::runtime::locked;

/// A circular queue of events, filled by the node and emptied by the application.
#[derive(Debug)]
pub struct Events {
    handle: NodeHandle,
    queue: Queue,
}

/// An event source: [`Tripwire`], [`DmaQueue`] or [`Endpoint`].
pub trait Source: sealed::Source {}
impl Source for Tripwire {}
impl Source for DmaQueue {}
impl Source for Endpoint {}

/// Where events of a source go, and that it is registered: at each engine that it is at.
pub(crate) type Attached = (EventSender, Arc<Registration>);

pub(crate) mod sealed {
    use super::{Attached, Error, Kind, NodeHandle};

    /// What events come from.
    pub trait Source {
        #[doc(hidden)]
        #[allow(private_interfaces, reason = "nobody else can implement it")]
        fn kind(&self) -> Kind;
        #[doc(hidden)]
        #[allow(private_interfaces, reason = "nobody else can implement it")]
        fn handle(&self) -> &NodeHandle;
        #[doc(hidden)]
        #[allow(private_interfaces, reason = "nobody else can implement it")]
        fn attach(&self, to: Option<Attached>) -> Result<(), Error>;
    }
}

impl Events {
    pub(crate) fn new(handle: &NodeHandle, capacity: usize) -> Result<Self, Error> {
        Ok(Self { handle: handle.clone(), queue: Queue::new(capacity)? })
    }

    /// From now on the source's events come into this queue, with this token. A
    /// source has one queue: registered again, it moves.
    ///
    /// If something has happened already that nobody has taken notice of (a
    /// tripwire that has fired, a message that waits), the event comes at once.
    ///
    /// # Errors
    /// The source is of another node, or gone.
    pub fn register(&self, source: &impl Source, token: u64) -> Result<(), Error> {
        if !source.handle().is_same(&self.handle) {
            return Err(Error::BadConfig("an event source belongs to the node of its queue"));
        }
        let (event_sender, registration) = self.queue.register(source.kind(), token, ());
        source.attach(Some((event_sender, Arc::new(registration))))
    }

    /// From now on no event of it comes. Not registered: nothing changes.
    ///
    /// # Errors
    /// The source is gone.
    pub fn unregister(&self, source: &impl Source) -> Result<(), Error> {
        source.attach(None)
    }

    /// How many sources are registered.
    #[must_use]
    pub fn sources(&self) -> u32 {
        self.queue.sources()
    }

    /// Takes the next event out, if there is one. No system call, unless the
    /// descriptor was armed before.
    #[expect(clippy::should_implement_trait, reason = "None is not the end of it")]
    pub fn next(&mut self) -> Option<Event> {
        self.queue.next(|_| ())
    }

    /// Is nothing in the queue?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// QueueWaker this before you sleep at the queue's descriptor. True: from now on the
    /// descriptor becomes readable as soon as there is an event. False: there is
    /// one, do not sleep. While it is not armed no event costs a system call.
    ///
    /// [`next`](Self::next) ends it, once it gives an event.
    #[must_use = "false: there is an event, and the descriptor need not become readable"]
    pub fn arm(&mut self) -> bool {
        self.queue.arm();
        if !self.is_empty() {
            self.queue.disarm();
            return false;
        }
        // Anyone who sleeps there does not drive.
        self.handle.hand_over();
        true
    }

    /// Waits for the next event, on any executor.
    ///
    /// # Errors
    /// The node does not run any more.
    pub async fn recv(&mut self) -> Result<Event, Error> {
        poll_fn(|context| self.poll_recv(context)).await
    }

    /// The same, polled.
    ///
    /// # Errors
    /// The node does not run any more.
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Event, Error>> {
        if let Some(event) = self.next() {
            return Poll::Ready(Ok(event));
        }
        self.queue.wake_task(context);
        match self.next() {
            Some(event) => Poll::Ready(Ok(event)),
            None if self.handle.has_ended() => Poll::Ready(Err(Error::NodeGone)),
            None => Poll::Pending,
        }
    }

    /// Waits for the next event on this thread, which drives the node meanwhile;
    /// nothing if none came before the deadline.
    ///
    /// # Errors
    /// The node does not run any more.
    pub fn wait(&mut self, deadline: Option<Instant>) -> Result<Option<Event>, Error> {
        let handle = self.handle.clone();
        handle.block_on(poll_fn(|context| self.poll_recv(context)), deadline)?.transpose()
    }

    /// Sleeps in one `select` until there is an event, one of the `others` is
    /// ready, or the deadline is over. This thread sleeps at the node's own
    /// descriptors, so that no other thread has to be woken first, and takes in
    /// what came. It may return early. For loops that look at
    /// [`next`](Self::next) and at the others in turn.
    ///
    /// # Errors
    /// The node does not run any more.
    pub fn select(&mut self, others: &[Interest], deadline: Option<Instant>) -> Result<(), Error> {
        self.queue.arm();
        let descriptors: Vec<Interest> =
            others.iter().copied().chain([self.queue.interest()]).collect();
        let slept = self.handle.select(&descriptors, deadline, || !self.is_empty());
        self.queue.disarm();
        slept
    }

    /// What to wait for: for those who poll descriptors themselves.
    #[must_use]
    pub fn interest(&self) -> Interest {
        self.queue.interest()
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

impl AsRawFd for Events {
    fn as_raw_fd(&self) -> RawFd {
        self.queue.as_fd().as_raw_fd()
    }
}

impl EventQueue for Events {
    type Tripwire = Tripwire;

    fn register(&self, tripwire: &Tripwire, token: u64) -> Result<(), Error> {
        Self::register(self, tripwire, token)
    }

    fn unregister(&self, tripwire: &Tripwire) -> Result<(), Error> {
        Self::unregister(self, tripwire)
    }

    fn sources(&self) -> u32 {
        Self::sources(self)
    }

    fn next(&mut self) -> Option<Event> {
        Self::next(self)
    }

    fn is_empty(&self) -> bool {
        Self::is_empty(self)
    }

    fn arm(&mut self) -> bool {
        Self::arm(self)
    }

    fn wait(&mut self, deadline: Option<Instant>) -> Result<Option<Event>, Error> {
        Self::wait(self, deadline)
    }

    fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Event, Error>> {
        Self::poll_recv(self, context)
    }
}

impl DmaEvents for Events {
    type Queue = DmaQueue;

    fn register_dma(&self, queue: &DmaQueue, token: u64) -> Result<(), Error> {
        Self::register(self, queue, token)
    }

    fn unregister_dma(&self, queue: &DmaQueue) -> Result<(), Error> {
        Self::unregister(self, queue)
    }
}

impl MessageEvents for Events {
    type Endpoint = Endpoint;

    fn register_endpoint(&self, endpoint: &Endpoint, token: u64) -> Result<(), Error> {
        Self::register(self, endpoint, token)
    }

    fn unregister_endpoint(&self, endpoint: &Endpoint) -> Result<(), Error> {
        Self::unregister(self, endpoint)
    }

    fn select(&mut self, others: &[Interest], deadline: Option<Instant>) -> Result<(), Error> {
        Self::select(self, others, deadline)
    }
}

// `PendingResult`: a result that a handle waits for.

/// Both sides hold it.
#[derive(Debug)]
pub(crate) struct PendingResult<T>(Arc<Mutex<Inner<T>>>);

#[derive(Debug)]
struct Inner<T> {
    result: Option<Result<T, Ended>>,
    waker: Option<Waker>,
}

impl<T> Clone for PendingResult<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Copy> PendingResult<T> {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Inner { result: None, waker: None })))
    }

    /// Sets the result. Returns the task to wake.
    pub(crate) fn complete(&self, result: Result<T, Ended>) -> Option<Waker> {
        let mut inner = locked(&self.0);
        inner.result = Some(result);
        inner.waker.take()
    }

    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<Result<T, Ended>> {
        let mut inner = locked(&self.0);
        match inner.result {
            Some(result) => Poll::Ready(result),
            None => {
                inner.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
