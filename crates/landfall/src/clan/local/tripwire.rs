//! Tripwires of a [`Threads`](super::Threads) node, and [`ThreadsEvents`]: what they tell,
//! in one queue. Anyone who writes puts the event in.

use std::fmt;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU8, fence};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::memory::Aperture;
use super::{Node, Threads};
use crate::clan::actions::{ActionTripwire, Mark, shared_words};
use crate::clan::dma::{DirectQueue, DmaEvents};
use crate::clan::events::{EventQueue, EventSource, Kind, Queue, Subscription};
use crate::clan::{Access, Error, Event, Tripwire, WORD};
use crate::runtime::locked;

const IDLE: u8 = 0;
const ARMED: u8 = 1;
const FIRED: u8 = 2;

/// A tripwire of a [`Threads`](super::Threads) node.
pub struct ThreadsTripwire(Arc<Wire>);

impl ThreadsTripwire {
    pub(super) const fn new(wire: Arc<Wire>) -> Self {
        Self(wire)
    }

    pub(super) const fn wire(&self) -> &Arc<Wire> {
        &self.0
    }
}

/// While it is there, writers of an aperture look at its tripwires.
pub(super) struct ArmedGuard(Arc<Aperture>);

impl Drop for ArmedGuard {
    fn drop(&mut self) {
        self.0.armed().fetch_sub(1, AcqRel);
    }
}

pub(super) struct Wire {
    owner: Arc<Node>,
    aperture: Arc<Aperture>,
    touches: Touches,
    /// What it leaves behind, if it wakes nobody.
    mark: Option<Arc<Mark>>,
    /// While a tripwire with a mark is armed.
    guard: Mutex<Option<ArmedGuard>>,
    state: AtomicU8,
    /// The peer that it was made for is lost.
    is_peer_lost: AtomicBool,
    waker: Mutex<Option<Waker>>,
    /// The event queue that it is registered with.
    subscription: Subscription<Self>,
}

/// What a tripwire hears of.
#[derive(Debug)]
pub(super) struct Touches {
    /// By their numbers.
    pub(super) words: Range<u64>,
    pub(super) access: Access,
    /// Only by its own node, or by anyone.
    pub(super) are_own: bool,
}

impl Wire {
    pub(super) fn new(
        owner: &Arc<Node>,
        aperture: &Arc<Aperture>,
        touches: Touches,
        mark: Option<Arc<Mark>>,
    ) -> Self {
        Self {
            owner: Arc::clone(owner),
            aperture: Arc::clone(aperture),
            touches,
            mark,
            guard: Mutex::default(),
            state: AtomicU8::new(IDLE),
            is_peer_lost: AtomicBool::new(false),
            waker: Mutex::default(),
            subscription: Subscription::default(),
        }
    }

    /// How many of its words such an access of this node to these bytes touches.
    pub(super) fn touched_words(&self, ranges: &[Range<u64>], access: Access, by: &Node) -> u64 {
        let is_own = std::ptr::eq(&raw const *self.owner, by);
        if !self.touches.access.hears(access) || (self.touches.are_own && !is_own) {
            return 0;
        }
        let words = |range: &Range<u64>| range.start / WORD..range.end.div_ceil(WORD);
        ranges.iter().map(|range| shared_words(&words(range), &self.touches.words)).sum()
    }

    /// Changes the state, and the writer's counter with it.
    fn become_unarmed(&self, state: u8) -> bool {
        let was_armed = self.state.compare_exchange(ARMED, state, AcqRel, Acquire).is_ok();
        if was_armed {
            self.aperture.armed().fetch_sub(1, AcqRel);
        }
        was_armed
    }

    /// This many of its words were touched.
    pub(super) fn fire(&self, words: u64) {
        if let Some(mark) = &self.mark {
            if mark.fire(words) {
                let guard = locked(&self.guard).take();
                drop(guard);
            }
            return;
        }
        let is_told = self.notify_queue();
        if self.become_unarmed(FIRED) {
            self.wake_waiter();
        } else if is_told {
            self.owner.wake_threads();
        }
    }

    pub(super) fn is_of(&self, node: &Arc<Node>) -> bool {
        Arc::ptr_eq(&self.owner, node)
    }

    pub(super) fn has_fired(&self) -> bool {
        self.state.load(Acquire) == FIRED || self.is_peer_lost.load(Acquire)
    }

    pub(super) const fn subscription(&self) -> &Subscription<Self> {
        &self.subscription
    }

    /// Notifies the queue that it is registered with. Returns whether there is one.
    pub(super) fn notify_queue(&self) -> bool {
        let (is_told, waker) = self.subscription.notify();
        if let Some(waker) = waker {
            waker.wake();
        }
        is_told
    }

    /// The peer that it was made for is lost.
    pub(super) fn mark_peer_lost(&self) {
        self.is_peer_lost.store(true, SeqCst);
        self.notify_queue();
        self.wake_waiter();
    }

    /// Wakes its waiter, which looks again.
    pub(super) fn wake_waiter(&self) {
        let waker = locked(&self.waker).take();
        if let Some(waker) = waker {
            waker.wake();
        }
        self.owner.wake_threads();
    }
}

impl EventSource for Wire {
    type ArmedGuard = ArmedGuard;

    fn listen(&self) -> ArmedGuard {
        self.aperture.armed().fetch_add(1, SeqCst);
        fence(SeqCst);
        ArmedGuard(Arc::clone(&self.aperture))
    }
}

impl Tripwire for ThreadsTripwire {
    fn arm(&self) {
        // Counted first, so that anyone who fires it finds it counted.
        self.0.aperture.armed().fetch_add(1, SeqCst);
        if self.0.state.swap(ARMED, SeqCst) == ARMED {
            self.0.aperture.armed().fetch_sub(1, SeqCst);
        }
        fence(SeqCst);
    }

    fn disarm(&self) {
        if !self.0.become_unarmed(IDLE) {
            self.0.state.store(IDLE, Release);
        }
    }

    fn has_fired(&self) -> bool {
        self.0.has_fired()
    }

    fn poll_fired(&self, context: &mut Context<'_>) -> Poll<()> {
        // In this order: anyone who fires it after the look finds the waker.
        *locked(&self.0.waker) = Some(context.waker().clone());
        fence(SeqCst);
        if self.has_fired() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for ThreadsTripwire {
    fn drop(&mut self) {
        self.disarm();
        self.0.subscription.end();
    }
}

impl fmt::Debug for ThreadsTripwire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ThreadsTripwire({:?} of {:?})", self.0.touches, self.0.aperture.cookie())
    }
}

/// A tripwire of a [`Threads`](super::Threads) node that leaves a mark: see
/// [`Actions`](crate::clan::Actions).
pub struct ThreadsActionTripwire {
    wire: Arc<Wire>,
    mark: Arc<Mark>,
}

impl ThreadsActionTripwire {
    /// The wire has this mark.
    pub(super) fn armed(wire: Arc<Wire>, mark: Arc<Mark>) -> Self {
        let tripwire = Self { wire, mark };
        tripwire.start();
        tripwire
    }

    fn start(&self) {
        let mut guard = locked(&self.wire.guard);
        self.mark.set_armed(true);
        guard.get_or_insert_with(|| self.wire.listen());
    }
}

impl ActionTripwire for ThreadsActionTripwire {
    fn arm(&self) -> Result<(), Error> {
        self.start();
        Ok(())
    }

    fn disarm(&self) {
        self.mark.set_armed(false);
        let guard = locked(&self.wire.guard).take();
        drop(guard);
    }

    fn is_armed(&self) -> bool {
        self.mark.is_armed()
    }

    fn firings(&self) -> u64 {
        self.mark.firings()
    }
}

impl Drop for ThreadsActionTripwire {
    fn drop(&mut self) {
        self.disarm();
        self.mark.end();
    }
}

impl fmt::Debug for ThreadsActionTripwire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ThreadsActionTripwire({:?}, {:?})", self.wire.touches, self.mark.action)
    }
}

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
        let (event_sender, registration) =
            self.queue.register(Kind::Tripwire, token, Arc::downgrade(wire));
        wire.subscription().begin(wire, event_sender, registration);
        if wire.has_fired() {
            wire.notify_queue();
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
                wire.subscription().rearm(&wire, source);
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

impl DmaEvents for ThreadsEvents {
    type Queue = DirectQueue<Threads>;

    fn register_dma(&self, queue: &DirectQueue<Threads>, token: u64) -> Result<(), Error> {
        if !Arc::ptr_eq(&queue.node().0.0, &self.node) {
            return Err(Error::BadConfig("an event source belongs to the node of its queue"));
        }
        let (sender, registration) = self.queue.register(Kind::Dma, token, Weak::new());
        queue.attach(Some(Box::new(move || {
            let _kept = &registration;
            sender.notify()
        })));
        Ok(())
    }

    fn unregister_dma(&self, queue: &DirectQueue<Threads>) -> Result<(), Error> {
        queue.attach(None);
        Ok(())
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
