//! [`Tripwire`]: to be told when chosen memory was touched.
//!
//! The tripwire in the engine stays where it is; arming it for one firing is a
//! word in this process, so that the usual *look, arm, look again, wait* costs
//! no lock. While firings are wanted by nobody, the engine's is switched off, and
//! anyone who arms next switches it on again: that costs a lock, once.

use std::future::poll_fn;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use clan_dsm::{Access, Action, TripwireId};

use super::builder::refused;
use super::engines::{EngineHandle, NodeHandle};
use super::events::{Attached, Kind, sealed};
use super::memory::Aperture;
use super::neighbour::Neighbour;
use super::state::NodeState;
use super::window::Window;
use crate::clan::{self, Error, WORD};
use crate::runtime::locked;

const IDLE: u8 = 0;
const ARMED: u8 = 1;
const FIRED: u8 = 2;

/// This many firings that nobody waited for switch the engine's tripwire off.
const UNWANTED: u8 = 4;

/// What the handle and the node know of a tripwire.
#[derive(Debug)]
pub(crate) struct State {
    /// For one firing: idle, armed or fired.
    arming: AtomicU8,
    /// The tripwires of these engines are switched off: bit n is that of engine n.
    off: AtomicU64,
    /// With whom it fires too, when they are lost.
    peer: Option<Arc<Neighbour>>,
    waker: Mutex<Option<Waker>>,
}

/// The node's side, under its lock.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) state: Arc<State>,
    pub(crate) events: Option<Attached>,
    /// Firings since the last one that somebody waited for.
    unwanted: u8,
}

impl State {
    /// Fires it, if it was armed. Returns whether it was.
    fn fire(&self) -> bool {
        fence(Ordering::SeqCst);
        let armed = self.arming.compare_exchange(ARMED, FIRED, Ordering::SeqCst, Ordering::SeqCst);
        armed.is_ok()
    }

    fn has_fired(&self) -> bool {
        self.arming.load(Ordering::SeqCst) == FIRED
            || self.peer.as_ref().is_some_and(|peer| !peer.is_up())
    }

    pub(crate) fn take_waker(&self) -> Option<Waker> {
        locked(&self.waker).take()
    }

    pub(crate) fn is_about(&self, neighbour: &Arc<Neighbour>) -> bool {
        self.peer.as_ref().is_some_and(|peer| Arc::ptr_eq(peer, neighbour))
    }
}

impl NodeState {
    /// The engine says that it fired.
    pub(super) fn tripped(&mut self, id: TripwireId) {
        let Some(record) = self.tripwires.get_mut(id) else { return self.fired_once(id) };
        if let Some((event_sender, _)) = &record.events {
            self.after.wake.extend(event_sender.notify());
        }
        if record.state.fire() {
            record.unwanted = 0;
            self.after.wake.extend(record.state.take_waker());
            return;
        }
        record.unwanted = record.unwanted.saturating_add(1);
        if record.unwanted < UNWANTED || record.events.is_some() {
            return;
        }
        let own = 1 << self.nth;
        record.state.off.fetch_or(own, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if record.state.arming.load(Ordering::SeqCst) == ARMED {
            // The thread that armed it may not have seen that it is off.
            record.state.off.fetch_and(!own, Ordering::SeqCst);
        } else {
            // It is there: the engine has just told of it.
            let _ = self.engine.disable_tripwire(id);
        }
    }

    /// The user armed a tripwire that is switched off.
    fn switch_on(&mut self, id: TripwireId) {
        let Some(record) = self.tripwires.get_mut(id) else { return };
        let own = 1 << self.nth;
        if record.state.off.fetch_and(!own, Ordering::SeqCst) & own != 0 {
            record.unwanted = 0;
            let _ = self.engine.enable_tripwire(id);
        }
    }

    /// Events were lost on the way: each tripwire may have fired.
    pub(super) fn trip_all(&mut self) {
        for record in self.tripwires.iter() {
            if record.state.fire() {
                self.after.wake.extend(record.state.take_waker());
            }
        }
    }

    fn remove_tripwire(&mut self, id: TripwireId) {
        let record = self.tripwires.remove(id);
        self.after.forget.extend(record.and_then(|record| record.state.take_waker()));
        self.forget_mark(id);
        // It went with its memory before.
        let _ = self.engine.remove_tripwire(id);
    }
}

/// Fires when chosen memory is touched: memory of this node by others, or memory
/// of others by this node ([`watch_own`](clan::Fabric::watch_own)), when the bytes have
/// arrived there.
///
/// Its methods for one firing are those of [`clan::Tripwire`]. Registered with
/// [`Events`](super::Events) it need not be armed: each firing is an event.
#[derive(Debug)]
pub struct Tripwire {
    handle: NodeHandle,
    /// What it is at each engine that may see the memory touched.
    parts: Parts,
    state: Arc<State>,
}

/// The tripwires of the engines that one of the user's is made of. They go with it.
#[derive(Debug)]
pub(super) struct Parts(Vec<(EngineHandle, TripwireId)>);

impl Parts {
    /// One at each of these engines.
    pub(super) fn make(
        engines: impl IntoIterator<Item = EngineHandle>,
        mut make: impl FnMut(&mut NodeState) -> Result<TripwireId, Error>,
    ) -> Result<Self, Error> {
        let mut parts = Self(Vec::with_capacity(1));
        for engine in engines {
            let id = engine.look(&mut make)?;
            parts.0.push((engine, id));
        }
        Ok(parts)
    }

    /// # Errors
    /// The node does not run any more.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.0.iter().try_for_each(|(engine, _)| engine.node().check())
    }

    pub(super) fn each<'a, T>(
        &'a self,
        mut each: impl FnMut(&mut NodeState, TripwireId) -> T + 'a,
    ) -> impl Iterator<Item = T> + 'a {
        self.0.iter().map(move |(engine, id)| engine.look(|core| each(core, *id)))
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        self.each(NodeState::remove_tripwire).for_each(drop);
    }
}

/// All engines of a node: any of them may hear that its memory is touched.
pub(super) fn all_of(handle: &NodeHandle) -> impl Iterator<Item = EngineHandle> {
    (0..handle.engines().len()).map(|nth| handle.engine(nth))
}

impl Tripwire {
    pub(crate) fn local(
        aperture: &Aperture,
        handle: &NodeHandle,
        range: Range<u64>,
        access: Access,
        peer: Option<Arc<Neighbour>>,
    ) -> Result<Self, Error> {
        if !aperture.is_of(handle) {
            return Err(Error::BadConfig("a tripwire watches memory of its own node"));
        }
        aperture.lent().check(range.start, range.end.saturating_sub(range.start))?;
        let (id, range) = (aperture.id(), in_words(range, aperture.lent().len()));
        Self::make(handle, all_of(handle), peer, |core| {
            core.engine.watch(id, range.clone(), access, Action::Event, false)
        })
    }

    pub(crate) fn outgoing(
        window: &Window,
        range: Range<u64>,
        access: Access,
    ) -> Result<Self, Error> {
        window.check_range(range.start, range.end.saturating_sub(range.start))?;
        let (handle, id) = (window.handle(), window.id());
        let range = in_words(range, clan::Remote::len(window));
        let peer = Some(Arc::clone(window.neighbour()));
        Self::make(handle.node(), [handle.clone()], peer, |core| {
            core.engine.watch_window(id, range.clone(), access, Action::Event, false)
        })
    }

    fn make(
        handle: &NodeHandle,
        engines: impl IntoIterator<Item = EngineHandle>,
        peer: Option<Arc<Neighbour>>,
        mut watch: impl FnMut(&mut NodeState) -> Result<TripwireId, clan_dsm::Error>,
    ) -> Result<Self, Error> {
        let state = Arc::new(State {
            arming: AtomicU8::new(IDLE),
            off: AtomicU64::new(0),
            peer,
            waker: Mutex::default(),
        });
        let parts = Parts::make(engines, |core| {
            let id = watch(core).map_err(|error| refused(error, "tripwire"))?;
            let state = Arc::clone(&state);
            core.tripwires.insert(id, Record { state, events: None, unwanted: 0 });
            Ok(id)
        })?;
        Ok(Self { handle: handle.clone(), parts, state })
    }

    /// Waits on this thread, which drives the node meanwhile, until it has fired
    /// (true) or the deadline is over (false).
    ///
    /// # Errors
    /// The node does not run any more.
    pub fn wait(&self, deadline: Option<Instant>) -> Result<bool, Error> {
        wait_any(&self.handle, &[self], deadline)
    }

    /// Waits until it has fired, on any executor.
    pub async fn fired(&self) {
        poll_fn(|context| clan::Tripwire::poll_fired(self, context)).await;
    }
}

impl clan::Tripwire for Tripwire {
    #[inline]
    fn arm(&self) {
        self.state.arming.store(ARMED, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.state.off.load(Ordering::SeqCst) != 0 {
            self.parts.each(NodeState::switch_on).for_each(drop);
        }
    }

    #[inline]
    fn disarm(&self) {
        self.state.arming.store(IDLE, Ordering::SeqCst);
    }

    #[inline]
    fn has_fired(&self) -> bool {
        self.state.has_fired()
    }

    fn poll_fired(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.state.has_fired() {
            return Poll::Ready(());
        }
        let before = locked(&self.state.waker).replace(context.waker().clone());
        drop(before);
        fence(Ordering::SeqCst);
        let is_over = self.state.has_fired() || self.handle.has_ended();
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl sealed::Source for Tripwire {
    #[allow(private_interfaces, reason = "nobody else can implement it")]
    fn kind(&self) -> Kind {
        Kind::Tripwire
    }

    #[allow(private_interfaces, reason = "nobody else can implement it")]
    fn handle(&self) -> &NodeHandle {
        &self.handle
    }

    #[allow(private_interfaces, reason = "nobody else can implement it")]
    fn attach(&self, to: Option<Attached>) -> Result<(), Error> {
        let is_wanted = to.is_some();
        let mut attached = self.parts.each(|core, id| {
            let record = core.tripwires.get_mut(id).ok_or(Error::NodeGone)?;
            let before = std::mem::replace(&mut record.events, to.clone());
            if is_wanted {
                core.switch_on(id);
            }
            if is_wanted && self.state.has_fired() {
                core.tripped(id);
            }
            // It is dropped without the lock.
            Ok(before)
        });
        attached.try_for_each(|before| before.map(drop))
    }
}

/// Waits until any has fired, or the deadline is over.
pub(crate) fn wait_any(
    handle: &NodeHandle,
    tripwires: &[&Tripwire],
    deadline: Option<Instant>,
) -> Result<bool, Error> {
    let fired = poll_fn(|context| {
        let polled =
            tripwires.iter().map(|tripwire| clan::Tripwire::poll_fired(*tripwire, context));
        if polled.fold(false, |any, one| any | one.is_ready()) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    });
    let fired = handle.block_on(fired, deadline)?.is_some();
    if handle.has_ended() { Err(Error::NodeGone) } else { Ok(fired) }
}

/// All bytes of the words that these lie in, as far as there are any: the engine watches bytes.
pub(super) fn in_words(range: Range<u64>, len: u64) -> Range<u64> {
    if range.is_empty() {
        return range;
    }
    range.start / WORD * WORD..range.end.next_multiple_of(WORD).min(len)
}
