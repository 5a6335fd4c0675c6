//! [`World`]: two hosts and what lies between them, in the simulator. Comparisons of a host
//! behind an adapter with one without, measurements and tests run in it.
//!
//! | file | what is there |
//! | --- | --- |
//! | `record` | [`Record`]: all that can be seen of a run, and in what two runs differ |
//! | `play` | runs that are decoded from bytes, and the users in them (feature `model`) |
//!
//! What does not live here: engines, adapters and what their users do; those are each
//! adapter's.

#[cfg(feature = "model")]
pub(crate) mod play;
mod record;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::ops::DerefMut;
use std::rc::Rc;

use landfall_placement::{Area, Duration, Engine, Instant};
use landfall_simnet::engine_node::EngineHost;
use landfall_simnet::sim::Fate;
use landfall_simnet::{
    DirectionId, Frame, Handle, LinkConfig, LinkId, Memory, Node, NodeId, PortId, Sim,
};

pub use record::Record;

/// This many of the last frames are remembered, to be forged.
const REMEMBERED: usize = 64;

/// A node that runs this engine, behind adapters or without.
pub trait Runs<E: Engine>: Node + Sized + DerefMut<Target = EngineHost<E>> {
    /// Hands each event to a function at once.
    #[must_use]
    fn with_handler(
        mut self,
        handler: impl FnMut(Instant, &mut E, &mut Memory, E::Event) + 'static,
    ) -> Self {
        self.set_handler(handler);
        self
    }
}

impl<E: Engine, N: Node + DerefMut<Target = EngineHost<E>>> Runs<E> for N {}

/// Frames that were sent, the newest first, and by which port of their sender.
type SentFrames = Rc<RefCell<VecDeque<(PortId, Frame)>>>;

/// Two hosts in a simulated network: side 0 is the host, which may be behind an adapter, side
/// 1 its peer.
///
/// What goes wrong with the simulation itself (somebody writes where he must not, invariant
/// 1) is kept in [`wrong`](Self::wrong).
pub struct World<E, H, P = H> {
    sim: Sim,
    host: Handle<H>,
    peer: Handle<P>,
    links: Vec<LinkId>,
    past: SentFrames,
    wrong: Vec<String>,
    engine: PhantomData<fn() -> E>,
}

impl<E, H, P> fmt::Debug for World<E, H, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("sim", &self.sim).field("wrong", &self.wrong).finish()
    }
}

/// Handles never outlive their simulation.
const KNOWN: &str = "a node of this simulation";

impl<E: Engine, H: Runs<E>, P: Runs<E>> World<E, H, P> {
    /// Two hosts under these names; the seed is the network's.
    ///
    /// # Panics
    /// Never: a network has room for two.
    #[must_use]
    pub fn new(seed: u64, (host_name, host): (&str, H), (peer_name, peer): (&str, P)) -> Self {
        let mut sim = Sim::from_number(seed);
        let host = sim.add(host_name, host).expect("a network has room for two");
        let peer = sim.add(peer_name, peer).expect("a network has room for two");
        let (links, wrong) = (Vec::new(), Vec::new());
        Self { sim, host, peer, links, past: SentFrames::default(), wrong, engine: PhantomData }
    }

    /// One more link between the two. Where there is no room for it there is none.
    pub fn connect(&mut self, link: LinkConfig) -> Option<LinkId> {
        let link = self.sim.connect(self.host.id(), self.peer.id(), link).ok()?;
        self.links.push(link);
        Some(link)
    }

    /// Remembers the last frames that were sent over these ways, by the port that they left.
    pub fn remember(&mut self, ways: impl IntoIterator<Item = (DirectionId, PortId)>) {
        for (direction, port) in ways {
            let past = self.past.clone();
            let remember = move |_: Instant, frame: &mut Frame| {
                let mut past = past.borrow_mut();
                past.truncate(REMEMBERED - 1);
                past.push_front((port, frame.clone()));
                Fate::Pass
            };
            let remembered = self.sim.intercept(direction, remember);
            self.note(remembered);
        }
    }

    // ---- Looking at it -------------------------------------------------------

    /// The network.
    #[must_use]
    pub const fn sim(&self) -> &Sim {
        &self.sim
    }

    /// The network, to be changed.
    pub const fn sim_mut(&mut self) -> &mut Sim {
        &mut self.sim
    }

    /// What time it is.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.sim.now()
    }

    /// The links between the two, in the order of ports.
    #[must_use]
    pub fn links(&self) -> &[LinkId] {
        &self.links
    }

    /// Who a side is to the network.
    #[must_use]
    pub const fn id(&self, side: usize) -> NodeId {
        if side == 0 { self.host.id() } else { self.peer.id() }
    }

    /// The host.
    ///
    /// # Panics
    /// Never: it is a node of this simulation; as are all that follow.
    #[must_use]
    pub fn host(&self) -> &H {
        self.sim.node(self.host).expect(KNOWN)
    }

    /// The host, to be used.
    ///
    /// # Panics
    /// Never.
    pub fn host_mut(&mut self) -> &mut H {
        self.sim.node_mut(self.host).expect(KNOWN)
    }

    /// Its peer.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn peer(&self) -> &P {
        self.sim.node(self.peer).expect(KNOWN)
    }

    /// Its peer, to be used.
    ///
    /// # Panics
    /// Never.
    pub fn peer_mut(&mut self) -> &mut P {
        self.sim.node_mut(self.peer).expect(KNOWN)
    }

    /// The engine of a side; looking at it wakes nobody.
    #[must_use]
    pub fn engine(&self, side: usize) -> &E {
        if side == 0 { self.host().engine() } else { self.peer().engine() }
    }

    /// The engine of a side, to be used.
    pub fn engine_mut(&mut self, side: usize) -> &mut E {
        if side == 0 { self.host_mut().engine_mut() } else { self.peer_mut().engine_mut() }
    }

    /// The memory of a side.
    #[must_use]
    pub fn memory(&self, side: usize) -> &Memory {
        if side == 0 { self.host().memory() } else { self.peer().memory() }
    }

    /// The memory of a side, to be changed.
    pub fn memory_mut(&mut self, side: usize) -> &mut Memory {
        if side == 0 { self.host_mut().memory_mut() } else { self.peer_mut().memory_mut() }
    }

    /// The bytes of an area of a side.
    ///
    /// # Panics
    /// They are no memory of it.
    #[must_use]
    pub fn bytes(&self, side: usize, area: Area) -> &[u8] {
        let span = area.span(0, area.len as u32);
        self.memory(side).read(span).expect("memory of this side")
    }

    /// Lends these bytes of a side to the network.
    ///
    /// # Panics
    /// There is no room for a region more.
    pub fn lend(&mut self, side: usize, bytes: Vec<u8>) -> Area {
        let len = bytes.len() as u64;
        Area::new(self.memory_mut(side).lend(bytes).expect("room for a region"), 0, len)
    }

    // ---- Frames that nobody sent so ------------------------------------------

    /// A frame of the recent past, the newest for 0, and by which port it left its sender.
    #[must_use]
    pub fn past(&self, which: usize) -> Option<(PortId, Frame)> {
        let past = self.past.borrow();
        past.get(which.checked_rem(past.len())?).cloned()
    }

    /// Sends a frame as if this node did.
    pub fn send(&mut self, from: NodeId, port: PortId, frame: Frame) {
        let sent = self.sim.send(from, port, frame);
        self.note(sent);
    }

    // ---- Time ----------------------------------------------------------------

    /// What went wrong with the run itself so far.
    #[must_use]
    pub fn wrong(&self) -> &[String] {
        &self.wrong
    }

    /// Keeps what went wrong, if anything did.
    pub fn note<T>(&mut self, result: Result<T, impl fmt::Display>) -> Option<T> {
        result.map_err(|error| self.wrong.push(error.to_string())).ok()
    }

    /// The next thing happens, but nothing behind `deadline`. False where there is none, or
    /// the simulation cannot go on.
    pub fn step(&mut self, deadline: Instant) -> bool {
        let step = self.sim.step(deadline);
        self.note(step).unwrap_or(false)
    }

    /// Lets time pass until then.
    pub fn run_until(&mut self, deadline: Instant) {
        let end = self.sim.run_until(deadline);
        self.note(end);
    }

    /// Lets so much time pass, in which nothing may go wrong.
    ///
    /// # Panics
    /// Something does.
    pub fn advance(&mut self, time: Duration) {
        self.wait(time);
        assert!(self.wrong.is_empty(), "{:?}", self.wrong);
    }

    /// Lets so much time pass.
    pub fn wait(&mut self, time: Duration) {
        self.run_until(self.now() + time);
    }
}

impl<E: Engine, N: Runs<E>> World<E, N> {
    /// A side, where both are of one kind.
    #[must_use]
    pub fn node(&self, side: usize) -> &N {
        if side == 0 { self.host() } else { self.peer() }
    }

    /// A side, to be used.
    pub fn node_mut(&mut self, side: usize) -> &mut N {
        if side == 0 { self.host_mut() } else { self.peer_mut() }
    }
}
