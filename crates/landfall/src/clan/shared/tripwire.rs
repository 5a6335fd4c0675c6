//! [`SharedTripwire`]: fires when another process touches chosen memory; and [`Wires`]: which
//! tripwires a touch meets, at a cost that does not grow with their number.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, fence};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};

use arrayvec::ArrayVec;
use landfall_transport::shm::watched::{Armed, Touch};

use super::aperture::{Aperture, words_of};
use super::host::Window;
use super::node::Node;
use super::trouble::locked;
use crate::clan::actions::{Action, ActionRule, ActionTripwire, Mark, Marks, shared_words};
use crate::clan::events::{EventSource, Subscription};
use crate::clan::fabric::Tripwire;
use crate::clan::{Access, Error};

const IDLE: u8 = 0;
const ARMED: u8 = 1;
const FIRED: u8 = 2;

/// A tripwire of a [`SharedNode`](super::SharedNode).
pub struct SharedTripwire(pub(super) Arc<Wire>);

/// Memory that is watched.
#[derive(Clone)]
pub(super) enum Place {
    /// Of this node, touched by others.
    Local(Arc<Aperture>),
    /// Of another, touched by this node.
    Remote(Arc<Node>, Arc<Window>),
}

impl Place {
    pub(super) fn node(&self) -> &Arc<Node> {
        match self {
            Self::Local(aperture) => &aperture.node,
            Self::Remote(node, _) => node,
        }
    }

    fn wires(&self) -> MutexGuard<'_, Wires<Weak<Wire>>> {
        match self {
            Self::Local(aperture) => locked(&aperture.wires),
            Self::Remote(_, window) => locked(&window.own.wires),
        }
    }

    /// Reads what others report. What this node touches needs no report.
    pub(super) fn drain(&self) {
        if let Self::Local(aperture) = self {
            aperture.drain();
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(aperture) => write!(f, "{:?}", aperture.cookie),
            Self::Remote(_, window) => write!(f, "window {}", window.tag),
        }
    }
}

/// Tripwires for memory of another node that this node touches.
#[derive(Default)]
pub(super) struct OwnTouches {
    /// How many are armed: what each write looks at.
    armed: AtomicUsize,
    wires: Mutex<Wires<Weak<Wire>>>,
}

impl OwnTouches {
    #[inline]
    pub(super) fn are_watched(&self) -> bool {
        self.armed.load(Relaxed) != 0
    }

    pub(super) fn touch(&self, words: &Range<u64>, access: Access, fired: &mut Vec<Arc<Wire>>) {
        touch(&locked(&self.wires), words, access, fired);
    }
}

/// Fires the marks that lie over these words, and collects the wires that wake somebody.
pub(super) fn touch(
    wires: &Wires<Weak<Wire>>,
    words: &Range<u64>,
    access: Access,
    fired: &mut Vec<Arc<Wire>>,
) {
    let met = wires.touched(words).filter_map(Weak::upgrade);
    let met = met.filter(|wire| wire.access.hears(access));
    fired.extend(met.filter(|wire| !wire.leave_mark(shared_words(words, &wire.words()))));
}

/// The same where it is not known what was touched.
pub(super) fn touch_all(wires: &Wires<Weak<Wire>>, fired: &mut Vec<Arc<Wire>>) {
    let all = wires.all().filter_map(Weak::upgrade);
    fired.extend(all.filter(|wire| !wire.leave_mark(1)));
}

/// What the node knows of it.
pub(super) struct Wire {
    pub(super) place: Place,
    pub(super) range: Range<u64>,
    pub(super) access: Access,
    /// What it leaves behind, if it wakes nobody.
    mark: Option<Arc<Mark>>,
    id: u64,
    state: AtomicU8,
    /// The peer that it was made for is lost.
    is_peer_lost: AtomicBool,
    /// While it is armed.
    armed: Mutex<Option<ArmedGuard>>,
    waker: Mutex<Option<Waker>>,
    /// The event queue that it is registered with.
    subscription: Subscription<Self>,
}

/// Anyone who touches the memory looks for a tripwire, for as long as this is there.
pub(super) enum ArmedGuard {
    /// What of the filter is set.
    Local { aperture: Arc<Aperture>, tokens: ArrayVec<Armed, 2> },
    /// This node counts it.
    Remote(Arc<Window>),
}

impl ArmedGuard {
    /// Sets the bits of the filter, with the full fence that follows them.
    fn open(place: &Place, range: &Range<u64>, access: Access) -> Self {
        let aperture = match place {
            Place::Local(aperture) => aperture,
            Place::Remote(_, window) => {
                window.own.armed.fetch_add(1, SeqCst);
                return Self::Remote(Arc::clone(window));
            }
        };
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
        Self::Local { aperture: Arc::clone(aperture), tokens }
    }
}

impl Drop for ArmedGuard {
    /// Writers need not check for it any more.
    fn drop(&mut self) {
        match self {
            Self::Local { aperture, tokens } => {
                for token in tokens.drain(..) {
                    aperture.watched.disarm(token);
                }
            }
            Self::Remote(window) => _ = window.own.armed.fetch_sub(1, SeqCst),
        }
    }
}

impl Wire {
    pub(super) fn new(
        place: Place,
        range: Range<u64>,
        access: Access,
        mark: Option<Arc<Mark>>,
    ) -> Result<Arc<Self>, Error> {
        let id = place.node().new_tripwire()?;
        let wire = Arc::new(Self {
            place,
            range,
            access,
            mark,
            id,
            state: AtomicU8::new(IDLE),
            is_peer_lost: AtomicBool::new(false),
            armed: Mutex::default(),
            waker: Mutex::default(),
            subscription: Subscription::default(),
        });
        wire.place.wires().insert(&wire.words(), id, Arc::downgrade(&wire));
        Ok(wire)
    }

    /// This many of its words were touched: false if that wakes somebody.
    fn leave_mark(&self, words: u64) -> bool {
        let Some(mark) = &self.mark else { return false };
        if mark.fire(words) {
            let guard = locked(&self.armed).take();
            drop(guard);
        }
        true
    }

    fn words(&self) -> Range<u64> {
        words_of(self.range.clone())
    }

    /// Fires it, if it is armed. True if its waiters have to be woken.
    pub(super) fn fire(&self) -> bool {
        let fired = self.state.compare_exchange(ARMED, FIRED, AcqRel, Acquire).is_ok();
        if fired {
            let ear = locked(&self.armed).take();
            drop(ear);
        }
        fired
    }

    /// Notifies the queue that it is registered with. Returns whether there is one.
    pub(super) fn notify_queue(&self) -> bool {
        let (is_told, waker) = self.subscription.notify();
        if let Some(waker) = waker {
            waker.wake();
        }
        is_told
    }

    pub(super) const fn subscription(&self) -> &Subscription<Self> {
        &self.subscription
    }

    /// The peer that it was made for is lost. The caller wakes its waiter.
    pub(super) fn mark_peer_lost(&self) {
        self.is_peer_lost.store(true, SeqCst);
    }

    /// Wakes the task that waits for it. No lock of the node is held meanwhile.
    pub(super) fn wake_task(&self) {
        let waker = locked(&self.waker).take();
        if let Some(waker) = waker {
            self.place.node().count_tasks(-1);
            waker.wake();
        }
    }

    pub(super) fn is_fired(&self) -> bool {
        self.state.load(Acquire) == FIRED || self.is_peer_lost.load(Acquire)
    }
}

impl EventSource for Wire {
    type ArmedGuard = ArmedGuard;

    fn listen(&self) -> ArmedGuard {
        ArmedGuard::open(&self.place, &self.range, self.access)
    }
}

impl Tripwire for SharedTripwire {
    fn arm(&self) {
        let wire = &self.0;
        // What came before is not what it waits for.
        wire.place.drain();
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
            self.0.place.drain();
        }
        self.0.is_fired()
    }

    fn poll_fired(&self, context: &mut Context<'_>) -> Poll<()> {
        let node = self.0.place.node();
        // In this order: anyone who fires it after the look finds the waker, and anyone who
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
            self.0.place.node().count_tasks(-1);
        }
        self.0.place.wires().remove(&self.0.words(), self.0.id);
        self.0.place.node().forget_tripwire();
    }
}

impl fmt::Debug for SharedTripwire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedTripwire({:?} of {:?})", self.0.range, self.0.place)
    }
}

/// A tripwire of a [`SharedNode`](super::SharedNode) that leaves a mark: see
/// [`Actions`](crate::clan::Actions).
pub struct SharedActionTripwire {
    tripwire: SharedTripwire,
    mark: Arc<Mark>,
    /// The thread of the node reads reports for it, before they are too many to be counted.
    is_followed: bool,
}

impl SharedActionTripwire {
    pub(super) fn new(place: Place, rule: &ActionRule, marks: &Arc<Marks>) -> Result<Self, Error> {
        let mark = Mark::new(marks, rule)?;
        let is_followed = matches!((&place, rule.action), (Place::Local(_), Action::Count(_)));
        let node = Arc::clone(place.node());
        let wire = Wire::new(place, rule.range.clone(), rule.access, Some(Arc::clone(&mark)))?;
        if is_followed {
            node.count_tasks(1);
        }
        let tripwire = Self { tripwire: SharedTripwire(wire), mark, is_followed };
        tripwire.start();
        Ok(tripwire)
    }

    fn start(&self) {
        let wire = &self.tripwire.0;
        // What came before does nothing.
        wire.place.drain();
        let mut armed = locked(&wire.armed);
        self.mark.set_armed(true);
        armed.get_or_insert_with(|| wire.listen());
    }
}

impl ActionTripwire for SharedActionTripwire {
    fn arm(&self) -> Result<(), Error> {
        if self.tripwire.0.place.node().is_down() {
            return Err(Error::NodeGone);
        }
        self.start();
        Ok(())
    }

    fn disarm(&self) {
        let wire = &self.tripwire.0;
        wire.place.drain();
        self.mark.set_armed(false);
        let guard = locked(&wire.armed).take();
        drop(guard);
    }

    fn is_armed(&self) -> bool {
        self.tripwire.0.place.drain();
        self.mark.is_armed()
    }

    fn firings(&self) -> u64 {
        self.tripwire.0.place.drain();
        self.mark.firings()
    }
}

impl Drop for SharedActionTripwire {
    fn drop(&mut self) {
        self.mark.end();
        if self.is_followed {
            self.tripwire.0.place.node().count_tasks(-1);
        }
    }
}

impl fmt::Debug for SharedActionTripwire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedActionTripwire({:?}, {:?})", self.tripwire, self.mark.action)
    }
}

/// Things that lie over ranges of words, by class of length. A range of a class is
/// no longer than that class says, so all that can meet a touch begin near it.
#[derive(Debug)]
pub(super) struct Wires<T> {
    classes: BTreeMap<u32, Class<T>>,
}

/// By first word and number: the first word behind, and what lies there.
type Class<T> = BTreeMap<(u64, u64), (u64, T)>;

impl<T> Default for Wires<T> {
    fn default() -> Self {
        Self { classes: BTreeMap::new() }
    }
}

/// The least power of two that is no shorter; ranges are not empty.
const fn class_of(words: &Range<u64>) -> u32 {
    u64::BITS - (words.end - words.start).saturating_sub(1).leading_zeros()
}

impl<T> Wires<T> {
    /// Adds one, by a number of its own.
    pub(super) fn insert(&mut self, words: &Range<u64>, id: u64, what: T) {
        let class = self.classes.entry(class_of(words)).or_default();
        class.insert((words.start, id), (words.end, what));
    }

    /// Takes it away.
    pub(super) fn remove(&mut self, words: &Range<u64>, id: u64) {
        if let Some(class) = self.classes.get_mut(&class_of(words)) {
            class.remove(&(words.start, id));
            if class.is_empty() {
                self.classes.remove(&class_of(words));
            }
        }
    }

    /// All that lie over one of these words.
    pub(super) fn touched(&self, words: &Range<u64>) -> impl Iterator<Item = &T> {
        self.classes.iter().flat_map(move |(class, wires)| {
            let longest = 1u64.checked_shl(*class).unwrap_or(u64::MAX);
            let first = words.start.saturating_sub(longest - 1);
            wires
                .range((first, 0)..(words.end, 0))
                .filter(|(_, (end, _))| *end > words.start)
                .map(|(_, (_, what))| what)
        })
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = &T> {
        self.classes.values().flat_map(BTreeMap::values).map(|(_, what)| what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every range against every touch, of a small memory.
    #[test]
    fn just_those_are_met_that_overlap() {
        let mut wires = Wires::default();
        let ranges: Vec<_> =
            (0..20u64).flat_map(|start| (start + 1..=20).map(move |end| start..end)).collect();
        for (id, range) in ranges.iter().enumerate() {
            wires.insert(range, id as u64, range.clone());
        }
        for touch in &ranges {
            let mut met: Vec<_> = wires.touched(touch).cloned().collect();
            met.sort_by_key(|range| (range.start, range.end));
            let overlaps = |range: &&Range<u64>| range.start < touch.end && touch.start < range.end;
            let expected: Vec<_> = ranges.iter().filter(overlaps).cloned().collect();
            assert_eq!(met, expected, "touched {touch:?}");
        }
        assert_eq!(wires.all().count(), ranges.len());
        for (id, range) in ranges.iter().enumerate() {
            wires.remove(range, id as u64);
        }
        assert_eq!(wires.all().count(), 0);
    }
}
