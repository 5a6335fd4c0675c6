//! [`Subscription`]: what a tripwire has to do with its queue, where writers look
//! for themselves whether somebody listens.
//!
//! While no event of a tripwire waits, writers look out for it; from the moment on
//! when one is in the queue they need not, for that one tells of all that comes. It
//! is taken out, writers look out again, and only then the program looks at the
//! memory. So a stream of writes costs one firing for each look of the program, and
//! no news pile up behind a program that is slow.

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, Weak};
use std::task::Waker;

use super::{Outlet, Registration, Source};
use crate::runtime::locked;

/// What can be told of when it is touched.
pub(crate) trait Hearing {
    /// While it is there, writers look out; dropping it ends that.
    type Ear;

    /// From now on writers look out. A touch that a look at the memory behind this
    /// does not see is told.
    fn listen(&self) -> Self::Ear;
}

/// Whether a tripwire is registered, and with what.
pub(crate) struct Subscription<W: Hearing> {
    /// A look that costs nothing, for those that are not registered.
    is_there: AtomicBool,
    place: Mutex<Option<Place<W>>>,
}

struct Place<W: Hearing> {
    outlet: Outlet<Weak<W>>,
    _registration: Registration<Weak<W>>,
    ear: Option<W::Ear>,
}

impl<W: Hearing> Default for Subscription<W> {
    fn default() -> Self {
        Self { is_there: AtomicBool::new(false), place: Mutex::default() }
    }
}

impl<W: Hearing> Subscription<W> {
    /// Tells this queue from now on.
    pub(crate) fn begin(
        &self,
        wire: &W,
        outlet: Outlet<Weak<W>>,
        registration: Registration<Weak<W>>,
    ) {
        let mut place = locked(&self.place);
        let ear = Some(wire.listen());
        let before = place.replace(Place { outlet, _registration: registration, ear });
        self.is_there.store(true, SeqCst);
        drop(place);
        drop(before);
    }

    /// Tells no queue any more.
    pub(crate) fn end(&self) {
        let mut place = locked(&self.place);
        self.is_there.store(false, SeqCst);
        let before = place.take();
        drop(place);
        drop(before);
    }

    /// It was touched. Gives whether somebody was told, and the task that has to be
    /// woken.
    pub(crate) fn tell(&self) -> (bool, Option<Waker>) {
        if !self.is_there.load(SeqCst) {
            return (false, None);
        }
        let mut slot = locked(&self.place);
        let Some(place) = slot.as_mut() else { return (false, None) };
        if place.outlet.is_abandoned() {
            self.is_there.store(false, SeqCst);
            *slot = None;
            return (false, None);
        }
        let waker = place.outlet.tell();
        // Where it was taken out meanwhile, `hear` waits for this lock and listens anew.
        if place.outlet.source().is_queued() {
            place.ear = None;
        }
        (true, waker)
    }

    /// Its event was taken out: from here on it tells anew.
    pub(crate) fn hear(&self, wire: &W, source: &Arc<Source<Weak<W>>>) {
        let mut slot = locked(&self.place);
        let Some(place) = slot.as_mut() else { return };
        if Arc::ptr_eq(place.outlet.source(), source) && !source.is_queued() && place.ear.is_none()
        {
            place.ear = Some(wire.listen());
        }
    }
}

impl<W: Hearing> fmt::Debug for Subscription<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Subscription({})", self.is_there.load(SeqCst))
    }
}
