//! [`Tripwire`] and [`ActionTripwire`]: to be told when chosen memory was touched, or to find a
//! mark of it.
//!
//! The tripwire in the engine stays where it is; arming it for one firing is a
//! word in this process, so that the usual *look, arm, look again, wait* costs
//! no lock. While firings are wanted by nobody, the engine's is switched off, and
//! anyone who arms next switches it on again: that costs a lock, once.

use std::future::poll_fn;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering, fence};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use clan_dsm::{Access, Action, TripwireId};

use super::builder::refused;
use super::events::{EventSender, Kind, Registration, sealed};
use super::memory::Aperture;
use super::neighbour::Neighbour;
use super::node::Node;
use super::state::{NodeHandle, NodeState};
use super::window::Window;
use crate::clan::{self, ActionRule, Actions, Error, WORD};
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
    /// The engine's tripwire is switched off.
    is_off: AtomicBool,
    /// With whom it fires too, when they are lost.
    peer: Option<Arc<Neighbour>>,
    waker: Mutex<Option<Waker>>,
}

/// The node's side, under its lock.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) state: Arc<State>,
    pub(crate) events: Option<(EventSender, Registration)>,
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
        let Some(record) = self.tripwires.get_mut(id) else { return };
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
        record.state.is_off.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if record.state.arming.load(Ordering::SeqCst) == ARMED {
            // The thread that armed it may not have seen that it is off.
            record.state.is_off.store(false, Ordering::SeqCst);
        } else {
            // It is there: the engine has just told of it.
            let _ = self.engine.disable_tripwire(id);
        }
    }

    /// The user armed a tripwire that is switched off.
    fn switch_on(&mut self, id: TripwireId) {
        let Some(record) = self.tripwires.get_mut(id) else { return };
        if record.state.is_off.swap(false, Ordering::SeqCst) {
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
        if let Some(record) = self.tripwires.remove(id) {
            self.after.forget.extend(record.state.take_waker());
            let _ = self.engine.remove_tripwire(id);
        }
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
    id: TripwireId,
    state: Arc<State>,
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
        Self::make(handle, peer, |core| core.engine.watch(id, range, access, Action::Event, false))
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
        Self::make(handle, peer, |core| {
            core.engine.watch_window(id, range, access, Action::Event, false)
        })
    }

    fn make(
        handle: &NodeHandle,
        peer: Option<Arc<Neighbour>>,
        watch: impl FnOnce(&mut NodeState) -> Result<TripwireId, clan_dsm::Error>,
    ) -> Result<Self, Error> {
        let state = Arc::new(State {
            arming: AtomicU8::new(IDLE),
            is_off: AtomicBool::new(false),
            peer,
            waker: Mutex::default(),
        });
        let id = handle.look(|core| {
            let id = watch(core).map_err(|error| refused(error, "tripwire"))?;
            let state = Arc::clone(&state);
            core.tripwires.insert(id, Record { state, events: None, unwanted: 0 });
            Ok::<_, Error>(id)
        })?;
        Ok(Self { handle: handle.clone(), id, state })
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
        if self.state.is_off.load(Ordering::SeqCst) {
            self.handle.look(|core| core.switch_on(self.id));
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
    fn attach(&self, to: Option<(EventSender, Registration)>) -> Result<(), Error> {
        let before = self.handle.look(|core| {
            let is_wanted = to.is_some();
            let record = core.tripwires.get_mut(self.id).ok_or(Error::NodeGone)?;
            let before = std::mem::replace(&mut record.events, to);
            if is_wanted {
                core.switch_on(self.id);
            }
            if is_wanted && self.state.has_fired() {
                core.tripped(self.id);
            }
            Ok::<_, Error>(before)
        })?;
        drop(before);
        Ok(())
    }
}

impl Drop for Tripwire {
    fn drop(&mut self) {
        self.handle.look(|core| core.remove_tripwire(self.id));
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
fn in_words(range: Range<u64>, len: u64) -> Range<u64> {
    if range.is_empty() {
        return range;
    }
    range.start / WORD * WORD..range.end.next_multiple_of(WORD).min(len)
}

/// A tripwire that leaves a mark in the engine: see [`Actions`](crate::clan::Actions).
#[derive(Debug)]
pub struct ActionTripwire {
    handle: NodeHandle,
    id: TripwireId,
}

impl ActionTripwire {
    pub(crate) fn local(
        aperture: &Aperture,
        handle: &NodeHandle,
        rule: &ActionRule,
    ) -> Result<Self, Error> {
        if !aperture.is_of(handle) {
            return Err(Error::BadConfig("a tripwire watches memory of its own node"));
        }
        let range = rule.range.clone();
        aperture.lent().check(range.start, range.end.saturating_sub(range.start))?;
        let (id, range) = (aperture.id(), in_words(range, aperture.lent().len()));
        Self::make(handle, rule, |core, action| {
            core.engine.watch(id, range, rule.access, action, rule.once)
        })
    }

    pub(crate) fn outgoing(window: &Window, rule: &ActionRule) -> Result<Self, Error> {
        let (range, id) = (rule.range.clone(), window.id());
        window.check_range(range.start, range.end.saturating_sub(range.start))?;
        let range = in_words(range, clan::Remote::len(window));
        Self::make(window.handle(), rule, |core, action| {
            core.engine.watch_window(id, range, rule.access, action, rule.once)
        })
    }

    fn make(
        handle: &NodeHandle,
        rule: &ActionRule,
        watch: impl FnOnce(&mut NodeState, Action) -> Result<TripwireId, clan_dsm::Error>,
    ) -> Result<Self, Error> {
        let (action, what) = match rule.action {
            clan::Action::Bit(number) => (Action::Bit(number), "tripwire, or bit of that number"),
            clan::Action::Count(number) => {
                (Action::Count(number), "tripwire, or counter of that number")
            }
            clan::Action::Identify(_) => (Action::Identifier, "tripwire"),
        };
        let id = handle.look(|core| {
            let id = watch(core, action).map_err(|error| refused(error, what))?;
            if let clan::Action::Identify(number) = rule.action {
                core.identifiers.insert(id, number);
            }
            Ok::<_, Error>(id)
        })?;
        Ok(Self { handle: handle.clone(), id })
    }
}

impl clan::ActionTripwire for ActionTripwire {
    fn arm(&self) -> Result<(), Error> {
        self.handle.check()?;
        let armed = self.handle.look(|core| core.engine.enable_tripwire(self.id));
        armed.map_err(|error| match error {
            // It went with its memory.
            clan_dsm::Error::Unknown => Error::StaleCookie,
            other => refused(other, "armed tripwire"),
        })
    }

    fn disarm(&self) {
        // What went with its memory is not armed.
        let _ = self.handle.look(|core| core.engine.disable_tripwire(self.id));
    }

    fn is_armed(&self) -> bool {
        self.handle.look(|core| core.engine.is_armed(self.id)).unwrap_or(false)
    }

    fn firings(&self) -> u64 {
        self.handle.look(|core| core.engine.firings(self.id)).unwrap_or(0)
    }
}

impl Drop for ActionTripwire {
    fn drop(&mut self) {
        self.handle.look(|core| {
            core.identifiers.remove(self.id);
            // It went with its memory before.
            let _ = core.engine.remove_tripwire(self.id);
        });
    }
}

impl NodeState {
    /// The identifier that has waited for longest. Those of tripwires that are gone mean nothing.
    fn next_identifier(&mut self) -> Option<u64> {
        loop {
            let id = self.engine.pop_identifier()?;
            if let Some(number) = self.identifiers.get_mut(id) {
                return Some(*number);
            }
        }
    }
}

impl Actions for Node {
    type ActionTripwire = ActionTripwire;

    fn act_on(&self, local: &Aperture, rule: &ActionRule) -> Result<ActionTripwire, Error> {
        ActionTripwire::local(local, self.handle(), rule)
    }

    fn act_on_own(&self, remote: &Window, rule: &ActionRule) -> Result<ActionTripwire, Error> {
        ActionTripwire::outgoing(remote, rule)
    }

    fn take_bit(&self, number: u32) -> bool {
        self.handle().look(|core| core.engine.take_bit(number))
    }

    fn counter(&self, number: u32) -> u64 {
        self.handle().look(|core| core.engine.counter(number))
    }

    fn next_identifier(&self) -> Option<u64> {
        self.handle().look(NodeState::next_identifier)
    }

    fn take_lost(&self) -> u64 {
        self.handle().look(|core| core.engine.take_lost_identifiers())
    }
}
