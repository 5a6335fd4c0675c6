//! A node that runs any [`Engine`] with modelled memory.
//!
//! It is a naive driver: it follows the contract of
//! [`landfall_placement::engine`] to the letter and is clever about nothing.
//! Each port is a path. Where the engine breaks the contract the run ends with
//! [`Error::Broken`](crate::Error::Broken) and says how.

mod host;
mod receive;
mod send;

use alloc::collections::VecDeque;
use core::ops::{Deref, DerefMut};

use landfall_placement::{Duration, Engine, Instant, PathId, PathLimits, Peer};

use crate::frame::Frame;
use crate::memory::Memory;
use crate::node::{LinkState, Node, Outbox, PortId};
pub use host::EngineHost;
use send::Outgoing;

/// The most units and events that are handled in one call. More go on in the
/// next, so that an engine that never stops sending is noticed as
/// [`Error::Stuck`](crate::Error::Stuck) and does not hang the test.
const BUDGET: usize = 1_024;

/// A node that runs an engine.
#[derive(Debug)]
pub struct EngineNode<E: Engine> {
    host: EngineHost<E>,
    /// Received, but not yet looked at.
    received: VecDeque<(PathId, Frame)>,
    flush_at: Option<Instant>,
    /// Polled from the engine, but not yet read from memory.
    outgoing: VecDeque<Outgoing>,
    /// The first of `outgoing` waits for room, not for time.
    no_room: bool,
}

impl<E: Engine> Deref for EngineNode<E> {
    type Target = EngineHost<E>;

    fn deref(&self) -> &Self::Target {
        &self.host
    }
}

impl<E: Engine> DerefMut for EngineNode<E> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.host
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
            host: EngineHost::new(engine, config),
            received: VecDeque::new(),
            flush_at: None,
            outgoing: VecDeque::new(),
            no_room: false,
        }
    }

    /// Hands each event to a function at once. Without one they are kept for
    /// [`poll_event`](EngineHost::poll_event).
    #[must_use]
    pub fn on_event(
        mut self,
        handler: impl FnMut(Instant, &mut E, &mut Memory, E::Event) + 'static,
    ) -> Self {
        self.host.set_handler(handler);
        self
    }

    /// The host is killed and started again: the engine knows nothing, and what was received,
    /// kept or about to be sent is gone, with all memory.
    pub fn restart(&mut self, now: Instant, engine: E) {
        self.received.clear();
        self.outgoing.clear();
        self.flush_at = None;
        self.no_room = false;
        self.host.restart(now, engine);
    }

    /// Takes out whatever the engine has to say and to send, until it is silent.
    fn drain(&mut self, now: Instant, out: &mut Outbox<'_>) {
        self.host.restless = false;
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
        self.host.restless = budget == 0;
        self.check_memory(out);
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
        if self.received.len() >= self.host.config.batch {
            self.receive(now, out);
        } else if self.flush_at.is_none() {
            self.flush_at = Some(now + self.host.config.hold);
        }
        self.drain(now, out);
    }

    fn handle_link(&mut self, now: Instant, port: PortId, state: LinkState, out: &mut Outbox<'_>) {
        let state = self.note_link(port, state);
        // What waited for room in the queue of this link waits no longer.
        self.no_room = false;
        self.host.engine.handle_path(now, PathId(port.0), state);
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
        if self.host.engine.poll_timeout().is_some_and(|timeout| timeout.at <= now) {
            self.host.engine.handle_timeout(now);
        }
        self.drain(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if self.host.restless {
            return Some(Instant::ZERO);
        }
        let outgoing = self.outgoing.front().filter(|_| !self.no_room).map(|next| next.due);
        let engine = self.host.engine.poll_timeout().map(|timeout| timeout.at);
        [outgoing, engine, self.flush_at].into_iter().flatten().min()
    }
}

/// Where the node receives to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Receive {
    /// Into memory of its own, from which every payload is copied.
    #[default]
    Copied,
    /// Straight into the spans that the engine guesses. As on real hardware,
    /// whatever comes lands there, be it junk.
    Guessed,
}

/// How a node runs its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// Where it receives to.
    pub receive: Receive,
    /// How many frames are received together. All are placed before the first
    /// is reported as being in place.
    pub batch: usize,
    /// How long fewer than that wait for others.
    pub hold: Duration,
    /// How long after the engine gave a unit out its payload is read, and the
    /// unit reported as sent: as long as an adapter may take.
    pub send_delay: Duration,
    /// The most units that wait for that.
    pub send_ring: usize,
    /// The longest unit that the engine is told of, whatever the link carries.
    pub most_unit: u32,
    /// The longest unit that the engine is told of as sure to get to every peer, if the link
    /// carries more.
    pub sure: u32,
    /// The room for a head.
    pub head: u16,
    /// Tell the engine that long TCP segments are cut for it: the longest, and
    /// into how many.
    pub segmentation: Option<(u32, u16)>,
    /// How others address this node; as [`Peer::Node`], unless set.
    pub address: Option<Peer>,
    /// The most events that are kept; then the engine must keep them.
    pub events: usize,
    /// The engine's memory is shared on purpose: placements under way may name
    /// the same byte, and take effect in their order. Otherwise that ends the run.
    pub shared: bool,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            receive: Receive::Copied,
            batch: 1,
            hold: Duration::from_micros(10),
            send_delay: Duration::ZERO,
            send_ring: 256,
            most_unit: 65_535,
            sure: 65_535,
            head: 256,
            segmentation: None,
            address: None,
            events: 4_096,
            shared: false,
        }
    }
}

impl EngineConfig {
    /// Receives straight to where the engine guesses, this many frames together.
    #[must_use]
    pub fn guessing(batch: usize) -> Self {
        Self { receive: Receive::Guessed, batch, ..Self::default() }
    }

    /// What an engine is told of a link that carries units of this many bytes.
    fn limits(&self, mtu: u32) -> PathLimits {
        let unit = mtu.min(self.most_unit);
        let sure = unit.min(self.sure);
        let mut limits = PathLimits { sure, head: self.head, ..PathLimits::plain(unit) };
        if let Some((super_unit, segments)) = self.segmentation {
            limits.super_unit = super_unit.max(unit);
            limits.segments = segments.max(1);
            limits.offloads.segment_tcp4 = true;
            limits.offloads.segment_tcp6 = true;
        }
        limits.offloads.sum_send = true;
        limits
    }
}

/// What a node did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Units that came.
    pub units: u64,
    /// Payloads that landed where they belong.
    pub guessed_right: u64,
    /// Payloads that landed elsewhere in guessed memory.
    pub guessed_wrong: u64,
    /// Payloads that the engine had kept and that were written to their place.
    pub deposits: u64,
    /// Payload bytes that were copied to where they belong.
    pub copied_bytes: u64,
    /// Operations on words.
    pub words: u64,
    /// Payloads that could not be put where they belong: the memory is gone.
    pub failed: u64,
    /// Payloads whose checksum was wrong.
    pub corrupt: u64,
    /// Units that the engine gave out.
    pub transmits: u64,
    /// Frames that were sent: more, where units were cut.
    pub frames: u64,
    /// Units that were not sent, because their memory is gone or their head is
    /// none that could be cut.
    pub unsendable: u64,
}
