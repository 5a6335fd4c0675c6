//! What takes part in a network: the [`Node`] trait, and its way out, the [`Outbox`].

use alloc::string::String;
use core::any::Any;
use core::fmt;
use core::marker::PhantomData;

use landfall_placement::{Duration, Instant, Peer};

use crate::frame::Frame;
use crate::net::Net;
use crate::queue::Backlog;

/// Names a node of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The address under which protocols without their own addresses reach it.
    #[must_use]
    pub const fn peer(self) -> Peer {
        Peer::Node(self.0)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// One of the links of a node: 0, 1, … in the order they were connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortId(pub u16);

/// Names a node whose type is known, so that it can be looked into.
pub struct Handle<N> {
    id: NodeId,
    of: PhantomData<fn() -> N>,
}

impl<N> Handle<N> {
    pub(crate) const fn new(id: NodeId) -> Self {
        Self { id, of: PhantomData }
    }

    /// The name without the type.
    #[must_use]
    pub const fn id(self) -> NodeId {
        self.id
    }

    /// The address under which protocols without their own addresses reach it.
    #[must_use]
    pub const fn peer(self) -> Peer {
        self.id.peer()
    }
}

impl<N> Clone for Handle<N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<N> Copy for Handle<N> {}

impl<N> fmt::Debug for Handle<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}

impl<N> From<Handle<N>> for NodeId {
    fn from(handle: Handle<N>) -> Self {
        handle.id
    }
}

/// What a node is told of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Frames of up to `mtu` bytes can be sent.
    Up {
        /// The longest frame.
        mtu: u32,
    },
    /// Nothing crosses until it is up again.
    Down,
}

/// Anything that takes part in a network.
///
/// A closure that takes the arguments of [`handle_frame`](Node::handle_frame)
/// is a node too.
///
/// After each call the simulation asks [`poll_timeout`](Node::poll_timeout)
/// anew; there is one timer per node.
pub trait Node: Any {
    /// A frame arrived.
    fn handle_frame(&mut self, now: Instant, port: PortId, frame: Frame, out: &mut Outbox<'_>);

    /// A link was connected, changed, or went down.
    fn handle_link(
        &mut self,
        _now: Instant,
        _port: PortId,
        _state: LinkState,
        _out: &mut Outbox<'_>,
    ) {
    }

    /// The queue of a port has room again, after [`Outbox::call_when_room`].
    fn handle_room(&mut self, _now: Instant, _port: PortId, _out: &mut Outbox<'_>) {}

    /// The moment of [`poll_timeout`](Node::poll_timeout) has come.
    fn handle_timeout(&mut self, _now: Instant, _out: &mut Outbox<'_>) {}

    /// When to call [`handle_timeout`](Node::handle_timeout); a moment in the
    /// past means at once.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

impl<F> Node for F
where
    F: FnMut(Instant, PortId, Frame, &mut Outbox<'_>) + 'static,
{
    fn handle_frame(&mut self, now: Instant, port: PortId, frame: Frame, out: &mut Outbox<'_>) {
        self(now, port, frame, out);
    }
}

/// What a node can do to the network while it is called.
#[derive(Debug)]
pub struct Outbox<'a> {
    pub(crate) net: &'a mut Net,
    pub(crate) node: NodeId,
}

impl Outbox<'_> {
    /// Who is being called.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// How many ports the node has.
    #[must_use]
    pub fn ports(&self) -> u16 {
        self.net.ports(self.node)
    }

    /// Sends a frame. What becomes of it is in the statistics of the link.
    pub fn send(&mut self, port: PortId, frame: Frame) {
        self.net.send(self.node, port, frame);
    }

    /// Sends a frame after a while: the time that a switch or an adapter needs.
    pub fn send_after(&mut self, delay: Duration, port: PortId, frame: Frame) {
        self.net.send_after(delay, self.node, port, frame);
    }

    /// Whether a frame sent now would find room in the queue of the port, as
    /// far as its length limits go.
    #[must_use]
    pub fn has_room(&self, port: PortId) -> bool {
        self.net.has_room(self.node, port)
    }

    /// The queue of the port, as a frame sent now would find it.
    #[must_use]
    pub fn backlog(&self, port: PortId) -> Backlog {
        self.net.backlog(self.node, port)
    }

    /// Starts no further frame on this port for some time, as an Ethernet
    /// station does that got a pause frame (IEEE 802.3, 31B). It replaces a
    /// pause under way; no time at all ends that.
    pub fn pause(&mut self, port: PortId, time: Duration) {
        self.net.pause(self.node, port, time);
    }

    /// Lets the far end of a port start no further frame, as a switch does that has no
    /// room for what would come: on Myrinet with a symbol between the bits.
    pub fn hold_peer(&mut self, port: PortId) {
        self.net.hold_peer(self.node, port);
    }

    /// Lets the far end of a port go on that was [held](Self::hold_peer).
    pub fn let_peer_go(&mut self, port: PortId) {
        self.net.let_peer_go(self.node, port);
    }

    /// Asks for one call of [`Node::handle_room`] when the queue of the port
    /// has become shorter.
    pub fn call_when_room(&mut self, port: PortId) {
        self.net.call_when_room(self.node, port);
    }

    /// Ends the run with [`Error::Broken`](crate::Error::Broken): the node
    /// found something that must not be.
    pub fn fail(&mut self, what: impl Into<String>) {
        self.net.fail_at(self.node, what.into());
    }
}
