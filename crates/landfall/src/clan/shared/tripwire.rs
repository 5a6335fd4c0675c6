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
    /// What of the filter is set for it.
    tokens: Mutex<ArrayVec<Armed, 2>>,
    waker: Mutex<Option<Waker>>,
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
            tokens: Mutex::default(),
            waker: Mutex::default(),
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
            self.release();
        }
        fired
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

    /// Writers need not look out for it any more.
    fn release(&self) {
        let tokens = std::mem::take(&mut *locked(&self.tokens));
        for token in tokens {
            self.aperture.watched.disarm(token);
        }
    }

    /// Sets the bits of the filter, with the full fence that follows them.
    fn set_filter(&self) {
        let touches: &[Touch] = match self.access {
            Access::Read => &[Touch::Read],
            Access::Write => &[Touch::Write],
            Access::Both => &[Touch::Read, Touch::Write],
        };
        let mut tokens = locked(&self.tokens);
        if tokens.is_empty() {
            for touch in touches {
                // Within the memory, as was checked; there is room for all of them.
                if let Ok(token) = self.aperture.watched.arm(self.range.clone(), *touch) {
                    let _ = tokens.try_push(token);
                }
            }
        }
    }
}

impl Tripwire for SharedTripwire {
    fn arm(&self) {
        let wire = &self.0;
        // What came before is not what it waits for.
        wire.aperture.node.drain();
        wire.state.store(ARMED, SeqCst);
        wire.set_filter();
        fence(SeqCst);
    }

    fn disarm(&self) {
        self.0.state.store(IDLE, SeqCst);
        self.0.release();
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
