//! [`ThreadsEvents`]: what the tripwires of a [`Threads`](super::Threads) node tell, in
//! one queue. Whoever writes puts the event in.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Instant;

use super::Node;
use super::tripwire::{ThreadsTripwire, Wire};
use crate::clan::events::{EventQueue, Kind, Queue};
use crate::clan::{Error, Event};

/// The event queue of a [`Threads`](super::Threads) node: see
/// [`EventQueue`](crate::clan::EventQueue).
pub struct ThreadsEvents {
    node: Arc<Node>,
    queue: Queue<Weak<Wire>>,
}

impl ThreadsEvents {
    pub(super) fn new(node: &Arc<Node>, capacity: usize) -> Result<Self, Error> {
        let queue = Queue::new(capacity)?;
        node.add_queue(queue.call())?;
        Ok(Self { node: Arc::clone(node), queue })
    }
}

impl EventQueue for ThreadsEvents {
    type Tripwire = ThreadsTripwire;

    fn register(&self, tripwire: &ThreadsTripwire, token: u64) -> Result<(), Error> {
        let wire = tripwire.wire();
        if !wire.is_of(&self.node) {
            return Err(Error::BadConfig("an event source belongs to the node of its queue"));
        }
        let (outlet, registration) =
            self.queue.register(Kind::Tripwire, token, Arc::downgrade(wire));
        wire.subscription().begin(wire, outlet, registration);
        if wire.has_fired() {
            wire.tell_queue();
        }
        Ok(())
    }

    fn unregister(&self, tripwire: &ThreadsTripwire) -> Result<(), Error> {
        tripwire.wire().subscription().end();
        Ok(())
    }

    fn sources(&self) -> u32 {
        self.queue.sources()
    }

    fn next(&mut self) -> Option<Event> {
        self.queue.next(|source| {
            if let Some(wire) = source.what.upgrade() {
                wire.subscription().hear(&wire, source);
            }
        })
    }

    fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    fn arm(&mut self) -> bool {
        self.queue.arm();
        if self.is_empty() {
            return true;
        }
        self.queue.disarm();
        false
    }

    fn wait(&mut self, deadline: Option<Instant>) -> Result<Option<Event>, Error> {
        let queue = &self.queue;
        let is_there = self.node.sleep_until(deadline, || !queue.is_empty());
        match self.next() {
            None => is_there.map(|_| None),
            event => Ok(event),
        }
    }

    fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Event, Error>> {
        if let Some(event) = self.next() {
            return Poll::Ready(Ok(event));
        }
        self.queue.wake_task(context);
        match self.next() {
            Some(event) => Poll::Ready(Ok(event)),
            None if !self.node.is_up() => Poll::Ready(Err(Error::NodeGone)),
            None => Poll::Pending,
        }
    }
}

impl AsFd for ThreadsEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

impl AsRawFd for ThreadsEvents {
    fn as_raw_fd(&self) -> RawFd {
        self.queue.as_fd().as_raw_fd()
    }
}

impl fmt::Debug for ThreadsEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ThreadsEvents({} sources of {})", self.sources(), self.node.host)
    }
}
