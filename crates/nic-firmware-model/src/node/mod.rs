//! A node of the simulator: an engine on a host whose frames go through adapters.
//!
//! [`NicNode`] has the calls of [`landfall_simnet::EngineNode`], so that a test can
//! drive either. The engine is in adapter mode ([`Offloaded`]): it tells the
//! adapters what they may take off it, and they tell it what they took.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `software` | what the adapters tell: reports, and whole frames, which the engine places and the processor copies |
//! | `sockets` | [`SocketCosts`]: what a host spends where it runs TCP itself |
//! | `outgoing` | what the engine sends, behind the commands that it gave before |

mod outgoing;
mod sockets;
pub(crate) mod software;

use std::fmt;
use std::ops::{Deref, DerefMut};

use clan_dsm::Nic;
use landfall_placement::{Duration, Engine, Instant, PathId, Span, WordOp};
use landfall_simnet::engine_node::EngineHost;
use landfall_simnet::memory::Writer;
use landfall_simnet::{EngineConfig, Frame, LinkState, Memory, Node, Outbox, PortId};
use outgoing::Outgoing;
pub use sockets::SocketCosts;
use software::ProcessorMemory;
use stp_core::Endpoint;

use crate::firmware::{Arrival, Firmware, HostMemory};
use crate::machine::Adapter;

/// The most units and events that are handled in one call; more in the next.
const BUDGET: usize = 1_024;

/// A node that runs an engine behind adapters.
///
/// With one adapter all ports are its; with several, port `n` belongs to the nth,
/// and all further ports to the last.
pub struct NicNode<F, E>
where
    E: Offloaded,
    F: Firmware<Command = E::Command, Report = E::Report>,
{
    host: EngineHost<E>,
    adapters: Vec<Adapter<'static, F>>,
    /// From an interrupt until the host looks.
    latency: Duration,
    /// When it looks.
    look_at: Option<Instant>,
    /// Given out by the engine, not yet taken by its adapter.
    waiting: Vec<Option<Outgoing>>,
}

impl<F, E> Deref for NicNode<F, E>
where
    E: Offloaded,
    F: Firmware<Command = E::Command, Report = E::Report>,
{
    type Target = EngineHost<E>;

    fn deref(&self) -> &Self::Target {
        &self.host
    }
}

impl<F, E> DerefMut for NicNode<F, E>
where
    E: Offloaded,
    F: Firmware<Command = E::Command, Report = E::Report>,
{
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.host
    }
}

impl<F, E> fmt::Debug for NicNode<F, E>
where
    E: Offloaded + fmt::Debug,
    F: Firmware<Command = E::Command, Report = E::Report> + fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NicNode")
            .field("host", &self.host)
            .field("adapters", &self.adapters)
            .finish_non_exhaustive()
    }
}

/// The memory of the host at a moment, as DMA reaches it.
pub(crate) struct Reached<'a> {
    pub(crate) memory: &'a mut Memory,
    pub(crate) now: Instant,
}

impl HostMemory for Reached<'_> {
    fn is_writable(&self, span: Span) -> bool {
        self.memory.check(span).is_ok()
    }

    fn write(&mut self, span: Span, bytes: &[u8]) -> bool {
        self.memory.write(self.now, Writer::Placed, span, bytes).is_ok()
    }

    fn read(&self, span: Span, into: &mut [u8]) -> bool {
        let Ok(bytes) = self.memory.read(span) else { return false };
        into.copy_from_slice(bytes);
        true
    }
}

impl ProcessorMemory for Reached<'_> {
    fn word(&mut self, op: WordOp) -> Option<u64> {
        self.memory.word(self.now, op).ok()
    }
}

impl<F, E> NicNode<F, E>
where
    E: Offloaded + 'static,
    F: Firmware<Command = E::Command, Report = E::Report> + 'static,
{
    /// A node with the usual configuration and no memory yet.
    #[must_use]
    pub fn new(engine: E, adapters: Vec<Adapter<'static, F>>) -> Self {
        Self::with_config(engine, adapters, EngineConfig::default())
    }

    /// A node with a configuration of its own. What it says of batches, guesses
    /// and the send ring is the adapters' to decide.
    #[must_use]
    pub fn with_config(
        engine: E,
        adapters: Vec<Adapter<'static, F>>,
        config: EngineConfig,
    ) -> Self {
        Self {
            waiting: (0..adapters.len()).map(|_| None).collect(),
            host: EngineHost::new(engine, config),
            adapters,
            latency: Duration::ZERO,
            look_at: None,
        }
    }

    /// The host looks so long after it was interrupted.
    #[must_use]
    pub fn interrupt_latency(mut self, latency: Duration) -> Self {
        self.latency = latency;
        self
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

    /// The adapters.
    #[must_use]
    pub fn adapters(&self) -> &[Adapter<'static, F>] {
        &self.adapters
    }

    /// An adapter, to be tampered with by a test.
    pub fn adapter_mut(&mut self, adapter: u8) -> Option<&mut Adapter<'static, F>> {
        self.host.restless = true;
        self.adapters.get_mut(usize::from(adapter))
    }

    /// The driver loads the firmware of an adapter anew.
    ///
    /// What it had reported counts; what it had not never came. Frames for it
    /// that were under way are lost.
    pub fn restart(&mut self, now: Instant, adapter: u8) {
        self.host.restless = true;
        let index = usize::from(adapter);
        if index >= self.adapters.len() {
            return;
        }
        self.take_upcalls(now, index);
        self.adapters[index].restart();
        self.take_sent(now, index);
        self.host.engine.adapter_lost(now, adapter);
    }

    /// The adapter that a port belongs to.
    fn adapter_of(&self, PortId(port): PortId) -> usize {
        usize::from(port).min(self.adapters.len().saturating_sub(1))
    }

    /// Commands go down and reports come up, until nothing changes any more.
    fn pump(&mut self, now: Instant, out: &mut Outbox<'_>) {
        let looks = self.look_at.is_some_and(|at| at <= now);
        if looks {
            self.look_at = None;
        }
        for _ in 0..BUDGET {
            let mut is_busy = false;
            for index in 0..self.adapters.len() {
                is_busy |= self.give_orders(now, index);
                self.run_adapter(now, index);
                is_busy |= self.send_departures(now, index, out);
                is_busy |= self.take_sent(now, index);
                if looks || self.hears(now, index) {
                    is_busy |= self.take_upcalls(now, index);
                }
            }
            if !is_busy {
                return;
            }
        }
        self.host.restless = true;
    }

    fn run_adapter(&mut self, now: Instant, index: usize) {
        let mut memory = Reached { memory: &mut self.host.memory, now };
        self.adapters[index].run(now, &mut memory);
    }

    /// Does the host look at an adapter now?
    fn hears(&mut self, now: Instant, index: usize) -> bool {
        if !self.adapters[index].poll_interrupt(now) {
            return false;
        }
        if self.latency == Duration::ZERO {
            return true;
        }
        let at = now + self.latency;
        self.look_at = Some(self.look_at.map_or(at, |other| other.min(at)));
        false
    }

    /// Takes out whatever the engine has to say and to send, until it is silent.
    fn drain(&mut self, now: Instant, out: &mut Outbox<'_>) {
        self.host.restless = false;
        let mut budget = BUDGET;
        while budget > 0 {
            let before = budget;
            self.pump(now, out);
            self.take_deposits(now, &mut budget);
            self.drain_events(now, &mut budget);
            self.poll_transmits(now, out, &mut budget);
            if budget == before {
                break;
            }
        }
        self.host.restless |= budget == 0;
        self.check_memory(out);
    }
}

impl<F, E> Node for NicNode<F, E>
where
    E: Offloaded + 'static,
    F: Firmware<Command = E::Command, Report = E::Report> + 'static,
{
    fn handle_frame(&mut self, now: Instant, port: PortId, frame: Frame, out: &mut Outbox<'_>) {
        let index = self.adapter_of(port);
        let Some(adapter) = self.adapters.get_mut(index) else { return };
        let Frame { bytes, from, ecn, .. } = frame;
        let arrival = Arrival { bytes: &bytes, path: PathId(port.0), from, ecn };
        // The adapter counts what it loses.
        let _ = adapter.arrive(now, &arrival);
        self.drain(now, out);
    }

    fn handle_link(&mut self, now: Instant, port: PortId, state: LinkState, out: &mut Outbox<'_>) {
        let state = self.note_link(port, state);
        self.pump(now, out);
        self.host.engine.handle_path(now, PathId(port.0), state);
        self.drain(now, out);
    }

    fn handle_room(&mut self, now: Instant, _port: PortId, out: &mut Outbox<'_>) {
        self.drain(now, out);
    }

    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox<'_>) {
        self.pump(now, out);
        if self.host.engine.poll_timeout().is_some_and(|timeout| timeout.at <= now) {
            // A host that is awake looks before it concludes that nothing came.
            for index in 0..self.adapters.len() {
                self.take_upcalls(now, index);
            }
            if self.host.engine.poll_timeout().is_some_and(|timeout| timeout.at <= now) {
                self.host.engine.handle_timeout(now);
            }
        }
        self.drain(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if self.host.restless {
            return Some(Instant::ZERO);
        }
        let engine = self.host.engine.poll_timeout().map(|timeout| timeout.at);
        let adapters = self.adapters.iter().filter_map(Adapter::poll_timeout).min();
        [engine, adapters, self.look_at].into_iter().flatten().min()
    }
}

// `Offloaded`: an engine that an adapter takes work off; and the engines of the papers
// behind theirs. What each tells its adapter, and when, is the engine's (its mirror of the
// adapter's tables); here they are joined to the machine.

/// An engine that an adapter takes work off.
pub trait Offloaded: Engine {
    /// What it tells its adapter.
    type Command: Copy + fmt::Debug + 'static;
    /// What its adapter tells it.
    type Report: Copy + fmt::Debug + 'static;

    /// The next change of the tables of an adapter. What the engine gives out to
    /// be sent later relies on it.
    fn poll_command(&mut self, adapter: u8) -> Option<Self::Command>;

    /// An adapter took something off the engine.
    fn handle_report(&mut self, now: Instant, adapter: u8, report: &Self::Report);

    /// An adapter has forgotten all it was told, and will report none of it.
    fn adapter_lost(&mut self, now: Instant, adapter: u8);
}

/// What is sealed no adapter opens: an engine has adapters where nothing of it is.
#[cfg(feature = "seal")]
impl<E: Offloaded> Offloaded for landfall_seal::Sealed<E> {
    type Command = E::Command;
    type Report = E::Report;

    fn poll_command(&mut self, adapter: u8) -> Option<Self::Command> {
        (**self).poll_command(adapter)
    }

    fn handle_report(&mut self, now: Instant, adapter: u8, report: &Self::Report) {
        (**self).handle_report(now, adapter, report);
    }

    fn adapter_lost(&mut self, now: Instant, adapter: u8) {
        (**self).adapter_lost(now, adapter);
    }
}

/// Tigon-IIs: each has a copy of some of the engine's Blocks.
impl Offloaded for Endpoint {
    type Command = stp_core::offload::Command;
    type Report = stp_core::offload::Report;

    fn poll_command(&mut self, adapter: u8) -> Option<Self::Command> {
        Self::poll_command(self, adapter)
    }

    fn handle_report(&mut self, now: Instant, adapter: u8, report: &Self::Report) {
        Self::handle_report(self, now, adapter, report);
    }

    fn adapter_lost(&mut self, now: Instant, adapter: u8) {
        Self::adapter_lost(self, now, adapter);
    }
}

/// One adapter is joined to an engine that knows of one only: further ones know nothing and
/// place nothing.
macro_rules! with_one_adapter {
    ($(#[$about:meta])* $engine:ty, $module:ident, $lost:expr) => {
        $(#[$about])*
        impl Offloaded for $engine {
            type Command = $module::offload::Command;
            type Report = $module::offload::Report;

            fn poll_command(&mut self, adapter: u8) -> Option<Self::Command> {
                if adapter == 0 { Self::poll_command(self) } else { None }
            }

            fn handle_report(&mut self, now: Instant, adapter: u8, report: &Self::Report) {
                if adapter == 0 {
                    Self::handle_report(self, now, report);
                }
            }

            fn adapter_lost(&mut self, now: Instant, adapter: u8) {
                if adapter == 0 {
                    $lost(self, now);
                }
            }
        }
    };
}

with_one_adapter! {
    /// A LANai 9: it carries all paths of the engine, which is configured so that it
    /// [delegates](qpip::Config::delegates).
    qpip::Adapter, qpip, |engine: &mut Self, _| engine.handle_card_lost()
}

with_one_adapter! {
    /// A CLAN adapter at a native link, which is one link and so has one adapter. Frames of
    /// networks hold several packets, may come twice and out of order, and count once their
    /// turn has come: of those the adapter of the paper takes none, and is told nothing.
    Nic, clan_dsm, Nic::adapter_lost
}
