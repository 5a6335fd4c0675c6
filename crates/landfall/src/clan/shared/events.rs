//! [`SharedEvents`]: the firings of a node's tripwires, in one queue.
//!
//! Writers check for a tripwire while no event of it is queued. The reports of each writer
//! come through a ring of its own; anyone who looks for events reads them, at the cost of
//! a load for each process that maps memory of this node, and none for each tripwire.
//! The thread of the node reads them only while the program sleeps somewhere else, at
//! the descriptor of the queue or as a task.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Instant;

use landfall_transport::Wait;

use super::SharedNode;
use super::node::Node;
use super::tripwire::{SharedTripwire, Wire};
use crate::clan::dma::{DirectQueue, DmaEvents};
use crate::clan::events::{EventQueue, EventSender, Kind, Queue, Registration};
use crate::clan::{Error, Event};

/// Where the events of an endpoint go.
pub(super) type EndpointSource = (EventSender<Weak<Wire>>, Registration<Weak<Wire>>);

/// The event queue of a [`SharedNode`](super::SharedNode): see
/// [`EventQueue`](crate::clan::EventQueue).
pub struct SharedEvents {
    node: Arc<Node>,
    queue: Queue<Weak<Wire>>,
    /// The thread of the node reads the news for this one.
    is_followed: bool,
}

impl SharedEvents {
    pub(super) fn new(node: &Arc<Node>, capacity: usize) -> Result<Self, Error> {
        if node.is_down() {
            return Err(Error::NodeGone);
        }
        let queue = Queue::new(capacity)?;
        node.add_queue(queue.call());
        Ok(Self { node: Arc::clone(node), queue, is_followed: false })
    }

    /// Takes one out that is in the queue already.
    fn take(&mut self) -> Option<Event> {
        let event = self.queue.next(|source| {
            if let Some(wire) = source.what.upgrade() {
                wire.subscription().rearm(&wire, source);
            }
        })?;
        self.leave();
        Some(event)
    }

    /// From now on the thread of the node reads the news too.
    fn follow(&mut self) {
        if !self.is_followed {
            self.is_followed = true;
            self.node.count_tasks(1);
        }
        self.node.listen();
    }

    fn leave(&mut self) {
        if std::mem::take(&mut self.is_followed) {
            self.node.count_tasks(-1);
        }
    }

    pub(super) fn is_down(&self) -> bool {
        self.node.is_down()
    }

    /// Where the events of an endpoint go: nothing has to be armed when one is taken out.
    pub(super) fn new_endpoint_source(&self, token: u64) -> EndpointSource {
        self.queue.register(Kind::OutOfBand, token, Weak::new())
    }

    /// The descriptor need not become readable any more.
    pub(super) fn disarm(&mut self) {
        self.queue.disarm();
        self.leave();
    }

    /// Sleeps until there is an event, or the deadline is over.
    pub(super) fn sleep(&self, deadline: Option<Instant>) -> Result<(), Error> {
        let (node, queue) = (&self.node, &self.queue);
        let mut ready = || {
            if !queue.is_empty() || node.is_down() {
                return true;
            }
            node.drain();
            !queue.is_empty()
        };
        node.sleep(Wait::Block, deadline, &mut ready)?;
        if queue.is_empty() && node.is_down() { Err(Error::NodeGone) } else { Ok(()) }
    }

    fn check(&self, tripwire: &SharedTripwire) -> Result<(), Error> {
        self.check_node(tripwire.0.place.node())
    }

    pub(super) fn check_node(&self, node: &Node) -> Result<(), Error> {
        if std::ptr::eq(node, &*self.node) {
            Ok(())
        } else {
            Err(Error::BadConfig("an event source belongs to the node of its queue"))
        }
    }
}

impl DmaEvents for SharedEvents {
    type Queue = DirectQueue<SharedNode>;

    fn register_dma(&self, queue: &DirectQueue<SharedNode>, token: u64) -> Result<(), Error> {
        self.check_node(&queue.node().0.node)?;
        // Nothing has to be armed when an event of it is taken out.
        let (sender, registration) = self.queue.register(Kind::Dma, token, Weak::new());
        queue.attach(Some(Box::new(move || {
            let _kept = &registration;
            sender.notify()
        })));
        Ok(())
    }

    fn unregister_dma(&self, queue: &DirectQueue<SharedNode>) -> Result<(), Error> {
        queue.attach(None);
        Ok(())
    }
}

impl EventQueue for SharedEvents {
    type Tripwire = SharedTripwire;

    fn register(&self, tripwire: &SharedTripwire, token: u64) -> Result<(), Error> {
        self.check(tripwire)?;
        let wire = &tripwire.0;
        let (event_sender, registration) =
            self.queue.register(Kind::Tripwire, token, Arc::downgrade(wire));
        // What came before is not what it tells of, unless it was armed for it.
        self.node.drain();
        wire.subscription().begin(wire, event_sender, registration);
        if wire.is_fired() {
            wire.notify_queue();
        }
        Ok(())
    }

    fn unregister(&self, tripwire: &SharedTripwire) -> Result<(), Error> {
        tripwire.0.subscription().end();
        Ok(())
    }

    fn sources(&self) -> u32 {
        self.queue.sources()
    }

    #[inline]
    fn next(&mut self) -> Option<Event> {
        if self.queue.is_empty() {
            self.node.drain();
        }
        self.take()
    }

    fn is_empty(&self) -> bool {
        if self.queue.is_empty() {
            self.node.drain();
        }
        self.queue.is_empty()
    }

    fn arm(&mut self) -> bool {
        self.queue.arm();
        self.follow();
        if self.is_empty() {
            return true;
        }
        self.queue.disarm();
        self.leave();
        false
    }

    fn wait(&mut self, deadline: Option<Instant>) -> Result<Option<Event>, Error> {
        self.sleep(deadline)?;
        Ok(self.take())
    }

    fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Event, Error>> {
        if let Some(event) = self.next() {
            return Poll::Ready(Ok(event));
        }
        self.queue.wake_task(context);
        self.follow();
        match self.next() {
            Some(event) => Poll::Ready(Ok(event)),
            None if self.node.is_down() => Poll::Ready(Err(Error::NodeGone)),
            None => Poll::Pending,
        }
    }
}

impl AsFd for SharedEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

impl AsRawFd for SharedEvents {
    fn as_raw_fd(&self) -> RawFd {
        self.queue.as_fd().as_raw_fd()
    }
}

impl fmt::Debug for SharedEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedEvents({} sources of {})", self.sources(), self.node.host)
    }
}

impl Drop for SharedEvents {
    fn drop(&mut self) {
        self.leave();
    }
}
