//! A switch of Myrinet's kind as a node of the simulator: it keeps no table. Each frame
//! begins with its route; the switch takes the first byte off, which names the port, and
//! begins to send what is left as soon as that port is free, before the rest has come.
//!
//! A port carries one frame at a time. Who wants it meanwhile waits, and so does all that
//! comes behind on the same link (routes are oblivious: there is no other way): its sender
//! is held until the frame in front has passed. What had begun to come is kept, within a
//! bound. Nothing is lost in a switch but what has no way, and what waits for so long that
//! the network must be locked.
//!
//! A frame that is held behind the next switch has left this one: its rest is taken, where
//! a switch of Myrinet's would let it lie across both.
//!
//! Links that lead into it have the [head first](LinkConfig::heads_first).

use std::collections::VecDeque;

use landfall_placement::{Duration, Instant};
use landfall_simnet::{Frame, LinkConfig, LinkState, Node, Outbox, PortId};

use super::routes::port_of;

/// What a switch is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchDesign {
    /// From the first bit that comes to the first that leaves, where nothing is in its way.
    pub latency: Duration,
    /// This many frames of a link are kept that came before its sender was held.
    pub slack: usize,
    /// Who waits longer is dropped, so that frames that wait for each other do not for ever.
    pub patience: Duration,
}

impl Default for SwitchDesign {
    fn default() -> Self {
        Self { latency: Duration::from_nanos(500), slack: 64, patience: Duration::from_millis(50) }
    }
}

impl SwitchDesign {
    /// A link of this kind, but into a switch: that has the head first, and a frame on it
    /// is longer by the bytes of its route.
    #[must_use]
    pub fn link_in(link: LinkConfig) -> LinkConfig {
        let mtu = link.mtu.saturating_add(crate::machine::Route::MOST as u32);
        link.mtu(mtu).queue_frames(1).heads_first()
    }
}

/// What a switch counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchCounters {
    /// Frames that it sent on.
    pub forwarded: u64,
    /// Frames whose first byte names no port that there is.
    pub misrouted: u64,
    /// Frames that found their port busy.
    pub blocked: u64,
    /// Frames that came although their link was held, beyond what is kept.
    pub overruns: u64,
    /// Frames that waited for too long.
    pub expired: u64,
}

/// A frame whose head has come.
#[derive(Debug)]
struct Worm {
    frame: Frame,
    to: PortId,
    /// It could leave from then on.
    ready: Instant,
}

/// One port, as what comes from it sees it.
#[derive(Debug, Default)]
struct Input {
    waiting: VecDeque<Worm>,
    /// The port that what came before is still passing through.
    crossing: Option<PortId>,
    is_held: bool,
}

/// A switch that cuts through.
#[derive(Debug)]
pub struct SwitchNode {
    design: SwitchDesign,
    inputs: Vec<Input>,
    /// Which ports lead somewhere.
    is_up: Vec<bool>,
    /// Who is asked first: who was, is last the next time.
    turn: usize,
    counters: SwitchCounters,
}

impl SwitchNode {
    /// A switch with as many ports as links are connected to it.
    #[must_use]
    pub fn new(design: SwitchDesign) -> Self {
        let (inputs, is_up) = (Vec::new(), Vec::new());
        Self { design, inputs, is_up, turn: 0, counters: SwitchCounters::default() }
    }

    /// What it counted.
    #[must_use]
    pub const fn counters(&self) -> &SwitchCounters {
        &self.counters
    }

    fn is_up(&self, port: PortId) -> bool {
        self.is_up.get(usize::from(port.0)).copied().unwrap_or(false)
    }

    /// Does anything pass through this port?
    fn is_busy(&self, port: PortId, out: &Outbox<'_>) -> bool {
        let backlog = out.backlog(port);
        backlog.busy
            || backlog.frames > 0
            || self.inputs.iter().any(|input| input.crossing == Some(port))
    }

    /// Everything leaves that can.
    fn advance(&mut self, now: Instant, out: &mut Outbox<'_>) {
        let count = self.inputs.len();
        let mut idle = 0;
        while idle < count {
            let nth = self.turn % count;
            self.turn = (nth + 1) % count;
            idle = if self.try_first(now, nth, out) { 0 } else { idle + 1 };
        }
    }

    /// The first frame from a port goes on, or is dropped. False where there is none, or
    /// it waits.
    fn try_first(&mut self, now: Instant, nth: usize, out: &mut Outbox<'_>) -> bool {
        let from = PortId(nth as u16);
        let input = &self.inputs[nth];
        let Some(first) = input.waiting.front().filter(|first| first.ready <= now) else {
            return false;
        };
        if input.crossing.is_some() {
            return false;
        }
        let (to, ready) = (first.to, first.ready);
        if !self.is_up(to) {
            self.counters.misrouted += 1;
            self.pass(nth, out);
            return true;
        }
        if self.is_busy(to, out) {
            if ready + self.design.patience <= now {
                self.counters.expired += 1;
                self.pass(nth, out);
                return true;
            }
            if !self.inputs[nth].is_held {
                self.inputs[nth].is_held = true;
                self.counters.blocked += 1;
                out.hold_peer(from);
            }
            out.call_when_room(to);
            return false;
        }
        let Some(worm) = self.inputs[nth].waiting.pop_front() else { return false };
        self.counters.forwarded += 1;
        out.send(to, worm.frame);
        if out.backlog(to).busy {
            self.inputs[nth].crossing = Some(to);
            out.call_when_room(to);
        } else {
            self.let_go(nth, out);
        }
        true
    }

    /// The first frame from a port is dropped.
    fn pass(&mut self, nth: usize, out: &mut Outbox<'_>) {
        self.inputs[nth].waiting.pop_front();
        self.let_go(nth, out);
    }

    /// Nothing of what came before is in the way of what comes next from a port.
    fn let_go(&mut self, nth: usize, out: &mut Outbox<'_>) {
        self.inputs[nth].crossing = None;
        if core::mem::take(&mut self.inputs[nth].is_held) {
            out.let_peer_go(PortId(nth as u16));
        }
    }

    /// Whatever passed through this port has.
    fn has_passed(&mut self, port: PortId, out: &mut Outbox<'_>) {
        for nth in 0..self.inputs.len() {
            if self.inputs[nth].crossing == Some(port) {
                self.let_go(nth, out);
            }
        }
    }
}

impl Node for SwitchNode {
    fn handle_frame(&mut self, now: Instant, port: PortId, mut frame: Frame, out: &mut Outbox<'_>) {
        let first = if frame.bytes.is_empty() { 0 } else { frame.bytes.remove(0) };
        let to = port_of(first).map(|to| PortId(u16::from(to))).filter(|to| self.is_up(*to));
        let Some(to) = to else {
            self.counters.misrouted += 1;
            return;
        };
        let Some(input) = self.inputs.get_mut(usize::from(port.0)) else { return };
        if input.waiting.len() >= self.design.slack {
            self.counters.overruns += 1;
            return;
        }
        input.waiting.push_back(Worm { frame, to, ready: now + self.design.latency });
        self.advance(now, out);
    }

    fn handle_link(&mut self, now: Instant, port: PortId, state: LinkState, out: &mut Outbox<'_>) {
        let nth = usize::from(port.0);
        if self.inputs.len() <= nth {
            self.inputs.resize_with(nth + 1, Input::default);
            self.is_up.resize(nth + 1, false);
        }
        self.is_up[nth] = matches!(state, LinkState::Up { .. });
        if !self.is_up[nth] {
            self.has_passed(port, out);
            // A link that comes up again is not held.
            self.inputs[nth].is_held = false;
        }
        self.advance(now, out);
    }

    fn handle_room(&mut self, now: Instant, port: PortId, out: &mut Outbox<'_>) {
        if out.backlog(port).busy || out.backlog(port).frames > 0 {
            return out.call_when_room(port);
        }
        self.has_passed(port, out);
        self.advance(now, out);
    }

    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox<'_>) {
        self.advance(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let due = |input: &Input| {
            let first = input.waiting.front().filter(|_| input.crossing.is_none())?;
            let wait = if input.is_held { self.design.patience } else { Duration::ZERO };
            Some(first.ready + wait)
        };
        self.inputs.iter().filter_map(due).min()
    }
}
