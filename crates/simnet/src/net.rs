//! The network between the nodes: how a frame gets from one to another.
//!
//! send → queue → transmitter → wire (faults) → arrival. Nodes are not here:
//! the [`Sim`](crate::Sim) calls them.

use alloc::string::String;
use alloc::vec::Vec;

use landfall_placement::{Duration, Ecn, Instant, Random};

use crate::capture::Capture;
use crate::error::{Error, Limits};
use crate::event::{Event, EventQueue};
use crate::frame::{Frame, FrameId, Pool};
use crate::link::{DirectionId, LinkConfig, LinkId};
use crate::link_direction::{Fate, LinkDirection, Sending, Waiting};
use crate::node::{NodeId, PortId};
use crate::queue::{Backlog, Verdict};
use crate::stats::DropReason;

/// A frame at its destination.
pub(crate) struct Arrival {
    pub(crate) node: NodeId,
    pub(crate) port: PortId,
    pub(crate) frame: Frame,
}

#[derive(Debug)]
pub(crate) struct Net {
    pub(crate) now: Instant,
    pub(crate) events: EventQueue,
    pub(crate) frames: Pool,
    /// Two for each link, one after the other.
    pub(crate) ways: Vec<LinkDirection>,
    /// The way that leaves from each port of each node.
    ports: Vec<Vec<DirectionId>>,
    random: Random,
    pub(crate) limits: Limits,
    /// Delayed frames and link changes that are scheduled.
    pub(crate) scheduled: usize,
    pub(crate) failure: Option<Error>,
    pub(crate) capture: Option<Capture>,
    pub(crate) digest: Digest,
    /// Frames sent to ports that do not exist.
    pub(crate) misdirected: u64,
}

impl Net {
    pub(crate) fn new(random: Random, limits: Limits) -> Self {
        Self {
            now: Instant::ZERO,
            events: EventQueue::default(),
            frames: Pool::new(limits.frames),
            ways: Vec::new(),
            ports: Vec::new(),
            random,
            limits,
            scheduled: 0,
            failure: None,
            capture: None,
            digest: Digest::default(),
            misdirected: 0,
        }
    }

    pub(crate) fn add_node(&mut self) {
        self.ports.push(Vec::new());
    }

    pub(crate) fn add_link(
        &mut self,
        [a, b]: [NodeId; 2],
        [there, back]: [LinkConfig; 2],
    ) -> Result<LinkId, Error> {
        let limit = self.limits.links.min(u32::MAX as usize / 2);
        if self.ways.len() / 2 >= limit {
            return Err(Error::TooManyLinks { limit });
        }
        for node in [a, b] {
            let ports = self.ports.get(node.0 as usize).ok_or(Error::NoSuchNode(node))?;
            // A link from a node to itself takes two ports.
            if ports.len() + 2 > usize::from(u16::MAX) {
                return Err(Error::TooManyLinks { limit: usize::from(u16::MAX) });
            }
        }
        let link = LinkId((self.ways.len() / 2) as u32);
        let mut port = |node: NodeId, direction| {
            let ports = &mut self.ports[node.0 as usize];
            ports.push(direction);
            (node, PortId((ports.len() - 1) as u16))
        };
        let (from, to) = (port(a, link.there()), port(b, link.back()));
        // Each way draws from a stream of its own: another link changes nothing here.
        self.ways.push(LinkDirection::new(from, to, there, self.random.fork()));
        self.ways.push(LinkDirection::new(to, from, back, self.random.fork()));
        Ok(link)
    }

    pub(crate) fn ports(&self, node: NodeId) -> u16 {
        self.ports.get(node.0 as usize).map_or(0, |ports| ports.len() as u16)
    }

    fn way_of(&self, node: NodeId, port: PortId) -> Option<DirectionId> {
        self.ports.get(node.0 as usize)?.get(usize::from(port.0)).copied()
    }

    /// The first failure ends the run; later ones are its consequences.
    pub(crate) fn fail(&mut self, error: Error) {
        self.failure.get_or_insert(error);
    }

    pub(crate) fn fail_at(&mut self, node: NodeId, what: String) {
        self.fail(Error::Broken { node, at: self.now, what });
    }

    pub(crate) fn schedule(&mut self, at: Instant, event: Event) -> Result<(), Error> {
        let limit = self.limits.scheduled;
        if self.scheduled >= limit {
            return Err(Error::TooManyScheduled { limit });
        }
        self.scheduled += 1;
        self.events.push(at.max(self.now), event);
        Ok(())
    }

    /// Schedules what follows from a frame. A frame has one such event at a
    /// time, and a way two; what is beyond that is left over from links that
    /// went down, and must not pile up.
    fn later(&mut self, at: Instant, event: Event) {
        let limit = self.limits.frames + 2 * self.ways.len() + self.limits.scheduled;
        if self.events.len() > 2 * limit {
            return self.fail(Error::TooManyScheduled { limit });
        }
        self.events.push(at, event);
    }

    pub(crate) fn send(&mut self, node: NodeId, port: PortId, mut frame: Frame) {
        let Some(id) = self.way_of(node, port) else {
            self.misdirected += 1;
            return;
        };
        let direction = &mut self.ways[id.index()];
        direction.stats.sent += 1;
        direction.stats.sent_bytes += frame.len() as u64;
        direction.stats.under_way += 1;
        if !direction.up {
            return self.lose(id, &frame, DropReason::Down);
        }
        if frame.len() > direction.config.mtu as usize {
            return self.lose(id, &frame, DropReason::TooLong);
        }
        if let Some(intercept) = &mut direction.interceptor
            && intercept(self.now, &mut frame) == Fate::Drop
        {
            return self.lose(id, &frame, DropReason::Intercepted);
        }
        let verdict = direction.admit(self.now, &mut frame);
        if !direction.obey(verdict, &mut frame) {
            return self.lose(id, &frame, DropReason::Queue);
        }
        let len = frame.len() as u32;
        match self.frames.insert(frame) {
            Ok(frame) => {
                let direction = &mut self.ways[id.index()];
                direction.enqueue(Waiting { frame, len, since: self.now });
                self.send_next(id);
            }
            Err(frame) => self.out_of_frames(id, &frame),
        }
    }

    pub(crate) fn send_after(&mut self, delay: Duration, node: NodeId, port: PortId, frame: Frame) {
        match self.frames.insert(frame) {
            Ok(frame) => {
                let event = Event::Send { node, port, frame };
                if let Err(error) = self.schedule(self.now + delay, event) {
                    self.frames.remove(frame);
                    self.fail(error);
                }
            }
            Err(_) => self.fail(Error::TooManyFrames { limit: self.limits.frames }),
        }
    }

    pub(crate) fn backlog(&self, node: NodeId, port: PortId) -> Backlog {
        let direction = self.way_of(node, port).map(|direction| &self.ways[direction.index()]);
        direction.map_or_else(Backlog::default, |direction| direction.backlog(self.now))
    }

    pub(crate) fn has_room(&self, node: NodeId, port: PortId) -> bool {
        self.way_of(node, port)
            .is_none_or(|direction| self.ways[direction.index()].has_room(self.now))
    }

    pub(crate) fn call_when_room(&mut self, node: NodeId, port: PortId) {
        if let Some(direction) = self.way_of(node, port) {
            self.ways[direction.index()].wants_room = true;
        }
    }

    /// Returns the transmitter its next frame. On a way that sends in no time
    /// that is all frames.
    fn send_next(&mut self, id: DirectionId) {
        while let Some(Waiting { frame, since, .. }) = self.ways[id.index()].next(self.now) {
            let direction = &mut self.ways[id.index()];
            let Some(content) = self.frames.get_mut(frame) else { continue };
            let verdict = direction.release(self.now, content, since);
            if !direction.obey(verdict, content) {
                self.lose_pooled(id, frame, DropReason::Queue);
                continue;
            }
            let time = direction.config.sending_time(content.len());
            if time.is_zero() {
                self.launch(id, frame);
                continue;
            }
            let (goes_ahead, epoch) = (direction.config.heads_first, direction.epoch);
            direction.sending =
                Some(if goes_ahead { Sending::Rest } else { Sending::Frame(frame) });
            if goes_ahead {
                self.launch(id, frame);
            }
            return self.later(self.now + time, Event::Departed { direction: id, epoch });
        }
    }

    /// The last bit has left. Returns whether the sending node waits for room.
    pub(crate) fn departed(&mut self, id: DirectionId, epoch: u32) -> Option<(NodeId, PortId)> {
        let direction = &mut self.ways[id.index()];
        if direction.epoch != epoch {
            return None;
        }
        if let Some(Sending::Frame(frame)) = direction.sending.take() {
            self.launch(id, frame);
        }
        self.go_on(id)
    }

    /// Goes on with the queue. Returns whether the sending node waits for room.
    fn go_on(&mut self, id: DirectionId) -> Option<(NodeId, PortId)> {
        self.send_next(id);
        let direction = &mut self.ways[id.index()];
        (direction.wants_room && direction.has_room(self.now)).then(|| {
            direction.wants_room = false;
            direction.from
        })
    }

    /// Stops a transmitter behind the frame that it is sending.
    pub(crate) fn pause(&mut self, node: NodeId, port: PortId, time: Duration) {
        let Some(id) = self.way_of(node, port) else { return };
        let until = self.now + time;
        let direction = &mut self.ways[id.index()];
        direction.paused_until = until;
        let event = Event::Resume { direction: id, epoch: direction.epoch };
        self.later(until, event);
    }

    /// The far end of a port starts no further frame until it may.
    pub(crate) fn hold_peer(&mut self, node: NodeId, port: PortId) {
        if let Some(direction) = self.way_of(node, port) {
            self.ways[direction.reverse().index()].is_held = true;
        }
    }

    /// The far end of a port may go on.
    pub(crate) fn let_peer_go(&mut self, node: NodeId, port: PortId) {
        let Some(id) = self.way_of(node, port).map(DirectionId::reverse) else { return };
        let direction = &mut self.ways[id.index()];
        if core::mem::take(&mut direction.is_held) {
            let event = Event::Resume { direction: id, epoch: direction.epoch };
            self.later(self.now, event);
        }
    }

    /// A pause is over, unless a longer one was asked for meanwhile.
    pub(crate) fn resumed(&mut self, id: DirectionId, epoch: u32) -> Option<(NodeId, PortId)> {
        let direction = &self.ways[id.index()];
        if direction.epoch == epoch && direction.paused_until <= self.now {
            self.go_on(id)
        } else {
            None
        }
    }

    /// The frame is on the wire: whatever happens to it there is decided now.
    fn launch(&mut self, id: DirectionId, frame: FrameId) {
        let direction = &mut self.ways[id.index()];
        let Some(content) = self.frames.get_mut(frame) else { return };
        if direction.dice.loses(&direction.config) {
            return self.lose_pooled(id, frame, DropReason::Lost);
        }
        if let (Some(tap), Some(capture)) = (direction.tap, &mut self.capture) {
            capture.left(tap, self.now, content);
        }
        if direction.dice.damages(&direction.config, content) {
            direction.stats.corrupted += 1;
        }
        if direction.dice.duplicates(&direction.config) {
            let copy = content.clone();
            match self.frames.insert(copy) {
                Ok(copy) => {
                    direction.stats.duplicated += 1;
                    direction.stats.under_way += 1;
                    self.fly(id, frame);
                    self.fly(id, copy);
                    return;
                }
                Err(_) => self.fail(Error::TooManyFrames { limit: self.limits.frames }),
            }
        }
        self.fly(id, frame);
    }

    fn fly(&mut self, id: DirectionId, frame: FrameId) {
        let direction = &mut self.ways[id.index()];
        let mut at = self.now + direction.config.delay;
        if let Some(extra) = direction.dice.holds_back(&direction.config) {
            direction.stats.reordered += 1;
            at += extra;
        }
        let event = Event::Arrive { direction: id, epoch: direction.epoch, frame };
        self.later(at, event);
    }

    /// The frame is at the far end, unless the link went down meanwhile.
    pub(crate) fn arrived(
        &mut self,
        id: DirectionId,
        epoch: u32,
        frame: FrameId,
    ) -> Option<Arrival> {
        if self.ways[id.index()].epoch != epoch {
            self.lose_pooled(id, frame, DropReason::Down);
            return None;
        }
        let frame = self.frames.remove(frame)?;
        let tap = self.ways[id.reverse().index()].tap;
        if let (Some(tap), Some(capture)) = (tap, &mut self.capture) {
            capture.arrived(tap, self.now, &frame);
        }
        let direction = &mut self.ways[id.index()];
        direction.stats.delivered += 1;
        direction.stats.delivered_bytes += frame.len() as u64;
        direction.stats.under_way -= 1;
        self.digest.add(self.now, id, &frame.bytes);
        let (node, port) = direction.to;
        Some(Arrival { node, port, frame })
    }

    /// One direction goes up or down; says whether that is news.
    pub(crate) fn change(&mut self, id: DirectionId, up: bool) -> bool {
        let direction = &mut self.ways[id.index()];
        if direction.up == up {
            return false;
        }
        direction.up = up;
        direction.epoch = direction.epoch.wrapping_add(1);
        direction.wants_room = false;
        direction.paused_until = self.now;
        direction.is_held = false;
        if let Some(Sending::Frame(frame)) = direction.sending.take() {
            self.lose_pooled(id, frame, DropReason::Down);
        }
        while let Some(waiting) = self.ways[id.index()].dequeue() {
            self.lose_pooled(id, waiting.frame, DropReason::Down);
        }
        true
    }

    fn lose_pooled(&mut self, id: DirectionId, frame: FrameId, reason: DropReason) {
        if let Some(frame) = self.frames.remove(frame) {
            self.lose(id, &frame, reason);
        }
    }

    fn lose(&mut self, id: DirectionId, frame: &Frame, reason: DropReason) {
        let direction = &mut self.ways[id.index()];
        direction.stats.drop_one(reason);
        if let (Some(tap), Some(capture)) = (direction.tap, &mut self.capture) {
            capture.lost(tap, self.now, frame, reason);
        }
    }

    fn out_of_frames(&mut self, id: DirectionId, frame: &Frame) {
        self.lose(id, frame, DropReason::NoRoom);
        self.fail(Error::TooManyFrames { limit: self.limits.frames });
    }
}

impl LinkDirection {
    /// Does to the frame what the queue policy decided; says whether it goes on.
    fn obey(&mut self, verdict: Verdict, frame: &mut Frame) -> bool {
        match verdict {
            Verdict::Pass => true,
            Verdict::Drop => false,
            // RFC 3168, 5: what cannot be marked is dropped.
            Verdict::Mark if frame.ecn == Ecn::NotCapable => false,
            Verdict::Mark => {
                frame.ecn = Ecn::CongestionExperienced;
                self.stats.marked += 1;
                true
            }
        }
    }
}

/// A fingerprint of everything that was delivered, where and when: two runs
/// with one seed have the same. It is no cryptographic hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Digest(pub(crate) u64);

impl Digest {
    fn add(&mut self, now: Instant, direction: DirectionId, bytes: &[u8]) {
        self.word(now.as_nanos());
        self.word(u64::from(direction.0) << 32 | bytes.len() as u64);
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_le_bytes(last));
    }

    fn word(&mut self, word: u64) {
        // Multiply by an odd constant (2^64 over the golden ratio) and rotate:
        // each step can be undone, so no difference is ever swallowed.
        self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
}
