//! The byte stream: TCP-like, with heads of varying length.
//!
//! One engine is one end of one connection. With [`Framing::EthernetIpv4Tcp`]
//! or [`Framing::EthernetIpv6Tcp`] it writes whole frames with real headers:
//! the wire sees TCP (RFC 9293) with timestamps and window scaling (RFC 7323)
//! and selective acknowledgements (RFC 2018), the kernel and the device cut long
//! segments and fill checksums in. With [`Framing::Bare`] the TCP header stands
//! alone, for paths that carry datagrams.
//!
//! The bytes of the stream fill posted memory one area after another, each at
//! its place whenever it comes; a payload may be split over areas. What the
//! receiver has is never written again: a segment that overlaps it is trimmed.
//!
//! # What it does not do
//!
//! There is **no congestion control**: the window alone bounds what is under
//! way. There is no reset, no urgent data, no round-trip measurement: it is a
//! test engine, not a TCP for the open Internet. Segments without payload carry a
//! whole checksum, written here and checked here; those with payload leave it
//! to the driver on both sides.
//!
//! # Who owns which state
//!
//! | file | state |
//! | --- | --- |
//! | `receiver` | which bytes are in place, holes, what is acknowledged when |
//! | `sender` | which bytes the other side has, the window, repetition |
//! | `frame` | the headers before the TCP header |
//! | `input` | what a unit does to all of them, and the states of the connection |
//! | `output` | what is sent next |

mod config;
mod frame;
mod input;
mod intervals;
mod output;
mod receiver;
mod sender;

use alloc::collections::VecDeque;

use landfall_inet::tcp;
use landfall_placement::{
    Engine, Guess, Instant, Landing, PathId, PathLimits, PathState, Placement, Random, Refusal,
    Refusals, Seed, Spans, Ticket, Timeout, Transmit, Unit,
};

pub use config::{Config, Error, Event, Framing, Station};
use frame::Frame;
use landfall_placement::Area;
use receiver::Receiver;
use sender::Sender;

/// The timestamp option with its padding.
const TIMESTAMP_LEN: u32 = 12;

/// How far the connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waits for the other side to open.
    Listening,
    /// Asked the other side.
    Opening,
    /// Was asked, and answered.
    Answering,
    /// Open; how far each direction has ended, its half knows.
    Open,
    /// The other side stopped answering.
    Failed,
}

/// What the two sides agreed on when they opened.
#[derive(Clone, Copy, Debug)]
struct Terms {
    /// Our first number, of the opening itself.
    local_first: u32,
    /// Theirs.
    remote_first: u32,
    /// By how much the windows that we write are shifted.
    local_scale: u8,
    /// By how much theirs are.
    remote_scale: u8,
    /// The largest segment that they want.
    remote_mss: u16,
    /// The last that we heard of their clock.
    remote_clock: u32,
}

/// One end of a connection.
///
/// ```
/// use landfall_placement::{Engine, Instant, PathId, PathLimits, PathState, Peer, RegionId};
/// use landfall_testkit::engines::stream::{Config, Framing, Stream};
/// use landfall_testkit::engines::Area;
///
/// let framing = Framing::Bare { peer: Peer::Node(1), local_port: 1, remote_port: 2 };
/// let config = Config::new(framing, PathId(0));
/// let mut engine = Stream::connect(config, [7; 32]);
/// engine.handle_path(Instant::ZERO, PathId(0), PathState::Up(PathLimits::plain(1472)));
/// engine.receive_into(Area::new(RegionId::new(0, 1), 0, 1 << 20))?;
/// engine.send(Area::new(RegionId::new(1, 1), 0, 5000))?;
/// # Ok::<(), landfall_testkit::engines::stream::Error>(())
/// ```
#[derive(Debug)]
pub struct Stream {
    config: Config,
    frame: Frame,
    state: State,
    terms: Terms,
    limits: Option<PathLimits>,
    sender: Sender,
    receiver: Receiver,
    /// The opening, or the answer to it, is due.
    open_due: bool,
    /// Counts segments with payload, for those that go without a timestamp.
    segments: u32,
    events: VecDeque<Event>,
    was_told_closed: bool,
    refusals: Refusals,
}

impl Stream {
    /// The end that opens the connection, as soon as its path is up. The seed
    /// decides its first number.
    #[must_use]
    pub fn connect(config: Config, seed: Seed) -> Self {
        Self::new(config, seed, State::Opening)
    }

    /// The end that waits for the other to open.
    #[must_use]
    pub fn listen(config: Config, seed: Seed) -> Self {
        Self::new(config, seed, State::Listening)
    }

    fn new(config: Config, seed: Seed, state: State) -> Self {
        let config = config.in_range();
        // The largest window must be sayable in 16 bits (RFC 7323, 2.3).
        let local_scale = (config.window >> 16).checked_ilog2().map_or(0, |bits| bits as u8 + 1);
        let terms = Terms {
            local_first: Random::new(seed).next_u32(),
            remote_first: 0,
            local_scale: local_scale.min(14),
            remote_scale: 0,
            remote_mss: u16::MAX,
            remote_clock: 0,
        };
        Self {
            frame: Frame::new(config.framing),
            state,
            terms,
            limits: None,
            sender: Sender::new(&config),
            receiver: Receiver::new(&config),
            open_due: state == State::Opening,
            segments: 0,
            // One event for each area posted, and each of the others once.
            events: VecDeque::with_capacity(4 * config.areas + 8),
            was_told_closed: false,
            refusals: Refusals::new(),
            config,
        }
    }

    /// Posts memory for the bytes of the stream that come next. It is the
    /// engine's until an event names it.
    ///
    /// # Errors
    /// [`Error::BadMemory`], [`Error::Overlap`], [`Error::Closed`] when no more
    /// will come, [`Error::Busy`] at the configured bound.
    pub fn receive_into(&mut self, memory: impl Into<Area>) -> Result<(), Error> {
        let area = memory.into();
        if !area.is_valid() {
            return Err(Error::BadMemory);
        }
        if self.receiver.is_finished || self.state == State::Failed {
            return Err(Error::Closed);
        }
        if self.receiver.areas.overlaps(&area) {
            return Err(Error::Overlap);
        }
        if !self.may_ask() || !self.receiver.areas.push(area) {
            return Err(Error::Busy);
        }
        self.receiver.offer();
        Ok(())
    }

    /// Sends these bytes behind those that were sent before. The memory is the
    /// engine's to read until an event names it.
    ///
    /// # Errors
    /// [`Error::BadMemory`], [`Error::Closed`], or [`Error::Busy`] at the
    /// configured bound.
    pub fn send(&mut self, memory: impl Into<Area>) -> Result<(), Error> {
        let area = memory.into();
        if !area.is_valid() {
            return Err(Error::BadMemory);
        }
        if self.sender.is_closed || self.state == State::Failed {
            return Err(Error::Closed);
        }
        if !self.may_ask() || !self.sender.areas.push(area) {
            return Err(Error::Busy);
        }
        Ok(())
    }

    /// Nothing more will be sent: the other side is told once it has all.
    pub fn close(&mut self) {
        self.sender.is_closed = true;
    }

    /// How many bytes of the stream are in place, from its start, without a hole.
    #[must_use]
    pub const fn received(&self) -> u64 {
        self.receiver.next
    }

    /// How many bytes the other side is known to have.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.sender.una.min(self.sender.areas.end())
    }

    /// How many units were sent more than once.
    #[must_use]
    pub const fn retransmitted(&self) -> u64 {
        self.sender.retransmitted
    }

    /// Is the connection open?
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// How many payload bytes a full unit carries now. Areas that are a
    /// multiple of it are never split by a unit.
    #[must_use]
    pub fn unit_payload(&self) -> u32 {
        self.sender.unit()
    }

    fn may_ask(&self) -> bool {
        let areas = self.receiver.areas.len() + self.sender.areas.len();
        self.events.len() + areas < 4 * self.config.areas
    }

    /// Sets how much goes into a unit: the smaller of what the path carries
    /// and what the other side wants.
    fn set_sizes(&mut self) {
        let Some(limits) = self.limits else { return };
        let head = (self.frame.prefix_len() + tcp::LEN) as u32 + TIMESTAMP_LEN;
        let wanted = u32::from(self.terms.remote_mss).saturating_sub(TIMESTAMP_LEN);
        let segment = limits.unit.saturating_sub(head).min(wanted).min(u32::from(u16::MAX)).max(1);
        let can_cut = match self.frame.segment_kind() {
            Some(landfall_placement::SegmentKind::Tcp4) => limits.offloads.segment_tcp4,
            Some(landfall_placement::SegmentKind::Tcp6) => limits.offloads.segment_tcp6,
            None => false,
        };
        let mut unit = segment;
        if can_cut {
            let room = limits.super_unit.saturating_sub(head).min(self.config.super_payload);
            let pieces = (room / segment).min(u32::from(limits.segments)).max(1);
            unit = segment * pieces;
        }
        self.sender.set_sizes(segment, unit);
        self.receiver.expect(head as u16, unit);
    }

    /// Tells of memory that is the user's again, and of what has ended.
    fn settle(&mut self, now: Instant) {
        let is_failed = self.state == State::Failed;
        while let Some((memory, is_acknowledged)) = self.sender.take_done(is_failed) {
            self.events.push_back(if is_acknowledged {
                Event::Sent { memory }
            } else {
                Event::SendFailed { memory }
            });
        }
        if self.sender.is_end_acknowledged && !self.was_told_closed {
            self.was_told_closed = true;
            self.events.push_back(Event::Closed);
        }
        self.settle_receiver(is_failed);
        self.sender.arm(now, self.config.retransmit_after);
    }

    fn settle_receiver(&mut self, is_failed: bool) {
        let receiver = &mut self.receiver;
        if receiver.end == Some(receiver.next) && !receiver.is_finished {
            receiver.is_finished = true;
            receiver.ack_due = true;
            self.events.push_back(Event::Finished);
        }
        // What a driver may still write to stays the engine's.
        let is_over = (is_failed || receiver.is_finished) && receiver.pending.is_empty();
        while let Some(front) = receiver.areas.front().copied() {
            if front.end() > receiver.next && !is_over {
                return;
            }
            receiver.areas.pop();
            let len = receiver.next.saturating_sub(front.start).min(front.area.len);
            self.events.push_back(Event::Received { posted: front.area, len });
        }
    }

    fn fail(&mut self, now: Instant) {
        self.state = State::Failed;
        self.open_due = false;
        self.sender.stop();
        self.receiver.acknowledged();
        self.events.push_back(Event::Failed);
        self.settle(now);
    }
}

impl Engine for Stream {
    type Event = Event;

    fn handle_path(&mut self, _now: Instant, path: PathId, state: PathState) {
        if path != self.config.path {
            self.refusals.count(Refusal::WrongAddress);
            return;
        }
        self.limits = match state {
            PathState::Up(limits) => Some(limits),
            PathState::Down => None,
        };
        self.set_sizes();
    }

    #[inline]
    fn guess(&self, path: PathId, nth: usize) -> Option<Guess> {
        if path != self.config.path || !matches!(self.state, State::Open | State::Answering) {
            return None;
        }
        self.receiver.guess(nth)
    }

    #[inline]
    fn place(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        self.sort_in(now, unit, into).map_err(|refusal| self.refusals.count(refusal))
    }

    #[inline]
    fn handle_placed(&mut self, now: Instant, ticket: Ticket, landing: Landing) {
        self.take_landing(now, ticket, landing);
    }

    #[inline]
    fn poll_transmit(
        &mut self,
        now: Instant,
        path: PathId,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        if path != self.config.path {
            return None;
        }
        self.next_transmit(now, head, from)
    }

    #[inline]
    fn handle_sent(&mut self, now: Instant, ticket: Ticket) {
        if self.sender.held.remove(ticket).is_some() {
            self.settle(now);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.receiver.ack_deadline <= now {
            self.receiver.ack_deadline = Instant::FAR_FUTURE;
            self.receiver.ack_due = true;
        }
        if self.sender.deadline > now {
            return;
        }
        if self.sender.retries >= self.config.give_up_after {
            return self.fail(now);
        }
        self.open_due = matches!(self.state, State::Opening | State::Answering);
        self.sender.time_out(now, self.config.retransmit_after);
        if self.open_due {
            self.arm_opening(now);
        }
    }

    fn poll_timeout(&self) -> Option<Timeout> {
        let retransmit = Timeout { at: self.sender.deadline, timer: "retransmit" };
        let acknowledge = Timeout { at: self.receiver.ack_deadline, timer: "acknowledge" };
        let next = if retransmit.at <= acknowledge.at { retransmit } else { acknowledge };
        (next.at != Instant::FAR_FUTURE).then_some(next)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn refusals(&self) -> &Refusals {
        &self.refusals
    }
}
