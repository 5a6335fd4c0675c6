//! [`Queue`]: the circular queue and both of its ends; and [`Subscription`]: the registration of
//! a tripwire with its queue, on fabrics whose writers check by themselves whether somebody
//! listens.
//!
//! While no event of a tripwire is queued, writers check for it; as soon as
//! one is queued they need not, since it stands for all that follows. When it
//! is taken out, writers check again, and only then the program looks at the
//! memory. So a stream of writes costs one firing for each look of the program, and
//! nothing piles up behind a slow program.
//!
//! What does not live here: where threads sleep.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Waker};

use landfall_transport::Bell;
use landfall_transport::driver::Interest;
use rtrb::{Consumer, Producer, RingBuffer};

use super::Event;
use crate::clan::Error;
use crate::runtime::locked;

/// What kind of source a registration is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Tripwire,
    Dma,
    OutOfBand,
}

/// A registered source, as its events travel.
#[derive(Debug)]
pub(crate) struct Source<T> {
    kind: Kind,
    token: u64,
    /// An event of it is in the queue.
    is_queued: AtomicBool,
    is_gone: AtomicBool,
    /// What the fabric wants to know of it when an event is taken out.
    pub(crate) what: T,
}

impl<T> Source<T> {
    pub(crate) fn is_queued(&self) -> bool {
        self.is_queued.load(SeqCst)
    }
}

/// Wakes the threads and the task that wait for a queue.
#[derive(Debug)]
pub(crate) struct QueueWaker {
    bell: Bell,
    waker: Mutex<Option<Waker>>,
    has_waker: AtomicBool,
}

impl QueueWaker {
    /// Rings the bell, and returns the task to wake.
    pub(crate) fn ring(&self) -> Option<Waker> {
        self.bell.ring();
        if !self.has_waker.load(SeqCst) {
            return None;
        }
        self.has_waker.store(false, SeqCst);
        locked(&self.waker).take()
    }
}

/// What both ends of a queue share.
#[derive(Debug)]
struct Common {
    /// Events that found no room since the user was told.
    lost: AtomicU64,
    call: Arc<QueueWaker>,
    /// Sources that are registered.
    sources: AtomicU32,
}

/// The fabric's side of a queue.
#[derive(Debug)]
struct Inlet<T> {
    ring: Producer<Arc<Source<T>>>,
    common: Arc<Common>,
}

/// Where the events of one source go.
#[derive(Debug)]
pub(crate) struct EventSender<T = ()> {
    inlet: Arc<Mutex<Inlet<T>>>,
    source: Arc<Source<T>>,
}

impl<T> Clone for EventSender<T> {
    fn clone(&self) -> Self {
        Self { inlet: Arc::clone(&self.inlet), source: Arc::clone(&self.source) }
    }
}

impl<T> EventSender<T> {
    /// Enqueues an event, unless one is queued. Returns the task to wake.
    pub(crate) fn notify(&self) -> Option<Waker> {
        if self.source.is_queued.swap(true, SeqCst) {
            return None;
        }
        let mut inlet = locked(&self.inlet);
        let Inlet { ring, common } = &mut *inlet;
        // Behind a gap nothing is queued until the user has seen the gap: so
        // it is reported in its place.
        let is_in = common.lost.load(Acquire) == 0 && ring.push(Arc::clone(&self.source)).is_ok();
        if !is_in {
            self.source.is_queued.store(false, SeqCst);
            common.lost.fetch_add(1, AcqRel);
        }
        common.call.ring()
    }

    /// The fabric itself had no room for events.
    pub(crate) fn record_overflow(&self, lost: u64) {
        let inlet = locked(&self.inlet);
        inlet.common.lost.fetch_add(lost, AcqRel);
        inlet.common.call.bell.ring();
    }

    /// The consumer is gone.
    pub(crate) fn is_abandoned(&self) -> bool {
        locked(&self.inlet).ring.is_abandoned()
    }

    pub(crate) const fn source(&self) -> &Arc<Source<T>> {
        &self.source
    }
}

/// A registration: kept with the source, ended by dropping it.
#[derive(Debug)]
pub(crate) struct Registration<T = ()> {
    source: Arc<Source<T>>,
    common: Arc<Common>,
}

impl<T> Drop for Registration<T> {
    fn drop(&mut self) {
        self.source.is_gone.store(true, SeqCst);
        self.common.sources.fetch_sub(1, Relaxed);
    }
}

/// The user's side of a queue.
#[derive(Debug)]
pub(crate) struct Queue<T = ()> {
    ring: Consumer<Arc<Source<T>>>,
    inlet: Arc<Mutex<Inlet<T>>>,
    common: Arc<Common>,
    /// The descriptor may be readable: it has to be read.
    is_armed: bool,
}

impl<T> Queue<T> {
    pub(crate) fn new(capacity: usize) -> Result<Self, Error> {
        let system = |source| Error::System { call: "eventfd", source };
        let (producer, ring) = RingBuffer::new(capacity.max(1));
        let call = QueueWaker {
            bell: Bell::new().map_err(system)?,
            waker: Mutex::default(),
            has_waker: AtomicBool::new(false),
        };
        let common = Arc::new(Common {
            lost: AtomicU64::new(0),
            call: Arc::new(call),
            sources: AtomicU32::new(0),
        });
        let inlet = Inlet { ring: producer, common: Arc::clone(&common) };
        Ok(Self { ring, inlet: Arc::new(Mutex::new(inlet)), common, is_armed: false })
    }

    /// One more source, and where its events go.
    pub(crate) fn register(
        &self,
        kind: Kind,
        token: u64,
        what: T,
    ) -> (EventSender<T>, Registration<T>) {
        let (is_queued, is_gone) = (AtomicBool::new(false), AtomicBool::new(false));
        let source = Arc::new(Source { kind, token, is_queued, is_gone, what });
        self.common.sources.fetch_add(1, Relaxed);
        let common = Arc::clone(&self.common);
        let registration = Registration { source: Arc::clone(&source), common };
        (EventSender { inlet: Arc::clone(&self.inlet), source }, registration)
    }

    pub(crate) fn sources(&self) -> u32 {
        self.common.sources.load(Relaxed)
    }

    /// Takes the next event out. `rearm` is called with its source, which from here on
    /// tells anew.
    pub(crate) fn next(&mut self, mut rearm: impl FnMut(&Arc<Source<T>>)) -> Option<Event> {
        while let Ok(source) = self.ring.pop() {
            self.disarm();
            // What happens from here on is another event. The fence: anyone who put
            // this one in did so after what it tells of, and the user looks at
            // that after this.
            source.is_queued.store(false, SeqCst);
            fence(SeqCst);
            if source.is_gone.load(SeqCst) {
                continue;
            }
            rearm(&source);
            let token = source.token;
            return Some(match source.kind {
                Kind::Tripwire => Event::Tripwire(token),
                Kind::Dma => Event::Dma(token),
                Kind::OutOfBand => Event::OutOfBand(token),
            });
        }
        if self.common.lost.load(Acquire) == 0 {
            return None;
        }
        self.disarm();
        match self.common.lost.swap(0, AcqRel) {
            0 => None,
            lost => Some(Event::Overflow { lost }),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ring.is_empty() && self.common.lost.load(Acquire) == 0
    }

    /// From now on the descriptor becomes readable as soon as there is an event. The
    /// caller looks whether there is one.
    pub(crate) fn arm(&mut self) {
        self.is_armed = true;
        self.common.call.bell.arm();
    }

    pub(crate) fn disarm(&mut self) {
        if self.is_armed {
            self.is_armed = false;
            self.common.call.bell.silence();
        }
    }

    /// From now on this task is woken. The caller looks whether there is an event.
    pub(crate) fn wake_task(&self, context: &Context<'_>) {
        let before = locked(&self.common.call.waker).replace(context.waker().clone());
        drop(before);
        self.common.call.has_waker.store(true, SeqCst);
        fence(SeqCst);
    }

    /// What wakes anyone who waits here, for when the node ends.
    pub(crate) fn call(&self) -> &Arc<QueueWaker> {
        &self.common.call
    }

    pub(crate) fn interest(&self) -> Interest {
        self.common.call.bell.interest()
    }
}

impl<T> AsFd for Queue<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.common.call.bell.as_fd()
    }
}

/// What reports its firings to a queue.
pub(crate) trait EventSource {
    /// While it lives, writers check; dropping it ends that.
    type ArmedGuard;

    /// From now on writers check. A touch that a look at the memory after this
    /// does not see is reported.
    fn listen(&self) -> Self::ArmedGuard;
}

/// Whether a tripwire is registered, and with what.
pub(crate) struct Subscription<W: EventSource> {
    /// Makes the check free for tripwires that are not registered.
    is_there: AtomicBool,
    place: Mutex<Option<Place<W>>>,
}

struct Place<W: EventSource> {
    event_sender: EventSender<Weak<W>>,
    _registration: Registration<Weak<W>>,
    guard: Option<W::ArmedGuard>,
}

impl<W: EventSource> Default for Subscription<W> {
    fn default() -> Self {
        Self { is_there: AtomicBool::new(false), place: Mutex::default() }
    }
}

impl<W: EventSource> Subscription<W> {
    /// Reports to this queue from now on.
    pub(crate) fn begin(
        &self,
        wire: &W,
        event_sender: EventSender<Weak<W>>,
        registration: Registration<Weak<W>>,
    ) {
        let mut place = locked(&self.place);
        let guard = Some(wire.listen());
        let before = place.replace(Place { event_sender, _registration: registration, guard });
        self.is_there.store(true, SeqCst);
        drop(place);
        drop(before);
    }

    /// Reports to no queue any more.
    pub(crate) fn end(&self) {
        let mut place = locked(&self.place);
        self.is_there.store(false, SeqCst);
        let before = place.take();
        drop(place);
        drop(before);
    }

    /// It was touched. Returns whether a queue was notified, and the task to
    /// wake.
    pub(crate) fn notify(&self) -> (bool, Option<Waker>) {
        if !self.is_there.load(SeqCst) {
            return (false, None);
        }
        let mut slot = locked(&self.place);
        let Some(place) = slot.as_mut() else { return (false, None) };
        if place.event_sender.is_abandoned() {
            self.is_there.store(false, SeqCst);
            *slot = None;
            return (false, None);
        }
        let waker = place.event_sender.notify();
        // Where it was taken out meanwhile, `rearm` waits for this lock and listens anew.
        if place.event_sender.source().is_queued() {
            place.guard = None;
        }
        (true, waker)
    }

    /// Its event was taken out: the next touch is an event again.
    pub(crate) fn rearm(&self, wire: &W, source: &Arc<Source<Weak<W>>>) {
        let mut slot = locked(&self.place);
        let Some(place) = slot.as_mut() else { return };
        if Arc::ptr_eq(place.event_sender.source(), source)
            && !source.is_queued()
            && place.guard.is_none()
        {
            place.guard = Some(wire.listen());
        }
    }
}

impl<W: EventSource> fmt::Debug for Subscription<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Subscription({})", self.is_there.load(SeqCst))
    }
}
