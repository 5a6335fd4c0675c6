//! [`EventQueue`]: the asynchronous event queue of any fabric.
//!
//! A program with many tripwires registers them with a
//! queue instead of polling each. The fabric puts events in, the program takes them out, and
//! neither waits for the other. An event costs the same however many sources are
//! registered. A source has at most one event in the queue: what comes of it until
//! that one is taken out is told by that one. So a queue as long as there are
//! sources never overflows; a shorter one says how many events it lost, in their
//! place ([`Event::Overflow`]).
//!
//! Each fabric has its own queue; a program that is written against these two traits
//! runs over any of them.
//!
//! ```
//! use landfall::clan::{Access, Error, Event, EventQueue, Eventful, Fabric, Remote, Rights, Threads};
//!
//! /// Tells which of a thousand words was written.
//! fn which<F: Eventful>(here: &F, there: &F) -> Result<Option<Event>, Error> {
//!     let (memory, cookie) = here.expose(8000, Rights::Write)?;
//!     let mut events = here.events(1000)?;
//!     let watch = |nth: u64| here.watch(&memory, 8 * nth..8 * nth + 8, Access::Write, None);
//!     let tripwires = (0..1000).map(watch).collect::<Result<Vec<_>, _>>()?;
//!     for (token, tripwire) in (0..).zip(&tripwires) {
//!         events.register(tripwire, token)?; // they need not be armed
//!     }
//!     let mut window = there.map(&cookie)?;
//!     window.store(8 * 321, 1)?;
//!     window.commit()?;
//!     events.wait(None)
//! }
//!
//! let (here, there) = Threads::pair()?;
//! assert_eq!(which(&here, &there)?, Some(Event::Tripwire(321)));
//! # Ok::<(), landfall::clan::Error>(())
//! ```
//!
//! # What the memory says
//!
//! An event says that something happened, not what the memory holds: look at it when
//! the event has been taken out. What that look does not see is another event. It may
//! come for what the look did see, when the two met; so a program looks, and finds
//! nothing new now and then.
//!
//! What does not live here: what fires (the fabrics), and the queue of the engine
//! (`clan-dsm`).

mod queue;
#[cfg(test)]
mod tests;
mod tripset;

use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::os::fd::{AsFd, AsRawFd};
use std::task::{Context, Poll};
use std::time::Instant;

use landfall_transport::driver::Interest;

pub(crate) use self::queue::{EventSender, Kind, Queue, QueueWaker, Registration};
use super::{Error, Fabric};
pub(crate) use queue::{EventSource, Subscription};
pub use tripset::Tripset;

/// An entry of the queue. The token is what the source was registered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A tripwire fired, once or more, or the peer that it was made for is lost.
    Tripwire(u64),
    /// DMA chains of a queue are done:
    /// [`DmaQueue::try_done`](super::DmaQueue::try_done) says which.
    Dma(u64),
    /// Messages, or news of connections, wait at an endpoint.
    OutOfBand(u64),
    /// The queue was too short: events are missing here. What they
    /// reported can still be asked for.
    Overflow {
        /// How many.
        lost: u64,
    },
}

/// A fabric that reports its events through a queue, too.
pub trait Eventful: Fabric {
    /// The queue.
    type Events: EventQueue<Tripwire = Self::Tripwire>;

    /// An asynchronous event queue of this many places, at least one.
    ///
    /// # Errors
    /// The process has no descriptor left, or the node does not run any more.
    fn events(&self, capacity: usize) -> Result<Self::Events, Error>;
}

/// An asynchronous event queue: see the [module](self).
///
/// Its descriptor is for `select`, `poll`, `epoll` or tokio's `AsyncFd`, to sleep next
/// to other I/O: it becomes readable when there is an event, once [`arm`](Self::arm)
/// has said that it will.
pub trait EventQueue: AsFd + AsRawFd + Debug + Send + 'static {
    /// What is registered.
    type Tripwire;

    /// From now on each firing of the tripwire is an event in this queue, with this
    /// token; it need not be armed. A tripwire has one queue: registered again, it
    /// moves. One that has fired already, or whose peer is lost, tells at once.
    ///
    /// # Errors
    /// The tripwire is of another node.
    fn register(&self, tripwire: &Self::Tripwire, token: u64) -> Result<(), Error>;

    /// From now on no event of it comes, also not what waits. Not registered: nothing
    /// changes. Dropping the tripwire does the same.
    ///
    /// # Errors
    /// The node does not run any more.
    fn unregister(&self, tripwire: &Self::Tripwire) -> Result<(), Error>;

    /// How many sources are registered.
    fn sources(&self) -> u32;

    /// Takes the next event out, if there is one. No system call, unless the
    /// descriptor was armed before.
    fn next(&mut self) -> Option<Event>;

    /// Is nothing in the queue?
    fn is_empty(&self) -> bool;

    /// QueueWaker this before you sleep at the queue's descriptor. True: from now on the
    /// descriptor becomes readable as soon as there is an event. False: there is one,
    /// do not sleep. While it is not armed no event costs a system call.
    ///
    /// [`next`](Self::next) ends it, once it gives an event.
    #[must_use = "false: there is an event, and the descriptor need not become readable"]
    fn arm(&mut self) -> bool;

    /// Waits for the next event on this thread; nothing if none came before the
    /// deadline.
    ///
    /// # Errors
    /// The node does not run any more.
    fn wait(&mut self, deadline: Option<Instant>) -> Result<Option<Event>, Error>;

    /// The next event, for a task.
    ///
    /// # Errors
    /// The node does not run any more.
    fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Event, Error>>;

    /// Waits for the next event, on any executor.
    ///
    /// # Errors
    /// The node does not run any more.
    fn recv(&mut self) -> impl Future<Output = Result<Event, Error>> + Send {
        poll_fn(|context| self.poll_recv(context))
    }

    /// What to wait for: for those who poll descriptors themselves.
    fn interest(&self) -> Interest {
        Interest { fd: self.as_raw_fd(), readable: true, writable: false }
    }
}
