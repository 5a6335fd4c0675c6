//! One direction of a link: its queue, its transmitter, its state.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::fmt;

use landfall_placement::{Instant, Seed};

use crate::capture::InterfaceId;
use crate::fault::Dice;
use crate::frame::{Frame, FrameId};
use crate::link::LinkConfig;
use crate::node::{NodeId, PortId};
use crate::queue::{Backlog, QueuePolicy, Verdict};
use crate::stats::LinkStats;

/// What an interceptor wants to become of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It goes on, as the interceptor left it.
    Pass,
    /// It is lost.
    Drop,
}

/// Looks at, changes or takes each frame before it joins the queue.
pub(crate) type Interceptor = Box<dyn FnMut(Instant, &mut Frame) -> Fate>;

/// A frame that waits for the transmitter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) frame: FrameId,
    pub(crate) len: u32,
    pub(crate) since: Instant,
}

/// What a transmitter is busy with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sending {
    /// A frame that is on its way when its last bit has left.
    Frame(FrameId),
    /// The bits behind the first of one that is on its way already.
    Rest,
}

pub(crate) struct LinkDirection {
    pub(crate) from: (NodeId, PortId),
    pub(crate) to: (NodeId, PortId),
    pub(crate) config: LinkConfig,
    pub(crate) up: bool,
    /// How often it went up or down: what was under way before is lost.
    pub(crate) epoch: u32,
    /// What is leaving.
    pub(crate) sending: Option<Sending>,
    /// The transmitter starts no frame before.
    pub(crate) paused_until: Instant,
    /// The far end lets it start no frame.
    pub(crate) is_held: bool,
    queue: VecDeque<Waiting>,
    queued_bytes: u64,
    /// Replaces the plain queue of the configuration.
    pub(crate) policy: Option<Box<dyn QueuePolicy>>,
    pub(crate) interceptor: Option<Interceptor>,
    /// The sending node wants to know when the queue becomes shorter.
    pub(crate) wants_room: bool,
    pub(crate) dice: Dice,
    pub(crate) stats: LinkStats,
    /// Where the end that sends is captured.
    pub(crate) tap: Option<InterfaceId>,
}

impl fmt::Debug for LinkDirection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkDirection")
            .field("from", &self.from)
            .field("to", &self.to)
            .field("up", &self.up)
            .field("waiting", &self.queue.len())
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

impl LinkDirection {
    pub(crate) fn new(
        from: (NodeId, PortId),
        to: (NodeId, PortId),
        config: LinkConfig,
        seed: Seed,
    ) -> Self {
        Self {
            from,
            to,
            config,
            up: true,
            epoch: 0,
            sending: None,
            paused_until: Instant::ZERO,
            is_held: false,
            queue: VecDeque::new(),
            queued_bytes: 0,
            policy: None,
            interceptor: None,
            wants_room: false,
            dice: Dice::new(seed),
            stats: LinkStats::default(),
            tap: None,
        }
    }

    /// The queue as the next frame finds it.
    pub(crate) fn backlog(&self, now: Instant) -> Backlog {
        Backlog {
            frames: self.queue.len() as u32,
            bytes: self.queued_bytes,
            busy: self.is_busy(now),
        }
    }

    /// Must a frame wait?
    fn is_busy(&self, now: Instant) -> bool {
        self.sending.is_some() || self.is_held || self.paused_until > now
    }

    pub(crate) fn has_room(&self, now: Instant) -> bool {
        match &self.policy {
            Some(policy) => policy.has_room(self.backlog(now)),
            None => self.config.queue.has_room(self.backlog(now)),
        }
    }

    /// Asks the policy in charge (the user's, or the plain one) whether the
    /// frame may join the queue.
    pub(crate) fn admit(&mut self, now: Instant, frame: &mut Frame) -> Verdict {
        let (backlog, random) = (self.backlog(now), &mut self.dice.queue);
        match &mut self.policy {
            Some(policy) => policy.admit(now, frame, backlog, random),
            None => self.config.queue.admit(now, frame, backlog, random),
        }
    }

    /// Asks the policy whether a frame that has waited may be sent.
    pub(crate) fn release(&mut self, now: Instant, frame: &mut Frame, since: Instant) -> Verdict {
        let (backlog, random) = (self.backlog(now), &mut self.dice.queue);
        match &mut self.policy {
            Some(policy) => policy.release(now, frame, now.since(since), backlog, random),
            None => Verdict::Pass,
        }
    }

    pub(crate) fn enqueue(&mut self, waiting: Waiting) {
        self.queue.push_back(waiting);
        self.queued_bytes += u64::from(waiting.len);
        if !self.is_busy(waiting.since) {
            return; // It is sent at once: nothing waits.
        }
        let stats = &mut self.stats;
        stats.queue_high_frames = stats.queue_high_frames.max(self.queue.len() as u32);
        stats.queue_high_bytes = stats.queue_high_bytes.max(self.queued_bytes);
    }

    /// The frame that may be sent now.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Waiting> {
        if self.is_busy(now) { None } else { self.dequeue() }
    }

    pub(crate) fn dequeue(&mut self) -> Option<Waiting> {
        let waiting = self.queue.pop_front()?;
        self.queued_bytes -= u64::from(waiting.len);
        Some(waiting)
    }
}
