//! [`Receiver`]: packets, whole, from an interface.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use landfall_placement::{Duration, Instant, Refusals};
use landfall_seal::{Fingerprint, PeerIdentity, SealStats};
use landfall_transport::driver::Interest;
use landfall_transport::{Clock, Wait};
use spec_defrag::admission::Gate;
use spec_defrag::{Packet as EnginePacket, Receiver as Engine};

use super::asking::Control;
use super::builder::ReceiverBuilder;
use super::channel::Channel;
use super::delivery::{Deliverer, NotNow, Returns};
use super::error::Error;
use super::packet::Packet;
use super::receive_path::{Moved, ReceivePath};
use super::technique::{Chosen, Delivery, ReceiverStats};
use crate::runtime::{Source, drive_alone};

/// Joins what comes over an interface, and hands out packets.
///
/// It works on the thread that calls it: no other stands between the frames and
/// their user. For tasks there is [`into_tasks`](Self::into_tasks).
#[derive(Debug)]
pub struct Receiver {
    pub(super) parts: Parts,
    /// Taken from the engine, to be handed out together; those behind `handed` were
    /// not yet, as long as users hold too much.
    whole: Vec<EnginePacket>,
    handed: usize,
    /// To be given to the user.
    ready: VecDeque<Packet>,
    /// Pages were short at the last turn.
    is_short: bool,
    stats: ReceiverStats,
}

/// What a builder puts together.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) engine: Engine,
    pub(super) receive_path: Box<dyn ReceivePath>,
    pub(super) deliverer: Deliverer,
    pub(super) returns: Arc<Returns>,
    pub(super) control: Option<Control>,
    /// Who is admitted, and the way of what is said about that.
    pub(super) gate: Option<(Gate, Channel)>,
    pub(super) answers: bool,
    pub(super) clock: Clock,
    pub(super) wait: Wait,
    pub(super) chosen: Chosen,
}

impl Receiver {
    /// A receiver to be described, and then opened.
    pub fn builder(interface: impl Into<landfall_transport::packet::Interface>) -> ReceiverBuilder {
        ReceiverBuilder::new(interface.into())
    }

    pub(super) fn new(parts: Parts) -> Self {
        Self {
            parts,
            whole: Vec::new(),
            handed: 0,
            ready: VecDeque::new(),
            is_short: false,
            stats: ReceiverStats::default(),
        }
    }

    /// The next packet, if one comes within that time.
    ///
    /// While users hold this many packets that no page is free, frames wait in the
    /// kernel, which drops them when its buffer is full; nothing comes until packets
    /// are dropped.
    ///
    /// # Errors
    /// [`Error::Broken`]: the socket or ring is broken for good.
    pub fn receive(&mut self, at_most: Duration) -> Result<Option<Packet>, Error> {
        if let Some(packet) = self.next() {
            return Ok(Some(packet));
        }
        let (clock, wait) = (self.parts.clock, self.parts.wait);
        let until = clock.now() + at_most;
        drive_alone(&mut Receiving { receiver: self, until }, clock, wait)
    }

    /// A packet, if one is there. Never waits.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn try_receive(&mut self) -> Result<Option<Packet>, Error> {
        self.receive(Duration::ZERO)
    }

    /// The technique that is at work, and why.
    #[must_use]
    pub const fn chosen(&self) -> &Chosen {
        &self.parts.chosen
    }

    /// How packets are handed out.
    #[must_use]
    pub const fn delivery(&self) -> Delivery {
        self.parts.deliverer.delivery()
    }

    /// Who may send fast at this moment, if this receiver was opened with a gate. To it a source
    /// is an association with a sender: see [`asker`](Self::asker).
    #[must_use]
    pub fn gate(&self) -> Option<&Gate> {
        self.parts.gate.as_ref().map(|(gate, _)| gate)
    }

    /// The station of a source of the gate, and who it has proven to be. In clear it is the
    /// station itself, and has proven nothing.
    #[must_use]
    pub fn asker(&self, source: [u8; 6]) -> Option<([u8; 6], Option<PeerIdentity>)> {
        self.parts.gate.as_ref()?.1.asker(source)
    }

    /// What the other end knows this one by, for `only_peers` there. `None` in clear, with a
    /// pre-shared key, and where nobody may ask.
    #[must_use]
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.parts.gate.as_ref()?.1.fingerprint()
    }

    /// What was sealed and opened of admission control. All zero where that is in clear.
    #[must_use]
    pub fn seal_stats(&self) -> SealStats {
        let gate = self.parts.gate.as_ref();
        gate.map_or_else(SealStats::default, |(_, channel)| channel.stats())
    }

    /// What was done so far.
    ///
    /// # Errors
    /// The kernel does not say what it counted: the socket is broken.
    pub fn stats(&mut self) -> Result<ReceiverStats, Error> {
        let heard = self.parts.receive_path.heard()?;
        let engine = &self.parts.engine;
        Ok(ReceiverStats {
            joined: *engine.stats(),
            gathered: *engine.gathering(),
            kernel_frames: heard.frames,
            kernel_drops: heard.dropped,
            bursts: heard.calls,
            bytes_handed: self.parts.deliverer.bytes_copied(),
            ..self.stats
        })
    }

    /// What was refused on arrival, by why.
    #[must_use]
    pub const fn refusals(&self) -> &Refusals {
        self.parts.engine.refusals()
    }

    /// The next packet of those that became whole.
    pub(super) fn next(&mut self) -> Option<Packet> {
        if self.ready.is_empty() {
            self.hand_out();
        }
        let packet = self.ready.pop_front()?;
        self.stats.packets += 1;
        Some(packet)
    }

    /// Hands out what became whole, as much together as can be.
    fn hand_out(&mut self) {
        let Parts { engine, receive_path, deliverer, .. } = &mut self.parts;
        if self.handed == self.whole.len() {
            self.whole.clear();
            self.handed = 0;
            self.whole.extend(std::iter::from_fn(|| engine.poll_packet()));
        }
        let mut alone = false;
        while let Some(rest) = self.whole.get(self.handed..).filter(|rest| !rest.is_empty()) {
            let run = if alone { 1 } else { deliverer.run(rest) };
            let hand_out = |packet| self.ready.push_back(packet);
            match deliverer.deliver(&rest[..run], engine, receive_path.as_mut(), hand_out) {
                Ok(()) => self.handed += run,
                // One of them stands in the way of all.
                Err(_) if run > 1 => alone = true,
                Err(NotNow::Full) => {
                    self.stats.held_up += 1;
                    return;
                }
                Err(NotNow::Gone) => {
                    self.stats.lost += 1;
                    self.handed += 1;
                }
            }
        }
    }

    /// One turn: what came back, frames, timers, what is to be sent.
    pub(super) fn turn(&mut self, now: Instant) -> Result<bool, Error> {
        self.fetch_returns();
        self.hand_out();
        let Parts { engine, receive_path, deliverer, .. } = &mut self.parts;
        let mut moved = false;
        self.is_short =
            self.handed < self.whole.len() || engine.free_large() == 0 && deliverer.has_large_out();
        if !self.is_short {
            match receive_path.turn(engine, now)? {
                Moved::Frames => moved = true,
                Moved::Nothing => {}
                Moved::NoPages => {
                    self.is_short = true;
                    self.stats.starved += 1;
                }
            }
        }
        if engine.poll_timeout().is_some_and(|timeout| timeout.at <= now) {
            receive_path.handle_timeout(engine, now);
            moved = true;
        }
        // Before frames go back to the kernel: packets hold those that they lie in.
        self.hand_out();
        if self.handed == self.whole.len() {
            self.parts.receive_path.release(&self.parts.engine);
        }
        self.answer(now)?;
        self.admit(now)?;
        Ok(moved)
    }

    fn fetch_returns(&mut self) {
        let Parts { engine, deliverer, returns, .. } = &mut self.parts;
        if returns.fetch() {
            deliverer.fetch_returned(engine);
        }
    }

    /// Tells senders of packets that did not become whole in time.
    fn answer(&mut self, now: Instant) -> Result<(), Error> {
        while let Some(expired) = self.parts.engine.poll_expired() {
            let (Some(control), true) = (&mut self.parts.control, self.parts.answers) else {
                continue;
            };
            let answer =
                spec_defrag::wire::time_exceeded(&expired.head, &expired.parsed, &expired.payload);
            if let Some(frame) = answer {
                control.send(now, &frame)?;
                self.stats.answers += 1;
            }
        }
        Ok(())
    }

    /// Lets the gate hear and speak.
    fn admit(&mut self, now: Instant) -> Result<(), Error> {
        let Parts { control: Some(control), gate: Some((gate, channel)), .. } = &mut self.parts
        else {
            return Ok(());
        };
        control.receive(|frame| {
            channel.handle_frame(now, frame, |frame| {
                // What it refuses it counts.
                let _ = gate.handle_frame(now, frame);
            });
        })?;
        if gate.poll_timeout().is_some_and(|at| at <= now) {
            gate.handle_timeout(now);
        }
        channel.handle_timeout(now);
        while let Some(frame) = gate.poll_transmit(now) {
            channel.send(now, frame);
        }
        while let Some(frame) = channel.poll_frame(now) {
            control.send(now, &frame)?;
        }
        while gate.poll_event().is_some() {}
        Ok(())
    }

    /// What a thread waits for that sleeps until a turn makes sense.
    pub(super) fn interests(&self, into: &mut Vec<Interest>) {
        let Parts { receive_path, returns, control, gate, .. } = &self.parts;
        let control = control.as_ref().filter(|_| gate.is_some()).map(Control::interest);
        into.extend([Some(returns.bell.interest()), control].into_iter().flatten());
        if !self.is_short {
            receive_path.interests(into);
        }
    }

    /// When one does, whatever the descriptors say.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        let Parts { engine, receive_path, gate, clock, .. } = &self.parts;
        let engine = engine.poll_timeout().map(|timeout| timeout.at);
        let gate = gate.as_ref().and_then(|(gate, channel)| {
            [gate.poll_timeout(), channel.poll_timeout()].into_iter().flatten().min()
        });
        let look_again = receive_path.look_again().map(|after| clock.now() + after);
        [engine, gate, look_again].into_iter().flatten().min()
    }

    /// How packets come back from other threads.
    pub(super) fn returns(&self) -> &Returns {
        &self.parts.returns
    }

    /// The clock of its turns, and how a thread waits between them.
    pub(super) const fn pace(&self) -> (Clock, Wait) {
        (self.parts.clock, self.parts.wait)
    }
}

/// A thread waits for the next packet.
struct Receiving<'a> {
    receiver: &'a mut Receiver,
    until: Instant,
}

impl Source for Receiving<'_> {
    type Output = Result<Option<Packet>, Error>;

    fn turn(&mut self, now: Instant) -> ControlFlow<Self::Output, bool> {
        let moved = match self.receiver.turn(now) {
            Ok(moved) => moved,
            Err(error) => return ControlFlow::Break(Err(error)),
        };
        match self.receiver.next() {
            Some(packet) => ControlFlow::Break(Ok(Some(packet))),
            None if now >= self.until => ControlFlow::Break(Ok(None)),
            None => ControlFlow::Continue(moved),
        }
    }

    fn interests(&self, into: &mut Vec<Interest>) {
        self.receiver.interests(into);
    }

    fn next_wake(&self) -> Option<Instant> {
        self.receiver.next_wake().into_iter().chain([self.until]).min()
    }

    fn arm(&self) {
        self.receiver.returns().bell.arm();
    }

    fn has_work(&self) -> bool {
        self.receiver.returns().is_there()
    }

    fn silence(&self) {
        self.receiver.returns().bell.silence();
    }
}
