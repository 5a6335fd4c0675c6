//! A node that forwards: [`Switch`], and how it decides where to.
//!
//! It stores and forwards: a frame is sent on once its last bit has come. The
//! finite queues are those of the links behind its ports; what is dropped or
//! marked there is up to their [`QueuePolicy`](crate::QueuePolicy).

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use core::fmt;

use landfall_placement::{Duration, Instant, Peer};

use crate::frame::Frame;
use crate::node::{Node, Outbox, PortId};

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Out of this port.
    To(PortId),
    /// Out of every port but the one it came from.
    Flood,
    /// Nowhere.
    Discard,
}

/// Decides where frames go.
pub trait Forwarding: fmt::Debug {
    /// Where does this frame go, which came from that port?
    fn decide(&mut self, from: PortId, frame: &Frame) -> Decision;
}

/// Learns from which port a station sends, and floods what is for others, as
/// Ethernet switches do (IEEE 802.1Q, 8.7 and 8.8, without ageing). The network
/// must be a tree.
#[derive(Debug)]
pub struct Learning {
    addresses: Addresses,
    ports: BTreeMap<Peer, PortId>,
    /// In the order they were learned: the oldest makes room.
    order: VecDeque<Peer>,
    most: usize,
}

/// Where the addresses of frames are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// Beside the bytes: [`Frame::from`] and [`Frame::to`].
    Beside,
    /// At the start of the bytes, as on Ethernet.
    Ethernet,
}

impl Learning {
    /// A table of at most this many stations.
    #[must_use]
    pub fn new(addresses: Addresses, most: usize) -> Self {
        Self { addresses, ports: BTreeMap::new(), order: VecDeque::new(), most: most.max(1) }
    }

    fn learn(&mut self, station: Peer, port: PortId) {
        if self.ports.insert(station, port).is_some() {
            return;
        }
        self.order.push_back(station);
        if self.order.len() > self.most
            && let Some(oldest) = self.order.pop_front()
        {
            self.ports.remove(&oldest);
        }
    }
}

impl Addresses {
    /// From whom and to whom, where that is known.
    fn of(self, frame: &Frame) -> (Peer, Peer) {
        match self {
            Self::Beside => (frame.from, frame.to),
            Self::Ethernet => match frame.bytes.first_chunk() {
                Some(&[a, b, c, d, e, f, s, t, u, v, w, x]) => {
                    (Peer::Ethernet([s, t, u, v, w, x]), Peer::Ethernet([a, b, c, d, e, f]))
                }
                None => (Peer::Unaddressed, Peer::Unaddressed),
            },
        }
    }
}

/// One station, not a group: the lowest bit of the first byte is not set.
fn is_one_station(peer: Peer) -> bool {
    match peer {
        Peer::Unaddressed => false,
        Peer::Ethernet([first, ..]) => first & 1 == 0,
        Peer::Node(_) | Peer::Ip(_) | Peer::Socket(_) => true,
    }
}

impl Forwarding for Learning {
    fn decide(&mut self, arrived: PortId, frame: &Frame) -> Decision {
        let (from, to) = self.addresses.of(frame);
        if self.addresses == Addresses::Ethernet && from == Peer::Unaddressed {
            return Decision::Discard; // Too short to be an Ethernet frame.
        }
        if is_one_station(from) {
            self.learn(from, arrived);
        }
        match self.ports.get(&to) {
            Some(port) if *port == arrived => Decision::Discard, // It is on that side already.
            Some(port) => Decision::To(*port),
            None => Decision::Flood,
        }
    }
}

/// Fixed routes by [`Frame::to`]; the network may have any shape.
#[derive(Clone, Debug, Default)]
pub struct Routes(BTreeMap<Peer, PortId>);

impl Routes {
    /// No routes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What is for this peer leaves through this port.
    #[must_use]
    pub fn with(mut self, to: Peer, port: PortId) -> Self {
        self.0.insert(to, port);
        self
    }
}

impl Forwarding for Routes {
    fn decide(&mut self, _arrived: PortId, frame: &Frame) -> Decision {
        self.0.get(&frame.to).map_or(Decision::Discard, |port| Decision::To(*port))
    }
}

/// A node that forwards.
#[derive(Debug)]
pub struct Switch {
    forwarding: Box<dyn Forwarding>,
    latency: Duration,
    /// Frames that had no way to go.
    pub discarded: u64,
    /// Frames that were sent out of more ports than one needs to be.
    pub flooded: u64,
}

impl Switch {
    /// The stations that a learning switch remembers.
    pub const STATIONS: usize = 1_024;

    /// A switch with a way of its own to decide.
    #[must_use]
    pub fn new(forwarding: impl Forwarding + 'static) -> Self {
        let forwarding = Box::new(forwarding);
        Self { forwarding, latency: Duration::ZERO, discarded: 0, flooded: 0 }
    }

    /// A switch that learns who is where from the addresses beside the bytes:
    /// for engines that address [`Peer::Node`] and the like.
    #[must_use]
    pub fn learning() -> Self {
        Self::new(Learning::new(Addresses::Beside, Self::STATIONS))
    }

    /// A switch that learns who is where from Ethernet headers.
    #[must_use]
    pub fn ethernet() -> Self {
        Self::new(Learning::new(Addresses::Ethernet, Self::STATIONS))
    }

    /// Takes so long between receiving a frame and sending it.
    #[must_use]
    pub fn latency(self, latency: Duration) -> Self {
        Self { latency, ..self }
    }

    fn send(&self, port: PortId, frame: Frame, out: &mut Outbox<'_>) {
        if self.latency.is_zero() {
            out.send(port, frame);
        } else {
            out.send_after(self.latency, port, frame);
        }
    }
}

impl Node for Switch {
    fn handle_frame(&mut self, _now: Instant, from: PortId, frame: Frame, out: &mut Outbox<'_>) {
        match self.forwarding.decide(from, &frame) {
            Decision::To(port) => self.send(port, frame, out),
            Decision::Discard => self.discarded += 1,
            Decision::Flood => {
                self.flooded += 1;
                for port in (0..out.ports()).map(PortId).filter(|port| *port != from) {
                    self.send(port, frame.clone(), out);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ethernet(to: u8, from: u8) -> Frame {
        Frame::raw([2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 8, 0])
    }

    #[test]
    fn a_learning_table_forgets_the_oldest() {
        let mut table = Learning::new(Addresses::Ethernet, 2);
        assert_eq!(table.decide(PortId(1), &ethernet(9, 1)), Decision::Flood);
        assert_eq!(table.decide(PortId(2), &ethernet(1, 2)), Decision::To(PortId(1)));
        assert_eq!(table.decide(PortId(3), &ethernet(2, 3)), Decision::To(PortId(2)));
        assert_eq!(table.decide(PortId(3), &ethernet(1, 3)), Decision::Flood, "1 was forgotten");
        assert_eq!(table.ports.len(), 2);
    }

    #[test]
    fn groups_are_flooded_and_never_learned() {
        let mut table = Learning::new(Addresses::Ethernet, 8);
        let from_group = Frame::raw([2, 0, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(table.decide(PortId(1), &from_group), Decision::Flood);
        let broadcast = Frame::raw([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1]);
        assert_eq!(table.decide(PortId(2), &broadcast), Decision::Flood);
        assert_eq!(table.decide(PortId(3), &Frame::raw([1; 11])), Decision::Discard);
    }

    #[test]
    fn what_is_on_the_same_side_is_not_sent_back() {
        let mut table = Learning::new(Addresses::Beside, 8);
        let frame = |from, to| Frame::addressed(Peer::Node(from), Peer::Node(to), []);
        assert_eq!(table.decide(PortId(1), &frame(1, 2)), Decision::Flood);
        assert_eq!(table.decide(PortId(1), &frame(2, 1)), Decision::Discard);
        assert_eq!(table.decide(PortId(2), &frame(1, 3)), Decision::Flood, "it has moved");
        assert_eq!(table.decide(PortId(1), &frame(2, 1)), Decision::To(PortId(2)));
    }
}
