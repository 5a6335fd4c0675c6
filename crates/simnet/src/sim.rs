//! [`Sim`]: building a network, running it, looking at it.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;
use core::ops::ControlFlow;

use landfall_placement::{Instant, Random, Seed};

use crate::capture::{Capture, Encapsulation, Sink};
use crate::error::{Error, Limits};
use crate::event::Event;
use crate::frame::Frame;
use crate::link::{DirectionId, LinkConfig, LinkId};
pub use crate::link_direction::Fate;
use crate::net::Net;
use crate::node::{Handle, LinkState, Node, NodeId, Outbox, PortId};
use crate::queue::QueuePolicy;
use crate::stats::LinkStats;

/// How a run ended that was not ended by an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is going to happen any more.
    Idle,
    /// The deadline is reached.
    Deadline,
    /// The hook ended it.
    Stopped,
}

struct Slot {
    name: String,
    node: Box<dyn Node>,
}

/// A network in virtual time.
///
/// Everything that happens is determined by the seed and by what the nodes do:
/// two runs are the same, byte for byte. Each direction of each link draws from
/// its own stream of random numbers, in the order in which links are added, so
/// that a further link does not change what happens on the others.
pub struct Sim {
    nodes: Vec<Slot>,
    net: Net,
    /// Nodes that were borrowed mutably: their timers may have changed.
    touched: Vec<NodeId>,
    /// Events at the present moment.
    at_once: u64,
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim")
            .field("now", &self.net.now)
            .field("nodes", &self.nodes.iter().map(|slot| &slot.name).collect::<Vec<_>>())
            .field("ways", &self.net.ways)
            .finish_non_exhaustive()
    }
}

/// Building.
impl Sim {
    /// An empty network whose luck is determined by a seed.
    #[must_use]
    pub fn new(seed: Seed) -> Self {
        Self::with_limits(seed, Limits::default())
    }

    /// An empty network whose seed is only a number.
    #[must_use]
    pub fn from_number(seed: u64) -> Self {
        let mut random = Random::from_number(seed);
        Self::new(random.fork())
    }

    /// An empty network with bounds of its own.
    #[must_use]
    pub fn with_limits(seed: Seed, limits: Limits) -> Self {
        let net = Net::new(Random::new(seed), limits);
        Self { nodes: Vec::new(), net, touched: Vec::new(), at_once: 0 }
    }

    /// Adds a node; its name is for people.
    ///
    /// # Errors
    /// [`Error::TooManyNodes`].
    pub fn add<N: Node>(&mut self, name: &str, node: N) -> Result<Handle<N>, Error> {
        let limit = self.net.limits.nodes.min(u32::MAX as usize);
        if self.nodes.len() >= limit {
            return Err(Error::TooManyNodes { limit });
        }
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(Slot { name: name.to_string(), node: Box::new(node) });
        self.net.add_node();
        self.touched.push(id);
        Ok(Handle::new(id))
    }

    /// Connects two nodes by a link that is the same in both directions. There
    /// may be several between two nodes; each takes the next port of both.
    ///
    /// # Errors
    /// [`Error::TooManyLinks`], [`Error::NoSuchNode`].
    pub fn connect(
        &mut self,
        a: impl Into<NodeId>,
        b: impl Into<NodeId>,
        both: LinkConfig,
    ) -> Result<LinkId, Error> {
        self.connect_each(a, b, both, both)
    }

    /// Connects two nodes by a link that differs by direction: `there` is from
    /// `a` to `b`.
    ///
    /// # Errors
    /// [`Error::TooManyLinks`], [`Error::NoSuchNode`].
    pub fn connect_each(
        &mut self,
        a: impl Into<NodeId>,
        b: impl Into<NodeId>,
        there: LinkConfig,
        back: LinkConfig,
    ) -> Result<LinkId, Error> {
        let link = self.net.add_link([a.into(), b.into()], [there, back])?;
        for direction in [link.there(), link.back()] {
            self.notify_link(direction);
        }
        Ok(link)
    }

    /// Replaces the plain queue in front of a way by one with another policy.
    ///
    /// # Errors
    /// [`Error::NoSuchLink`].
    pub fn set_queue_policy(
        &mut self,
        direction: DirectionId,
        policy: impl QueuePolicy + 'static,
    ) -> Result<(), Error> {
        self.check(direction)?;
        self.net.ways[direction.index()].policy = Some(Box::new(policy));
        Ok(())
    }

    /// Lets a function see each frame before it joins the queue of a way: it
    /// may look, count, change bytes, or take the frame away.
    ///
    /// # Errors
    /// [`Error::NoSuchLink`].
    pub fn intercept(
        &mut self,
        direction: DirectionId,
        interceptor: impl FnMut(Instant, &mut Frame) -> Fate + 'static,
    ) -> Result<(), Error> {
        self.check(direction)?;
        self.net.ways[direction.index()].interceptor = Some(Box::new(interceptor));
        Ok(())
    }

    fn check(&self, direction: DirectionId) -> Result<(), Error> {
        self.net.ways.get(direction.index()).map(|_| ()).ok_or(Error::NoSuchLink(direction))
    }
}

/// Acting from outside.
impl Sim {
    /// Changes what a way does from now on, and tells both ends of the link.
    ///
    /// # Errors
    /// [`Error::NoSuchLink`].
    pub fn configure(&mut self, direction: DirectionId, config: LinkConfig) -> Result<(), Error> {
        self.check(direction)?;
        let old = core::mem::replace(&mut self.net.ways[direction.index()].config, config);
        if old.mtu != config.mtu {
            self.notify_link(direction);
        }
        Ok(())
    }

    /// Takes a link down, or up again, at once. What is on it is lost.
    ///
    /// # Errors
    /// [`Error::NoSuchLink`].
    pub fn set_link(&mut self, link: LinkId, up: bool) -> Result<(), Error> {
        self.check(link.there())?;
        self.change_link(link, up);
        Ok(())
    }

    /// Takes a link down, or up again, at a moment to come.
    ///
    /// # Errors
    /// [`Error::NoSuchLink`], [`Error::TooManyScheduled`].
    pub fn schedule_link(&mut self, at: Instant, link: LinkId, up: bool) -> Result<(), Error> {
        self.check(link.there())?;
        self.net.schedule(at, Event::Change { direction: link.there(), up })
    }

    /// Sends a frame as if a node did.
    ///
    /// # Errors
    /// [`Error::NoSuchNode`].
    pub fn send(
        &mut self,
        node: impl Into<NodeId>,
        port: PortId,
        frame: Frame,
    ) -> Result<(), Error> {
        let node = node.into();
        if node.0 as usize >= self.nodes.len() {
            return Err(Error::NoSuchNode(node));
        }
        self.net.send(node, port, frame);
        Ok(())
    }

    /// A node, to be changed. The simulation asks it for its timer again
    /// before time goes on: one that wants to act says "at once".
    ///
    /// # Errors
    /// [`Error::NoSuchNode`] where the handle is of another simulation.
    pub fn node_mut<N: Node>(&mut self, handle: Handle<N>) -> Result<&mut N, Error> {
        let id = handle.id();
        let slot = self.nodes.get_mut(id.0 as usize).ok_or(Error::NoSuchNode(id))?;
        let node: &mut dyn Any = slot.node.as_mut();
        let node = node.downcast_mut().ok_or(Error::NoSuchNode(id))?;
        self.touched.push(id);
        Ok(node)
    }
}

/// Looking.
impl Sim {
    /// The present moment.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.net.now
    }

    /// A node.
    ///
    /// # Errors
    /// [`Error::NoSuchNode`] where the handle is of another simulation.
    pub fn node<N: Node>(&self, handle: Handle<N>) -> Result<&N, Error> {
        let id = handle.id();
        let slot = self.nodes.get(id.0 as usize).ok_or(Error::NoSuchNode(id))?;
        let node: &dyn Any = slot.node.as_ref();
        node.downcast_ref().ok_or(Error::NoSuchNode(id))
    }

    /// What became of the frames of a way; all zero where there is no such way.
    #[must_use]
    pub fn stats(&self, direction: DirectionId) -> LinkStats {
        self.net
            .ways
            .get(direction.index())
            .map_or_else(LinkStats::default, |direction| direction.stats)
    }

    /// How a way is configured.
    #[must_use]
    pub fn link_config(&self, direction: DirectionId) -> Option<&LinkConfig> {
        self.net.ways.get(direction.index()).map(|direction| &direction.config)
    }

    /// Frames that nodes sent to ports that they do not have.
    #[must_use]
    pub fn misdirected(&self) -> u64 {
        self.net.misdirected
    }

    /// A fingerprint of every frame delivered so far: where, when, and its
    /// bytes. Two runs with one seed have the same.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.net.digest.0
    }

    /// How many frames are in queues and on their way.
    #[must_use]
    pub fn frames_under_way(&self) -> usize {
        self.net.frames.len()
    }

    /// When the next thing happens.
    #[must_use]
    pub fn next_at(&self) -> Option<Instant> {
        self.net.events.next_at()
    }
}

/// Capturing.
impl Sim {
    /// The room that [`capture_all`](Sim::capture_all) takes in memory at most.
    pub const CAPTURE_BYTES: usize = 256 << 20;

    /// Begins a capture; an earlier one is forgotten. [`tap`](Sim::tap) says
    /// what is captured.
    pub fn capture_to(&mut self, sink: Sink) {
        self.net.ways.iter_mut().for_each(|direction| direction.tap = None);
        self.net.capture = Some(Capture::new(sink));
    }

    /// Captures, from now on, the end of a link from which `direction` leaves: what
    /// leaves there, and what arrives there over the reverse way. Without a
    /// capture under way one is begun in memory.
    ///
    /// # Errors
    /// [`Error::NoSuchLink`].
    pub fn tap(
        &mut self,
        direction: DirectionId,
        encapsulation: Encapsulation,
    ) -> Result<(), Error> {
        self.check(direction)?;
        if self.net.capture.is_none() {
            self.capture_to(Sink::Memory { limit: Self::CAPTURE_BYTES });
        }
        let tapped = &mut self.net.ways[direction.index()];
        let ((here, PortId(port)), (there, _)) = (tapped.from, tapped.to);
        let name = alloc::format!("{}:{port}", self.nodes[here.0 as usize].name);
        if let Some(capture) = &mut self.net.capture {
            tapped.tap = Some(capture.add_interface(&name, encapsulation, here, there));
        }
        Ok(())
    }

    /// Captures both ends of every link that there is, in memory.
    pub fn capture_all(&mut self, encapsulation: Encapsulation) {
        self.capture_to(Sink::Memory { limit: Self::CAPTURE_BYTES });
        for direction in 0..self.net.ways.len() as u32 {
            // The way exists, so there is no error.
            let _ = self.tap(DirectionId(direction), encapsulation);
        }
    }

    /// The capture in memory, as a pcapng file.
    #[must_use]
    pub fn captured(&self) -> &[u8] {
        self.net.capture.as_ref().map_or(&[], Capture::bytes)
    }

    /// How many records did not fit into the capture in memory.
    #[must_use]
    pub fn capture_missed(&self) -> u64 {
        self.net.capture.as_ref().map_or(0, Capture::missed)
    }

    /// Writes the capture in memory into a file.
    ///
    /// # Errors
    /// Those of writing a file.
    #[cfg(feature = "std")]
    pub fn save_capture(&self, file: impl AsRef<std::path::Path>) -> std::io::Result<()> {
        std::fs::write(file, self.captured())
    }
}

/// Running.
impl Sim {
    /// Lets the next thing happen, if it is not after `deadline`; says whether
    /// there was one.
    ///
    /// # Errors
    /// Whatever stops a run. The error stays: the run cannot go on.
    pub fn step(&mut self, deadline: Instant) -> Result<bool, Error> {
        self.ask_touched();
        self.result()?;
        let Some((at, event)) = self.net.events.pop(deadline) else { return Ok(false) };
        if at > self.net.now {
            self.net.now = at;
            self.at_once = 0;
        }
        self.at_once += 1;
        if self.at_once > self.net.limits.events_per_instant {
            self.net.fail(Error::Stuck { at: self.net.now });
            self.result()?;
        }
        self.happen(event);
        self.result()?;
        Ok(true)
    }

    /// Runs until nothing is going to happen any more, or until `deadline`,
    /// which is then the present moment.
    ///
    /// # Errors
    /// Whatever stops a run.
    pub fn run_until(&mut self, deadline: Instant) -> Result<Outcome, Error> {
        self.run_until_with(deadline, |_| ControlFlow::Continue(()))
    }

    /// The same, with a hook that is called after every event: it checks what
    /// must always be so, changes the network, or ends the run.
    ///
    /// # Errors
    /// Whatever stops a run.
    pub fn run_until_with(
        &mut self,
        deadline: Instant,
        mut hook: impl FnMut(&mut Self) -> ControlFlow<()>,
    ) -> Result<Outcome, Error> {
        while self.step(deadline)? {
            if hook(self).is_break() {
                return Ok(Outcome::Stopped);
            }
        }
        if self.net.events.next_at().is_none() {
            return Ok(Outcome::Idle);
        }
        if deadline > self.net.now {
            self.net.now = deadline;
            self.at_once = 0;
        }
        Ok(Outcome::Deadline)
    }

    fn result(&self) -> Result<(), Error> {
        self.net.failure.clone().map_or(Ok(()), Err)
    }

    fn happen(&mut self, event: Event) {
        let now = self.net.now;
        match event {
            Event::Arrive { direction, epoch, frame } => {
                if let Some(arrival) = self.net.arrived(direction, epoch, frame) {
                    self.call(arrival.node, |node, out| {
                        node.handle_frame(now, arrival.port, arrival.frame, out);
                    });
                }
            }
            Event::Departed { direction, epoch } => {
                let waits = self.net.departed(direction, epoch);
                self.notify_room(waits);
            }
            Event::Resume { direction, epoch } => {
                let waits = self.net.resumed(direction, epoch);
                self.notify_room(waits);
            }
            Event::Send { node, port, frame } => {
                self.net.scheduled -= 1;
                if let Some(frame) = self.net.frames.remove(frame) {
                    self.net.send(node, port, frame);
                }
            }
            Event::Change { direction, up } => {
                self.net.scheduled -= 1;
                self.change_link(direction.link(), up);
            }
            Event::Timer { node } => {
                self.call(node, |node, out| node.handle_timeout(now, out));
            }
        }
    }

    fn notify_room(&mut self, waits: Option<(NodeId, PortId)>) {
        let now = self.net.now;
        if let Some((node, port)) = waits {
            self.call(node, |node, out| node.handle_room(now, port, out));
        }
    }

    /// Calls a node, and asks for its timer afterwards.
    fn call(&mut self, id: NodeId, action: impl FnOnce(&mut dyn Node, &mut Outbox<'_>)) {
        if let Some(slot) = self.nodes.get_mut(id.0 as usize) {
            action(slot.node.as_mut(), &mut Outbox { net: &mut self.net, node: id });
            Self::arm(slot, id, &mut self.net);
        }
    }

    fn arm(slot: &Slot, id: NodeId, net: &mut Net) {
        let at = slot.node.poll_timeout().map(|at| at.max(net.now));
        net.events.arm(id, at);
    }

    fn ask_touched(&mut self) {
        for id in self.touched.drain(..) {
            if let Some(slot) = self.nodes.get(id.0 as usize) {
                Self::arm(slot, id, &mut self.net);
            }
        }
    }

    fn change_link(&mut self, link: LinkId, up: bool) {
        for direction in [link.there(), link.back()] {
            if self.net.change(direction, up) {
                self.notify_link(direction);
            }
        }
    }

    /// Tells the node from which a way leaves what it can expect of it.
    fn notify_link(&mut self, direction: DirectionId) {
        let now = self.net.now;
        let told = &self.net.ways[direction.index()];
        let ((node, port), mtu) = (told.from, told.config.mtu);
        let state = if told.up { LinkState::Up { mtu } } else { LinkState::Down };
        self.call(node, |node, out| node.handle_link(now, port, state, out));
    }
}
