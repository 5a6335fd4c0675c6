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

use std::future::poll_fn;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use landfall_transport::Bell;
use landfall_transport::driver::Interest;
use rtrb::{Consumer, Producer, RingBuffer};

use super::core::NodeHandle;
use super::dma::DmaQueue;
use super::endpoint::Endpoint;
use super::tripwire::Tripwire;
use crate::clan::Error;
use crate::drive::locked;

/// What is in the queue. The token is what the source was registered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A tripwire fired, once or more.
    Tripwire(u64),
    /// DMA chains of a queue are done: [`DmaQueue::try_done`] says which.
    Dma(u64),
    /// Messages, or news of connections, wait at an endpoint.
    OutOfBand(u64),
    /// The queue was too short: here so many events are missing. What is behind
    /// them is still there to be asked.
    Overflow {
        /// How many.
        lost: u64,
    },
}

/// What kind of source a registration is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Tripwire,
    Dma,
    OutOfBand,
}

/// A registered source, as its events travel.
#[derive(Debug)]
pub(crate) struct Registered {
    kind: Kind,
    token: u64,
    /// An event of it is in the queue.
    is_queued: AtomicBool,
    is_gone: AtomicBool,
}

/// What both sides of a queue know.
#[derive(Debug)]
struct Common {
    /// Events that found no room since the user was told.
    lost: AtomicU64,
    bell: Bell,
    waker: Mutex<Option<Waker>>,
    has_waker: AtomicBool,
    /// Sources that are registered.
    sources: AtomicU32,
}

/// The node's side of a queue.
#[derive(Debug)]
struct Inlet {
    ring: Producer<Arc<Registered>>,
    common: Arc<Common>,
}

/// Where the events of one source go. It is held by what the source is in the
/// node's core, and used under its lock.
#[derive(Clone, Debug)]
pub(crate) struct Outlet {
    inlet: Arc<Mutex<Inlet>>,
    source: Arc<Registered>,
}

impl Outlet {
    /// Something happened. Gives whom to wake.
    pub(crate) fn tell(&self) -> Option<Waker> {
        if self.source.is_queued.swap(true, Ordering::SeqCst) {
            return None;
        }
        let mut inlet = locked(&self.inlet);
        let Inlet { ring, common } = &mut *inlet;
        // Behind a gap nothing is put in until the user has heard of the gap: so
        // it is told in its place.
        let is_in =
            common.lost.load(Ordering::Acquire) == 0 && ring.push(Arc::clone(&self.source)).is_ok();
        if !is_in {
            self.source.is_queued.store(false, Ordering::SeqCst);
            common.lost.fetch_add(1, Ordering::AcqRel);
        }
        common.bell.ring();
        if !common.has_waker.load(Ordering::SeqCst) {
            return None;
        }
        common.has_waker.store(false, Ordering::SeqCst);
        locked(&common.waker).take()
    }

    /// The engine itself had no room for events.
    pub(crate) fn tell_lost(&self, lost: u64) {
        let inlet = locked(&self.inlet);
        inlet.common.lost.fetch_add(lost, Ordering::AcqRel);
        inlet.common.bell.ring();
    }
}

/// A registration: kept with the source, ended by dropping it.
#[derive(Debug)]
pub(crate) struct Registration {
    source: Arc<Registered>,
    common: Arc<Common>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.source.is_gone.store(true, Ordering::SeqCst);
        self.common.sources.fetch_sub(1, Ordering::Relaxed);
    }
}

/// See the module.
#[derive(Debug)]
pub struct Events {
    handle: NodeHandle,
    ring: Consumer<Arc<Registered>>,
    inlet: Arc<Mutex<Inlet>>,
    common: Arc<Common>,
    /// The descriptor may be readable: it has to be read.
    is_armed: bool,
}

/// An event source: [`Tripwire`], [`DmaQueue`] or [`Endpoint`].
pub trait Source: sealed::Source {}
impl Source for Tripwire {}
impl Source for DmaQueue {}
impl Source for Endpoint {}

pub(crate) mod sealed {
    use super::{Error, Kind, NodeHandle, Outlet, Registration};

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
        fn attach(&self, to: Option<(Outlet, Registration)>) -> Result<(), Error>;
    }
}

impl Events {
    pub(crate) fn new(handle: &NodeHandle, capacity: usize) -> Result<Self, Error> {
        let system = |source| Error::System { call: "eventfd", source };
        let (producer, ring) = RingBuffer::new(capacity.max(1));
        let common = Arc::new(Common {
            lost: AtomicU64::new(0),
            bell: Bell::new().map_err(system)?,
            waker: Mutex::default(),
            has_waker: AtomicBool::new(false),
            sources: AtomicU32::new(0),
        });
        let inlet = Inlet { ring: producer, common: Arc::clone(&common) };
        let inlet = Arc::new(Mutex::new(inlet));
        Ok(Self { handle: handle.clone(), ring, inlet, common, is_armed: false })
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
        let registered = Arc::new(Registered {
            kind: source.kind(),
            token,
            is_queued: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
        });
        self.common.sources.fetch_add(1, Ordering::Relaxed);
        let registration =
            Registration { source: Arc::clone(&registered), common: Arc::clone(&self.common) };
        let outlet = Outlet { inlet: Arc::clone(&self.inlet), source: registered };
        source.attach(Some((outlet, registration)))
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
        self.common.sources.load(Ordering::Relaxed)
    }

    /// Takes the next event out, if there is one. No system call, unless the
    /// descriptor was armed before.
    #[expect(clippy::should_implement_trait, reason = "None is not the end of it")]
    pub fn next(&mut self) -> Option<Event> {
        while let Ok(source) = self.ring.pop() {
            self.disarm();
            // What happens from here on is another event. The fence: whoever put
            // this one in did so after what it tells of, and the user looks at
            // that after this.
            source.is_queued.store(false, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            if source.is_gone.load(Ordering::SeqCst) {
                continue;
            }
            let token = source.token;
            return Some(match source.kind {
                Kind::Tripwire => Event::Tripwire(token),
                Kind::Dma => Event::Dma(token),
                Kind::OutOfBand => Event::OutOfBand(token),
            });
        }
        if self.common.lost.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.disarm();
        match self.common.lost.swap(0, Ordering::AcqRel) {
            0 => None,
            lost => Some(Event::Overflow { lost }),
        }
    }

    /// Is nothing in the queue?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty() && self.common.lost.load(Ordering::Acquire) == 0
    }

    /// Call this before you sleep at the queue's descriptor. True: from now on the
    /// descriptor becomes readable as soon as there is an event. False: there is
    /// one, do not sleep. While it is not armed no event costs a system call.
    ///
    /// [`next`](Self::next) ends it, once it gives an event.
    #[must_use = "false: there is an event, and the descriptor need not become readable"]
    pub fn arm(&mut self) -> bool {
        self.is_armed = true;
        self.common.bell.arm();
        if !self.is_empty() {
            self.disarm();
            return false;
        }
        // Whoever sleeps there does not drive.
        self.handle.hand_over();
        true
    }

    fn disarm(&mut self) {
        if self.is_armed {
            self.is_armed = false;
            self.common.bell.silence();
        }
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
        *locked(&self.common.waker) = Some(context.waker().clone());
        self.common.has_waker.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
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
        self.is_armed = true;
        self.common.bell.arm();
        let descriptors: Vec<Interest> =
            others.iter().copied().chain([self.common.bell.interest()]).collect();
        let slept = self.handle.select(&descriptors, deadline, || !self.is_empty());
        self.disarm();
        slept
    }

    /// What to wait for: for those who poll descriptors themselves.
    #[must_use]
    pub fn interest(&self) -> Interest {
        self.common.bell.interest()
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.common.bell.as_fd()
    }
}

impl AsRawFd for Events {
    fn as_raw_fd(&self) -> RawFd {
        self.common.bell.as_fd().as_raw_fd()
    }
}
