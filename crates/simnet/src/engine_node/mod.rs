//! A node that runs any [`Engine`] with modelled memory.
//!
//! It is a naive driver: it follows the contract of
//! [`landfall_placement::engine`] to the letter and is clever about nothing.
//! Each port is a path. Where the engine breaks the contract the run ends with
//! [`Error::Broken`](crate::Error::Broken) and says how.

mod config;
mod receive;
mod segment;
mod send;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

use landfall_placement::{Engine, Instant, PathId, PathLimits, PathState, Refusals};

use crate::frame::Frame;
use crate::memory::Memory;
use crate::node::{LinkState, Node, Outbox, PortId};

pub use config::{Counters, EngineConfig, Receive};
use send::Outgoing;

/// Takes the events of an engine as they come: it may use the engine and its
/// memory at once.
type Handler<E> = Box<dyn FnMut(Instant, &mut E, &mut Memory, <E as Engine>::Event)>;

/// The most units and events that are handled in one call. More go on in the
/// next, so that an engine that never stops sending is noticed as
/// [`Error::Stuck`](crate::Error::Stuck) and does not hang the test.
const BUDGET: usize = 1_024;

/// A node that runs an engine.
pub struct EngineNode<E: Engine> {
    engine: E,
    memory: Memory,
    config: EngineConfig,
    /// The limits of each path that is up.
    paths: Vec<Option<PathLimits>>,
    /// Received, but not yet looked at.
    received: VecDeque<(PathId, Frame)>,
    flush_at: Option<Instant>,
    /// Polled from the engine, but not yet read from memory.
    outgoing: VecDeque<Outgoing>,
    /// The first of `outgoing` waits for room, not for time.
    no_room: bool,
    events: VecDeque<E::Event>,
    handler: Option<Handler<E>>,
    /// The engine or its memory was used from outside, or there is more to do.
    restless: bool,
    refusals: Refusals,
    counters: Counters,
}

impl<E: Engine + fmt::Debug> fmt::Debug for EngineNode<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineNode")
            .field("engine", &self.engine)
            .field("paths", &self.paths)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

impl<E: Engine + 'static> EngineNode<E> {
    /// A node with the usual configuration and no memory yet.
    #[must_use]
    pub fn new(engine: E) -> Self {
        Self::with_config(engine, EngineConfig::default())
    }

    /// A node with a configuration of its own.
    #[must_use]
    pub fn with_config(engine: E, config: EngineConfig) -> Self {
        Self {
            engine,
            memory: Memory::default(),
            config,
            paths: Vec::new(),
            received: VecDeque::new(),
            flush_at: None,
            outgoing: VecDeque::new(),
            no_room: false,
            events: VecDeque::new(),
            handler: None,
            restless: true,
            refusals: Refusals::new(),
            counters: Counters::default(),
        }
    }

    /// Hands each event to a function at once. Without one they are kept for
    /// [`poll_event`](Self::poll_event).
    #[must_use]
    pub fn on_event(
        mut self,
        handler: impl FnMut(Instant, &mut E, &mut Memory, E::Event) + 'static,
    ) -> Self {
        self.handler = Some(Box::new(handler));
        self
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
        &self.refusals
    }

    /// What the node did.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Takes out whatever the engine has to say and to send, until it is silent.
    fn drain(&mut self, now: Instant, out: &mut Outbox<'_>) {
        self.restless = false;
        let mut budget = BUDGET;
        while budget > 0 {
            let before = budget;
            self.take_deposits(now, &mut budget);
            self.drain_events(now, &mut budget);
            self.poll_transmits(now, out, &mut budget);
            self.send_due(now, out);
            if budget == before {
                break;
            }
        }
        self.restless = budget == 0;
        if let Some(violation) = self.memory.violation() {
            out.fail(alloc::format!("{violation}"));
        }
    }

    fn drain_events(&mut self, now: Instant, budget: &mut usize) {
        while *budget > 0 && (self.handler.is_some() || self.events.len() < self.config.events) {
            let Some(event) = self.engine.poll_event() else { return };
            *budget -= 1;
            match &mut self.handler {
                Some(handler) => handler(now, &mut self.engine, &mut self.memory, event),
                None => self.events.push_back(event),
            }
        }
    }

    /// What the engine is told of a link.
    fn limits(&self, mtu: u32) -> PathLimits {
        let config = &self.config;
        let unit = mtu.min(config.most_unit);
        let sure = unit.min(config.sure);
        let mut limits = PathLimits { sure, head: config.head, ..PathLimits::plain(unit) };
        if let Some((super_unit, segments)) = config.segmentation {
            limits.super_unit = super_unit.max(unit);
            limits.segments = segments.max(1);
            limits.offloads.segment_tcp4 = true;
            limits.offloads.segment_tcp6 = true;
        }
        limits.offloads.sum_send = true;
        limits
    }
}

impl<E: Engine + 'static> Node for EngineNode<E> {
    fn handle_frame(
        &mut self,
        now: Instant,
        PortId(port): PortId,
        frame: Frame,
        out: &mut Outbox<'_>,
    ) {
        self.received.push_back((PathId(port), frame));
        if self.received.len() >= self.config.batch {
            self.receive(now, out);
        } else if self.flush_at.is_none() {
            self.flush_at = Some(now + self.config.hold);
        }
        self.drain(now, out);
    }

    fn handle_link(&mut self, now: Instant, port: PortId, state: LinkState, out: &mut Outbox<'_>) {
        let index = usize::from(port.0);
        if self.paths.len() <= index {
            self.paths.resize(index + 1, None);
        }
        let state = match state {
            LinkState::Up { mtu } => PathState::Up(self.limits(mtu)),
            LinkState::Down => PathState::Down,
        };
        self.paths[index] = match state {
            PathState::Up(limits) => Some(limits),
            PathState::Down => None,
        };
        // What waited for room in the queue of this link waits no longer.
        self.no_room = false;
        self.engine.handle_path(now, PathId(port.0), state);
        self.drain(now, out);
    }

    fn handle_room(&mut self, now: Instant, _port: PortId, out: &mut Outbox<'_>) {
        self.no_room = false;
        self.drain(now, out);
    }

    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox<'_>) {
        if self.flush_at.is_some_and(|at| at <= now) {
            self.receive(now, out);
        }
        if self.engine.poll_timeout().is_some_and(|timeout| timeout.at <= now) {
            self.engine.handle_timeout(now);
        }
        self.drain(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if self.restless {
            return Some(Instant::ZERO);
        }
        let outgoing = self.outgoing.front().filter(|_| !self.no_room).map(|next| next.due);
        let engine = self.engine.poll_timeout().map(|timeout| timeout.at);
        [outgoing, engine, self.flush_at].into_iter().flatten().min()
    }
}
