//! [`DmaEngine`]: queues of chains of requests that move memory, over any carrier (section 3.4 of
//! the paper).
//!
//! A chain is done in order: data, then the flag. When it is done comes back through the queue, or
//! as an event of an [event queue](super::events). Over networks the engine serves the queues in
//! turn while the program goes on. Between processes and threads the processor that asks is the
//! engine: what a chain asks for has happened when [`push`](DmaQueue::push) returns, and the
//! program finds out in the same way.
//!
//! ```
//! use std::time::Instant;
//!
//! use landfall::clan::dma::{DmaEngine, DmaQueue, Request};
//! use landfall::clan::{Error, Fabric, Local, Rights, Threads};
//!
//! /// Sends a block and the flag behind it, and waits until both are there.
//! fn send<F: DmaEngine>(
//!     node: &F,
//!     block: &F::Local,
//!     to: &F::Remote,
//!     deadline: Option<Instant>,
//! ) -> Result<(), Error> {
//!     let mut queue = node.dma_queue(8)?;
//!     queue.push(&[
//!         Request::Write { from: block, range: 0..4096, to, offset: 64 },
//!         Request::Word { to, offset: 0, word: 1 },
//!     ])?;
//!     queue.wait_done(deadline)?.map_or(Ok(()), |done| done.result)
//! }
//!
//! let (here, there) = Threads::pair()?;
//! let (memory, cookie) = there.expose(8192, Rights::Write)?;
//! let (block, _) = here.expose(4096, Rights::Read)?;
//! send(&here, &block, &here.map(&cookie)?, None)?;
//! assert_eq!(memory.load(0)?, 1);
//! # Ok::<(), Error>(())
//! ```
//!
//! What does not live here: the engine's queues ([`network`](super::network)).

use std::collections::VecDeque;
use std::fmt::{self, Debug};
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::{Error, EventQueue, Eventful, Fabric, Local, Remote, WORD};
use crate::runtime::locked;

/// One request of a chain. Offsets and ranges are multiples of eight.
#[derive(Debug)]
pub enum Request<'a, L, R> {
    /// Write memory of this node into memory of another.
    Write {
        /// The memory.
        from: &'a L,
        /// Which of its bytes. They must not change before the chain is done.
        range: Range<u64>,
        /// Where to.
        to: &'a R,
        /// From which byte of it on.
        offset: u64,
    },
    /// Read memory of another node into memory of this one.
    Read {
        /// Where from.
        from: &'a R,
        /// From which byte of it on.
        offset: u64,
        /// The memory.
        into: &'a L,
        /// Which of its bytes.
        range: Range<u64>,
    },
    /// Write one word: the flag behind the data.
    Word {
        /// Where to.
        to: &'a R,
        /// At which byte of it.
        offset: u64,
        /// The word.
        word: u64,
    },
}

impl<L, R> Clone for Request<'_, L, R> {
    fn clone(&self) -> Self {
        match self {
            Self::Write { from, range, to, offset } => {
                Self::Write { from, range: range.clone(), to, offset: *offset }
            }
            Self::Read { from, offset, into, range } => {
                Self::Read { from, offset: *offset, into, range: range.clone() }
            }
            Self::Word { to, offset, word } => Self::Word { to, offset: *offset, word: *word },
        }
    }
}

impl<L: Local, R: Remote> Request<'_, L, R> {
    /// Is it within both memories, in whole words?
    pub(crate) fn check_places(&self) -> Result<(), Error> {
        let (local, range, remote, offset) = match self {
            Self::Write { from, range, to, offset } => (*from, range, *to, *offset),
            Self::Read { from, offset, into, range } => (*into, range, *from, *offset),
            Self::Word { to, offset, .. } => {
                aligned(*offset)?;
                return within(*offset, WORD, to.len());
            }
        };
        [offset, range.start, range.end].into_iter().try_for_each(aligned)?;
        let len = range.end.saturating_sub(range.start);
        within(offset, len, remote.len())?;
        within(range.start, len, local.len())?;
        if len == 0 {
            return Err(Error::BadConfig("a DMA request has at least one word"));
        }
        Ok(())
    }
}

fn aligned(offset: u64) -> Result<(), Error> {
    if offset.is_multiple_of(WORD) { Ok(()) } else { Err(Error::Unaligned(offset)) }
}

fn within(offset: u64, len: u64, size: u64) -> Result<(), Error> {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => Err(Error::OutOfBounds { offset, len, size }),
    }
}

/// A chain is done.
#[derive(Debug)]
pub struct Done {
    /// The number that [`DmaQueue::push`] gave to the chain.
    pub chain: u64,
    /// What it wrote is in place at the other side, and what it read is here; or
    /// why not all of it.
    pub result: Result<(), Error>,
}

/// A fabric that moves memory by queues of requests.
pub trait DmaEngine: Eventful<Events: DmaEvents<Queue = Self::DmaQueue>> {
    /// A queue.
    type DmaQueue: DmaQueue<Local = Self::Local, Remote = Self::Remote>;

    /// A queue that holds this many requests.
    ///
    /// # Errors
    /// There is no room for one more, or the node does not run any more.
    fn dma_queue(&self, depth: usize) -> Result<Self::DmaQueue, Error>;
}

/// A queue of chains.
pub trait DmaQueue: Debug + Send + 'static {
    /// Memory of this node.
    type Local;
    /// Memory of another.
    type Remote;

    /// Puts a chain in, or nothing of it; gives its number, from 0 on. All its
    /// requests are for one host. They are done in order.
    ///
    /// # Errors
    /// [`Error::Busy`]: the queue is full; take out what is [done](Self::try_done).
    /// A request that cannot be.
    fn push(&mut self, chain: &[Request<'_, Self::Local, Self::Remote>]) -> Result<u64, Error>;

    /// Chains that were put in and not taken out yet.
    fn under_way(&self) -> u64;

    /// Takes out a chain that is done, if there is one. No system call.
    fn try_done(&mut self) -> Option<Done>;

    /// Takes out the next chain that is done, for a task. Nothing: none is under way.
    ///
    /// # Errors
    /// The node does not run any more.
    fn poll_done(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Done>, Error>>;

    /// The same on this thread.
    ///
    /// # Errors
    /// The node does not run any more; [`Error::TimedOut`].
    fn wait_done(&mut self, deadline: Option<Instant>) -> Result<Option<Done>, Error>;

    /// The same, on any executor.
    ///
    /// # Errors
    /// The node does not run any more.
    fn done(&mut self) -> impl Future<Output = Result<Option<Done>, Error>> + Send {
        poll_fn(|context| self.poll_done(context))
    }
}

/// An event queue that tells of DMA, too.
pub trait DmaEvents: EventQueue {
    /// What is registered.
    type Queue;

    /// From now on chains of this queue that are done are an event, with this token. If one is
    /// done already the event comes at once.
    ///
    /// # Errors
    /// The queue is of another node, or the node does not run any more.
    fn register_dma(&self, queue: &Self::Queue, token: u64) -> Result<(), Error>;

    /// From now on no event of it comes. Dropping the queue does the same.
    ///
    /// # Errors
    /// The node does not run any more.
    fn unregister_dma(&self, queue: &Self::Queue) -> Result<(), Error>;
}

pub(crate) mod sealed {
    use super::{Error, Fabric, Range};

    /// Memory that the processor reaches: a request is done by the one who asks for it.
    pub trait DirectMemory: Fabric {
        #[doc(hidden)]
        fn write_now(
            from: &Self::Local,
            range: Range<u64>,
            to: &Self::Remote,
            offset: u64,
        ) -> Result<(), Error>;
        #[doc(hidden)]
        fn read_now(
            from: &Self::Remote,
            offset: u64,
            into: &Self::Local,
            range: Range<u64>,
        ) -> Result<(), Error>;
        #[doc(hidden)]
        fn word_now(to: &Self::Remote, offset: u64, word: u64) -> Result<(), Error>;
        /// Are they of this node?
        #[doc(hidden)]
        fn owns(&self, local: Option<&Self::Local>, remote: &Self::Remote) -> bool;
        #[doc(hidden)]
        fn check_running(&self) -> Result<(), Error>;
        /// Threads that sleep at an event queue of this node look at it.
        #[doc(hidden)]
        fn wake_sleepers(&self);
    }
}

use sealed::DirectMemory;

/// Puts an event into a queue, and gives the task to wake.
type Notify = Box<dyn Fn() -> Option<Waker> + Send + Sync>;

/// The queue of a node whose processor is the DMA engine: see [`DmaQueue`].
pub struct DirectQueue<F: DirectMemory> {
    node: F,
    depth: usize,
    put: u64,
    /// Chains that are done and not taken out.
    done: VecDeque<Done>,
    events: Mutex<Option<Notify>>,
}

impl<F: DirectMemory> DirectQueue<F> {
    pub(crate) fn new(node: &F, depth: usize) -> Result<Self, Error> {
        node.check_running()?;
        let (node, depth) = (node.clone(), depth.max(1));
        Ok(Self { node, depth, put: 0, done: VecDeque::new(), events: Mutex::default() })
    }

    pub(crate) const fn node(&self) -> &F {
        &self.node
    }

    /// Its events go there; none: nowhere.
    pub(crate) fn attach(&self, events: Option<Notify>) {
        let before = std::mem::replace(&mut *locked(&self.events), events);
        drop(before);
        if !self.done.is_empty() {
            self.tell();
        }
    }

    fn tell(&self) {
        let told = locked(&self.events).as_ref().map(|notify| notify());
        if let Some(waker) = told {
            self.node.wake_sleepers();
            waker.into_iter().for_each(Waker::wake);
        }
    }

    fn carry_out(chain: &[Request<'_, F::Local, F::Remote>]) -> Result<(), Error> {
        chain.iter().try_for_each(|request| match request {
            Request::Write { from, range, to, offset } => {
                F::write_now(from, range.clone(), to, *offset)
            }
            Request::Read { from, offset, into, range } => {
                F::read_now(from, *offset, into, range.clone())
            }
            Request::Word { to, offset, word } => F::word_now(to, *offset, *word),
        })
    }
}

impl<F: DirectMemory> DmaQueue for DirectQueue<F> {
    type Local = F::Local;
    type Remote = F::Remote;

    fn push(&mut self, chain: &[Request<'_, F::Local, F::Remote>]) -> Result<u64, Error> {
        self.node.check_running()?;
        if chain.is_empty() {
            return Err(Error::BadConfig("a chain has at least one request"));
        }
        if chain.len() > self.depth {
            return Err(Error::TooLong { len: chain.len() as u64, most: self.depth as u64 });
        }
        for request in chain {
            let is_of_node = match request {
                Request::Write { from, to, .. } => self.node.owns(Some(from), to),
                Request::Read { from, into, .. } => self.node.owns(Some(into), from),
                Request::Word { to, .. } => self.node.owns(None, to),
            };
            if !is_of_node {
                return Err(Error::BadConfig("memory and windows belong to the queue's node"));
            }
            request.check_places()?;
        }
        if self.done.len() >= self.depth {
            return Err(Error::Busy);
        }
        let number = self.put;
        self.done.push_back(Done { chain: number, result: Self::carry_out(chain) });
        self.put += 1;
        self.tell();
        Ok(number)
    }

    fn under_way(&self) -> u64 {
        self.done.len() as u64
    }

    fn try_done(&mut self) -> Option<Done> {
        self.done.pop_front()
    }

    fn poll_done(&mut self, _: &mut Context<'_>) -> Poll<Result<Option<Done>, Error>> {
        Poll::Ready(self.wait_done(None))
    }

    /// What was asked for is done already.
    fn wait_done(&mut self, _: Option<Instant>) -> Result<Option<Done>, Error> {
        match self.try_done() {
            Some(done) => Ok(Some(done)),
            None => self.node.check_running().map(|()| None),
        }
    }
}

impl<F: DirectMemory> Debug for DirectQueue<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DirectQueue({} of {} chains done)", self.done.len(), self.put)
    }
}
