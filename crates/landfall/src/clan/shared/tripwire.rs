//! [`SharedTripwire`]: fires when another process touches chosen memory.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::Ordering::{AcqRel, Acquire, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU8, fence};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use arrayvec::ArrayVec;
use landfall_transport::shm::watched::{Armed, Touch};

use super::aperture::{Aperture, words_of};
use super::trouble::locked;
use crate::clan::Access;
use crate::clan::events::{Hearing, Subscription};
use crate::clan::fabric::Tripwire;

const IDLE: u8 = 0;
const ARMED: u8 = 1;
const FIRED: u8 = 2;

/// A tripwire of a [`Shared`](super::Shared) node.
pub struct SharedTripwire(pub(super) Arc<Wire>);

/// What the node knows of it.
pub(super) struct Wire {
    pub(super) aperture: Arc<Aperture>,
    pub(super) range: Range<u64>,
    pub(super) access: Access,
    id: u64,
    state: AtomicU8,
    /// The peer that it was made for is lost.
    is_bereft: AtomicBool,
    /// While it is armed.
    armed: Mutex<Option<Ear>>,
    waker: Mutex<Option<Waker>>,
    /// The event queue that it is registered with.
    subscription: Subscription<Self>,
}

/// What of the filter is set, for as long as this is there.
pub(super) struct Ear {
    aperture: Arc<Aperture>,
    tokens: ArrayVec<Armed, 2>,
}

impl Ear {
    /// Sets the bits of the filter, with the full fence that follows them.
    fn open(aperture: &Arc<Aperture>, range: &Range<u64>, access: Access) -> Self {
        let touches: &[Touch] = match access {
            Access::Read => &[Touch::Read],
            Access::Write => &[Touch::Write],
            Access::Both => &[Touch::Read, Touch::Write],
        };
        let mut tokens = ArrayVec::new();
        for touch in touches {
            // Within the memory, as was checked; there is room for all of them.
            if let Ok(token) = aperture.watched.arm(range.clone(), *touch) {
                let _ = tokens.try_push(token);
            }
        }
        fence(SeqCst);
        Self { aperture: Arc::clone(aperture), tokens }
    }
}

impl Drop for Ear {
    /// Writers need not look out for it any more.
    fn drop(&mut self) {
        for token in self.tokens.drain(..) {
            self.aperture.watched.disarm(token);
        }
    }
}

impl Wire {
    pub(super) fn new(
        aperture: &Arc<Aperture>,
        range: Range<u64>,
        access: Access,
        id: u64,
    ) -> Arc<Self> {
        let wire = Arc::new(Self {
            aperture: Arc::clone(aperture),
            range,
            access,
            id,
            state: AtomicU8::new(IDLE),
            is_bereft: AtomicBool::new(false),
            armed: Mutex::default(),
            waker: Mutex::default(),
            subscription: Subscription::default(),
        });
        locked(&aperture.wires).insert(&wire.words(), id, Arc::downgrade(&wire));
        wire
    }

    fn words(&self) -> Range<u64> {
        words_of(self.range.clone())
    }

    /// Something touched it: it fires if it is armed. True if somebody has to be told.
    pub(super) fn fire(&self) -> bool {
        let fired = self.state.compare_exchange(ARMED, FIRED, AcqRel, Acquire).is_ok();
        if fired {
            let ear = locked(&self.armed).take();
            drop(ear);
        }
        fired
    }

    /// Tells the queue that it is registered with. Gives whether there is one.
    pub(super) fn tell_queue(&self) -> bool {
        let (is_told, waker) = self.subscription.tell();
        if let Some(waker) = waker {
            waker.wake();
        }
        is_told
    }

    pub(super) const fn subscription(&self) -> &Subscription<Self> {
        &self.subscription
    }

    /// The peer that it was made for is lost. Who waits has to be told.
    pub(super) fn bereave(&self) {
        self.is_bereft.store(true, SeqCst);
    }

    /// Wakes the task that waits for it. No lock of the node is held meanwhile.
    pub(super) fn tell_task(&self) {
        let waker = locked(&self.waker).take();
        if let Some(waker) = waker {
            self.aperture.node.count_tasks(-1);
            waker.wake();
        }
    }

    pub(super) fn is_fired(&self) -> bool {
        self.state.load(Acquire) == FIRED || self.is_bereft.load(Acquire)
    }
}

impl Hearing for Wire {
    type Ear = Ear;

    fn listen(&self) -> Ear {
        Ear::open(&self.aperture, &self.range, self.access)
    }
}

impl Tripwire for SharedTripwire {
    fn arm(&self) {
        let wire = &self.0;
        // What came before is not what it waits for.
        wire.aperture.node.drain();
        wire.state.store(ARMED, SeqCst);
        locked(&wire.armed).get_or_insert_with(|| wire.listen());
        fence(SeqCst);
    }

    fn disarm(&self) {
        self.0.state.store(IDLE, SeqCst);
        let ear = locked(&self.0.armed).take();
        drop(ear);
    }

    fn has_fired(&self) -> bool {
        if !self.0.is_fired() {
            self.0.aperture.node.drain();
        }
        self.0.is_fired()
    }

    fn poll_fired(&self, context: &mut Context<'_>) -> Poll<()> {
        let node = &self.0.aperture.node;
        // In this order: whoever fires it after the look finds the waker, and whoever
        // touches it after the look rings.
        let before = locked(&self.0.waker).replace(context.waker().clone());
        if before.is_none() {
            node.count_tasks(1);
        }
        node.listen();
        if self.has_fired() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for SharedTripwire {
    fn drop(&mut self) {
        self.disarm();
        self.0.subscription.end();
        if locked(&self.0.waker).take().is_some() {
            self.0.aperture.node.count_tasks(-1);
        }
        locked(&self.0.aperture.wires).remove(&self.0.words(), self.0.id);
        self.0.aperture.node.forget_tripwire();
    }
}

impl fmt::Debug for SharedTripwire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedTripwire({:?} of {:?})", self.0.range, self.0.aperture.cookie)
    }
}
