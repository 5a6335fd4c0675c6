//! Two engines in one process, on one thread or on two.
//!
//! Units cross in frames of a bounded queue, one for each direction; a frame is given
//! back and used again. A sleeping end is woken through an eventfd, and only if it sleeps.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use landfall_placement::{Ecn, Engine, Instant, PathId, Peer};

use crate::capability::{Capabilities, Feature};
use crate::driver::{Descriptors, Driver, DriverState, Interests, Progress, plain_limits};
use crate::exchange::{Arrival, Inbox, Loose, Outbox, Turn};
use crate::memory::{Pins, Regions};
use crate::wait::Bell;

/// How a channel is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelConfig {
    /// The largest unit that crosses.
    pub unit: u32,
    /// How many units wait in each direction at most.
    pub queue: usize,
}

impl Default for ChannelConfig {
    fn default() -> Self {
        Self { unit: 9000, queue: 256 }
    }
}

/// One end of a channel.
#[derive(Debug)]
pub struct ChannelDriver {
    state: DriverState,
    inbox: Inbox,
    outbox: Outbox,
    pins: Pins,
    inbound: Arc<Pipe>,
    outbound: Arc<Pipe>,
    bell: Arc<Bell>,
    other_bell: Arc<Bell>,
    /// The other end knows this one by this name.
    name: Peer,
    /// The bell may have been rung: its descriptor has to be read.
    armed: AtomicBool,
    blocked: bool,
}

/// A channel with its two ends. Each end reads and writes its own regions; the
/// first is `Peer::Node(0)` to the second, the second `Peer::Node(1)` to the first.
///
/// # Errors
/// The process has no descriptor left.
pub fn channel(
    config: ChannelConfig,
    first: (PathId, &Regions),
    second: (PathId, &Regions),
) -> io::Result<(ChannelDriver, ChannelDriver)> {
    let there = Arc::new(Pipe::new(config.queue));
    let back = Arc::new(Pipe::new(config.queue));
    let (one, two) = (Arc::new(Bell::new()?), Arc::new(Bell::new()?));
    let end = |(path, regions): (PathId, &Regions),
               node,
               pipes: [&Arc<Pipe>; 2],
               bells: [&Arc<Bell>; 2]| {
        let limits = plain_limits(config.unit.min(65_535));
        let mut capabilities = Capabilities::of("channel");
        capabilities.lack(
            Feature::DirectPlacement,
            "units cross in frames of their own; use shared memory for large ones",
        );
        ChannelDriver {
            state: DriverState::new(path, limits, capabilities, regions),
            inbox: Inbox::new(path, 1, 0),
            outbox: Outbox::new(path, limits, Pins::new(regions), 0),
            pins: Pins::new(regions),
            inbound: Arc::clone(pipes[0]),
            outbound: Arc::clone(pipes[1]),
            bell: Arc::clone(bells[0]),
            other_bell: Arc::clone(bells[1]),
            name: Peer::Node(node),
            armed: AtomicBool::new(false),
            blocked: false,
        }
    };
    Ok((
        end(first, 0, [&back, &there], [&one, &two]),
        end(second, 1, [&there, &back], [&two, &one]),
    ))
}

impl ChannelDriver {
    /// This many units move in one turn at most, each way.
    const UNITS_PER_TURN: u32 = 64;

    fn receive<E: Engine>(&mut self, engine: &mut E, now: Instant) -> u32 {
        let mut received = 0;
        while received < Self::UNITS_PER_TURN {
            let Some(frame) = self.inbound.pop() else { break };
            let arrival = Arrival {
                len: frame.bytes.len(),
                unit_len: frame.bytes.len().max(1),
                from: frame.from,
                ecn: frame.ecn,
                coalesced: None,
                verified: false,
            };
            let (pins, counters) = (&mut self.pins, &mut self.state.counters);
            let mut turn = Turn { engine, now, pins, counters };
            received +=
                self.inbox.settle_loose(&mut turn, &arrival, &Loose::from(&frame.bytes[..]));
            self.inbound.give_back(frame);
        }
        if received > 0 {
            self.state.counters.receive_calls += 1;
            self.pins.release();
            self.other_bell.ring();
        } else {
            self.state.counters.empty_calls += 1;
        }
        received
    }

    fn send<E: Engine>(&mut self, engine: &mut E, now: Instant) -> u32 {
        let mut sent = 0;
        self.blocked = false;
        while sent < Self::UNITS_PER_TURN {
            self.outbox.fill(engine, now, &mut self.state.counters, |_, _| {});
            let Some(ecn) = self.outbox.front().map(|unit| unit.ecn) else { break };
            let Some(mut frame) = self.outbound.take_empty() else {
                self.state.counters.send_blocked += 1;
                self.blocked = true;
                break;
            };
            frame.from = self.name;
            frame.ecn = ecn;
            self.state.counters.bytes_copied += self.outbox.copy_front(&mut frame.bytes) as u64;
            self.outbound.push(frame);
            self.outbox.done(engine, now, 1);
            sent += 1;
        }
        if sent > 0 {
            self.state.counters.send_calls += 1;
            self.state.counters.units_sent += u64::from(sent);
            self.other_bell.ring();
        }
        sent
    }
}

impl Driver for ChannelDriver {
    fn state(&self) -> &DriverState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut DriverState {
        &mut self.state
    }

    fn turn<E: Engine>(&mut self, engine: &mut E, now: Instant) -> io::Result<Progress> {
        if self.armed.swap(false, Ordering::Relaxed) {
            self.bell.silence();
        }
        let received = self.receive(engine, now);
        let deposits = self.state.settle(engine, now);
        let sent = self.send(engine, now);
        if received == 0 && self.inbound.is_closed() {
            return Err(io::Error::new(
                io::ErrorKind::BrokenPipe,
                "the other end of the channel was dropped",
            ));
        }
        Ok(Progress { received: received + deposits, sent })
    }

    fn is_blocked(&self) -> bool {
        self.blocked
    }

    fn interests(&self) -> Interests {
        // From here on the other end rings. What it did before, it did
        // silently: look once more, or it might be overslept.
        self.bell.arm();
        self.armed.store(true, Ordering::Relaxed);
        if !self.inbound.is_empty() || (self.blocked && self.outbound.has_room()) {
            self.bell.ring();
        }
        [self.bell.interest()].into_iter().collect()
    }

    fn descriptors(&self) -> Descriptors<'_> {
        [self.bell.as_fd()].into_iter().collect()
    }
}

impl Drop for ChannelDriver {
    fn drop(&mut self) {
        self.outbound.close();
        self.inbound.close();
        self.other_bell.ring();
    }
}

impl Default for Frame {
    fn default() -> Self {
        Self { bytes: Vec::new(), from: Peer::Unaddressed, ecn: Ecn::NotCapable }
    }
}

/// One unit on its way.
#[derive(Debug)]
struct Frame {
    bytes: Vec<u8>,
    from: Peer,
    ecn: Ecn,
}

#[derive(Debug)]
struct Queue {
    full: VecDeque<Frame>,
    empty: Vec<Frame>,
    closed: bool,
}

#[derive(Debug)]
struct Pipe(Mutex<Queue>);

impl Pipe {
    fn new(frames: usize) -> Self {
        let empty = std::iter::repeat_with(Frame::default).take(frames.max(1)).collect();
        Self(Mutex::new(Queue { full: VecDeque::new(), empty, closed: false }))
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // No code that can panic runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A frame to fill; none if all are on their way.
    fn take_empty(&self) -> Option<Frame> {
        self.queue().empty.pop()
    }

    fn push(&self, frame: Frame) {
        self.queue().full.push_back(frame);
    }

    fn pop(&self) -> Option<Frame> {
        self.queue().full.pop_front()
    }

    fn give_back(&self, frame: Frame) {
        self.queue().empty.push(frame);
    }

    fn is_empty(&self) -> bool {
        self.queue().full.is_empty()
    }

    fn has_room(&self) -> bool {
        !self.queue().empty.is_empty()
    }

    fn close(&self) {
        self.queue().closed = true;
    }

    /// Closed, and all that was sent before has been taken.
    fn is_closed(&self) -> bool {
        let queue = self.queue();
        queue.closed && queue.full.is_empty()
    }
}
