//! [`EngineHost`]: an engine with its memory, as a node of the simulator runs it.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

use landfall_placement::{Engine, Instant, PathId, PathLimits, PathState, Refusals};

use super::{Counters, EngineConfig};
use crate::memory::Memory;
use crate::node::{LinkState, Outbox, PortId};

/// Takes the events of an engine as they come: it may use the engine and its
/// memory at once.
type Handler<E> = Box<dyn FnMut(Instant, &mut E, &mut Memory, <E as Engine>::Event)>;

/// An engine, its memory and anyone who takes its events: what nodes that run an engine have
/// in common, however frames reach it. A node derefs to it.
pub struct EngineHost<E: Engine> {
    /// The engine.
    pub engine: E,
    /// The memory that its regions are in.
    pub memory: Memory,
    /// How the node runs it.
    pub config: EngineConfig,
    /// The limits of each path that is up.
    pub paths: Vec<Option<PathLimits>>,
    /// The engine or its memory was used from outside, or there is more to do.
    pub restless: bool,
    /// Units that the node itself refused; those of the engine are its own.
    pub refused: Refusals,
    /// What the node did.
    pub counted: Counters,
    /// The user takes no events: the engine keeps them, up to its bound.
    pub is_frozen: bool,
    events: VecDeque<E::Event>,
    handler: Option<Handler<E>>,
}

impl<E: Engine + fmt::Debug> fmt::Debug for EngineHost<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineHost")
            .field("engine", &self.engine)
            .field("paths", &self.paths)
            .field("counters", &self.counted)
            .finish_non_exhaustive()
    }
}

impl<E: Engine> EngineHost<E> {
    /// A host without memory, paths and events.
    #[must_use]
    pub fn new(engine: E, config: EngineConfig) -> Self {
        Self {
            engine,
            memory: Memory::default(),
            config,
            paths: Vec::new(),
            restless: true,
            refused: Refusals::new(),
            counted: Counters::default(),
            is_frozen: false,
            events: VecDeque::new(),
            handler: None,
        }
    }

    /// Hands each event to a function at once.
    pub fn set_handler(
        &mut self,
        handler: impl FnMut(Instant, &mut E, &mut Memory, E::Event) + 'static,
    ) {
        self.handler = Some(Box::new(handler));
    }

    /// The engine.
    #[must_use]
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// The engine, to be used; the node goes on with it at once.
    pub fn engine_mut(&mut self) -> &mut E {
        self.restless = true;
        &mut self.engine
    }

    /// The memory.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The memory, to be changed.
    pub fn memory_mut(&mut self) -> &mut Memory {
        &mut self.memory
    }

    /// The next event that was kept.
    pub fn poll_event(&mut self) -> Option<E::Event> {
        self.restless = true;
        self.events.pop_front()
    }

    /// Units that the node itself refused; those of the engine are its own.
    #[must_use]
    pub fn refusals(&self) -> &Refusals {
        &self.refused
    }

    /// What the node did.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counted
    }

    /// Takes the engine's events out, for as long as there is room for them.
    pub fn drain_events(&mut self, now: Instant, budget: &mut usize) {
        if self.is_frozen {
            return;
        }
        while *budget > 0 && (self.handler.is_some() || self.events.len() < self.config.events) {
            let Some(event) = self.engine.poll_event() else { return };
            *budget -= 1;
            match &mut self.handler {
                Some(handler) => handler(now, &mut self.engine, &mut self.memory, event),
                None => self.events.push_back(event),
            }
        }
    }

    /// From now on the user takes no events, or takes them again.
    pub fn freeze_user(&mut self, is_frozen: bool) {
        self.is_frozen = is_frozen;
        self.restless = true;
    }

    /// An engine that knows nothing takes the place of the one before, whose memory and
    /// events are gone. Who takes the events stays.
    pub fn restart(&mut self, now: Instant, engine: E) {
        self.engine = engine;
        self.memory = Memory::default();
        self.events.clear();
        self.restless = true;
        for (path, limits) in (0..).map(PathId).zip(&self.paths) {
            if let Some(limits) = *limits {
                self.engine.handle_path(now, path, PathState::Up(limits));
            }
        }
    }

    /// Notes what a link is like, and gives what the engine is to be told of its path.
    pub fn note_link(&mut self, PortId(port): PortId, state: LinkState) -> PathState {
        let index = usize::from(port);
        if self.paths.len() <= index {
            self.paths.resize(index + 1, None);
        }
        let limits = match state {
            LinkState::Up { mtu } => Some(self.config.limits(mtu)),
            LinkState::Down => None,
        };
        self.paths[index] = limits;
        limits.map_or(PathState::Down, PathState::Up)
    }

    /// Ends the run where memory was used against the rules.
    pub fn check_memory(&self, out: &mut Outbox<'_>) {
        if let Some(violation) = self.memory.violation() {
            out.fail(alloc::format!("{violation}"));
        }
    }
}
