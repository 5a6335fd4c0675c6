//! [`ActionTripwire`]: to find a mark that chosen memory was touched.
//!
//! The engine leaves the mark, and those of several are added up. A mark that is left once only
//! is another matter, since each engine would do it once: there each of them tells, and the first
//! that does so leaves it, in the [`Marks`] of the node.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use clan_dsm::{Action, TripwireId};

use super::builder::refused;
use super::engines::{EngineHandle, NodeHandle};
use super::memory::Aperture;
use super::node::Node;
use super::state::NodeState;
use super::tripwire::{Parts, all_of, in_words};
use super::window::Window;
use crate::clan::{self, ActionRule, Actions, Error};
use crate::runtime::locked;

/// A tripwire that leaves a mark in the engine: see [`Actions`](crate::clan::Actions).
#[derive(Debug)]
pub struct ActionTripwire {
    parts: Parts,
    /// It is at several engines, and leaves its mark once.
    once: Option<Arc<OnceMark>>,
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
        let once = OnceMark::new(handle, rule);
        Self::make(all_of(handle), (rule, once), |core, action, once| {
            core.engine.watch(id, range.clone(), rule.access, action, once)
        })
    }

    pub(crate) fn outgoing(window: &Window, rule: &ActionRule) -> Result<Self, Error> {
        let (range, id) = (rule.range.clone(), window.id());
        window.check_range(range.start, range.end.saturating_sub(range.start))?;
        let range = in_words(range, clan::Remote::len(window));
        // One engine sees it: that of the link.
        Self::make([window.handle().clone()], (rule, None), |core, action, once| {
            core.engine.watch_window(id, range.clone(), rule.access, action, once)
        })
    }

    fn make(
        engines: impl IntoIterator<Item = EngineHandle>,
        (rule, once): (&ActionRule, Option<Arc<OnceMark>>),
        mut watch: impl FnMut(&mut NodeState, Action, bool) -> Result<TripwireId, clan_dsm::Error>,
    ) -> Result<Self, Error> {
        let (action, what) = match rule.action {
            clan::Action::Bit(number) => (Action::Bit(number), "tripwire, or bit of that number"),
            clan::Action::Count(number) => {
                (Action::Count(number), "tripwire, or counter of that number")
            }
            clan::Action::Identify(_) => (Action::Identifier, "tripwire"),
        };
        let parts = Parts::make(engines, |core| {
            let id = watch(core, action, rule.once).map_err(|error| refused(error, what))?;
            if let Some(once) = &once {
                // It was there for the bound of its number alone.
                let _ = core.engine.remove_tripwire(id);
                let id = watch(core, Action::Event, false);
                let id = id.map_err(|error| refused(error, what))?;
                core.once.insert(id, Arc::clone(once));
                return Ok(id);
            }
            if let clan::Action::Identify(number) = rule.action {
                core.identifiers.insert(id, number);
            }
            Ok(id)
        })?;
        Ok(Self { parts, once })
    }
}

impl clan::ActionTripwire for ActionTripwire {
    fn arm(&self) -> Result<(), Error> {
        self.parts.check()?;
        self.parts.each(|core, id| core.engine.enable_tripwire(id)).try_for_each(|armed| {
            armed.map_err(|error| match error {
                // It went with its memory.
                clan_dsm::Error::Unknown => Error::StaleCookie,
                other => refused(other, "armed tripwire"),
            })
        })?;
        if let Some(once) = &self.once {
            once.is_armed.store(true, Ordering::SeqCst);
        }
        Ok(())
    }

    fn disarm(&self) {
        if let Some(once) = &self.once {
            return once.is_armed.store(false, Ordering::SeqCst);
        }
        // What went with its memory is not armed.
        self.parts.each(|core, id| core.engine.disable_tripwire(id)).for_each(drop);
    }

    fn is_armed(&self) -> bool {
        let is_armed = |armed: Result<bool, _>| armed.unwrap_or(false);
        self.once.as_ref().is_none_or(|once| once.is_armed.load(Ordering::SeqCst))
            && self.parts.each(|core, id| core.engine.is_armed(id)).any(is_armed)
    }

    fn firings(&self) -> u64 {
        match &self.once {
            Some(once) => once.firings.load(Ordering::SeqCst),
            None => {
                self.parts.each(|core, id| core.engine.firings(id)).filter_map(Result::ok).sum()
            }
        }
    }
}

/// A tripwire at several engines that fires once until it is armed again.
#[derive(Debug)]
pub(crate) struct OnceMark {
    is_armed: AtomicBool,
    firings: AtomicU64,
    action: clan::Action,
    marks: Arc<Marks>,
}

impl OnceMark {
    /// Nothing where one engine does it by itself.
    fn new(handle: &NodeHandle, rule: &ActionRule) -> Option<Arc<Self>> {
        let is_shared = rule.once && handle.engines().len() > 1;
        is_shared.then(|| {
            Arc::new(Self {
                is_armed: AtomicBool::new(true),
                firings: AtomicU64::new(0),
                action: rule.action,
                marks: Arc::clone(handle.marks()),
            })
        })
    }
}

impl OnceMark {
    fn fire(self: &Arc<Self>) {
        if self.is_armed.swap(false, Ordering::SeqCst) {
            self.firings.fetch_add(1, Ordering::SeqCst);
            self.marks.leave(self);
        }
    }
}

/// The marks that were left once, by one of several engines.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// There was one.
    is_used: AtomicBool,
    all: Mutex<AllMarks>,
}

#[derive(Debug, Default)]
struct AllMarks {
    bits: BTreeSet<u32>,
    counters: BTreeMap<u32, u64>,
    /// Those that have left theirs; of one that is gone it means nothing.
    identifiers: VecDeque<Weak<OnceMark>>,
}

impl AllMarks {
    fn next_identifier(&mut self) -> Option<u64> {
        loop {
            let once = self.identifiers.pop_front()?.upgrade();
            if let Some(clan::Action::Identify(number)) = once.map(|once| once.action) {
                return Some(number);
            }
        }
    }
}

impl Marks {
    fn leave(&self, once: &Arc<OnceMark>) {
        let mut all = locked(&self.all);
        match once.action {
            clan::Action::Bit(number) => _ = all.bits.insert(number),
            clan::Action::Count(number) => *all.counters.entry(number).or_default() += 1,
            // Of each tripwire one at most waits.
            clan::Action::Identify(_) => {
                let once = Arc::downgrade(once);
                if !all.identifiers.iter().any(|waits| waits.ptr_eq(&once)) {
                    all.identifiers.push_back(once);
                }
            }
        }
        self.is_used.store(true, Ordering::SeqCst);
    }

    fn look<T: Default>(&self, look: impl FnOnce(&mut AllMarks) -> T) -> T {
        match self.is_used.load(Ordering::SeqCst) {
            true => look(&mut locked(&self.all)),
            false => T::default(),
        }
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

    /// The engine has told of a tripwire that fires once, of several engines.
    pub(super) fn fired_once(&mut self, id: TripwireId) {
        // Told of before it was removed: nobody wants to know.
        let Some(once) = self.once.get_mut(id) else { return };
        once.fire();
    }

    /// Events were lost on the way: each of them may have fired.
    pub(super) fn fire_all_once(&self) {
        self.once.iter().for_each(|once| once.fire());
    }

    /// It leaves no mark any more.
    pub(super) fn forget_mark(&mut self, id: TripwireId) {
        self.identifiers.remove(id);
        self.once.remove(id);
    }
}

/// Looks at each engine of a node in turn.
fn each<T>(node: &Node, mut look: impl FnMut(&mut NodeState) -> T) -> impl Iterator<Item = T> {
    node.handle().engines().iter().map(move |engine| engine.look(&mut look))
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
        // No matter which has set it, it is taken once: at all engines.
        let taken = each(self, |core| core.engine.take_bit(number));
        let once = self.handle().marks().look(|all| all.bits.remove(&number));
        taken.fold(once, |any, taken| any | taken)
    }

    fn counter(&self, number: u32) -> u64 {
        let once = self.handle().marks().look(|all| all.counters.get(&number).copied());
        each(self, |core| core.engine.counter(number)).sum::<u64>() + once.unwrap_or_default()
    }

    fn next_identifier(&self) -> Option<u64> {
        let next = each(self, NodeState::next_identifier).find_map(|next| next);
        next.or_else(|| self.handle().marks().look(AllMarks::next_identifier))
    }

    fn take_lost(&self) -> u64 {
        each(self, |core| core.engine.take_lost_identifiers()).sum()
    }
}
