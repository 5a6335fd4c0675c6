//! Takes segments and acknowledges each: [`Sink`].

use alloc::collections::BTreeMap;

use landfall_placement::{Ecn, Instant, Peer};

use super::wire::{LEAST, Message};
use crate::frame::Frame;
use crate::node::{Node, Outbox, PortId};

/// The other end of any number of [`Source`](super::Source)s.
#[derive(Debug, Default)]
pub struct Sink {
    bytes: BTreeMap<Peer, u64>,
    marked: u64,
}

impl Sink {
    /// A sink that has got nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many bytes came from a source, whole frames counted.
    #[must_use]
    pub fn bytes_from(&self, source: Peer) -> u64 {
        self.bytes.get(&source).copied().unwrap_or(0)
    }

    /// How many segments came with the mark of congestion.
    #[must_use]
    pub fn marked(&self) -> u64 {
        self.marked
    }
}

impl Node for Sink {
    fn handle_frame(&mut self, _now: Instant, port: PortId, frame: Frame, out: &mut Outbox<'_>) {
        if frame.to != out.node().peer() {
            return; // A switch that does not know the way floods.
        }
        let Some(Message::Segment { number }) = Message::read(&frame.bytes) else { return };
        let marked = frame.ecn == Ecn::CongestionExperienced;
        self.marked += u64::from(marked);
        *self.bytes.entry(frame.from).or_default() += frame.len() as u64;
        let bytes = Message::Acknowledgement { number, marked }.write(LEAST);
        out.send(port, Frame::addressed(frame.to, frame.from, bytes));
    }
}
