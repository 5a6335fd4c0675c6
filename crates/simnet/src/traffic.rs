//! Traffic that shares a network with what is tested: a [`Source`] that sends
//! as fast as its [`Control`] allows, and a [`Sink`] that acknowledges.
//!
//! [`NewReno`] is the control that most tests want beside them: additive
//! increase, multiplicative decrease, as the flow that others must be fair to.
//! Any other control can take its place, that of a protocol under test too.
//!
//! This is load, not a transport: segments are numbered by transmission, each
//! is acknowledged by itself, and nothing is sent twice. A lost segment is lost
//! bytes; the loop of control is that of TCP with selective acknowledgements.
//!
//! ```
//! use std::time::Duration;
//! use landfall_placement::Instant;
//! use landfall_simnet::traffic::{NewReno, Sink, Source, SourceConfig};
//! use landfall_simnet::{LinkConfig, Sim, Switch};
//!
//! # fn main() -> Result<(), landfall_simnet::Error> {
//! let mut sim = Sim::from_number(1);
//! let sink = sim.add("sink", Sink::new())?;
//! let config = SourceConfig::to(sink.peer());
//! let source = sim.add("source", Source::new(config, NewReno::new(config.segment)))?;
//! let bottleneck = LinkConfig::ethernet(10_000_000)
//!     .delay(Duration::from_millis(10))
//!     .queue_bytes(25_000);
//! sim.connect(source, sink, bottleneck)?;
//! sim.run_until(Instant::from_millis(10_000))?;
//!
//! let rate = sim.node(sink)?.bytes_from(source.peer()) * 8 / 10;
//! assert!((8_000_000..10_000_000).contains(&rate), "{rate} bit/s");
//! # Ok(()) }
//! ```
//!
//! [`Source`]: sends as fast as its control allows; and [`Sink`]: takes segments and
//! acknowledges each.
//!
//! The flow that others must be fair to: [`NewReno`].

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use landfall_placement::{Duration, Ecn, Instant, Peer};

use crate::frame::Frame;
use crate::node::{LinkState, Node, Outbox, PortId};

/// A segment that arrived, as a [`Control`] is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// Its bytes.
    pub bytes: u64,
    /// When it was sent.
    pub sent: Instant,
    /// Whether the network marked it.
    pub marked: bool,
    /// What was under way until now, this segment too.
    pub under_way: u64,
}

/// Decides how much a [`Source`] has under way.
pub trait Control: core::fmt::Debug + 'static {
    /// How many bytes may be under way.
    fn window(&self) -> u64;

    /// How long to wait after a segment before the next one.
    fn pause(&self, _bytes: u64) -> Duration {
        Duration::ZERO
    }

    /// How long to wait for an acknowledgement.
    fn timeout(&self) -> Duration;

    /// A segment arrived.
    fn handle_acknowledged(&mut self, now: Instant, segment: &Acknowledged);

    /// A segment that was sent at `sent` was lost: three later ones arrived.
    fn handle_lost(&mut self, now: Instant, sent: Instant, bytes: u64);

    /// Nothing arrived for a [`timeout`](Control::timeout).
    fn handle_timeout(&mut self, now: Instant);
}

/// What a [`Source`] sends, to whom and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceConfig {
    /// To whom: the address of a [`Sink`].
    pub to: Peer,
    /// The bytes of a segment, all of its frame.
    pub segment: u32,
    /// Whether segments say that their sender understands ECN.
    pub ecn: bool,
    /// Nothing is sent before.
    pub start: Instant,
    /// Nothing is sent from then on.
    pub stop: Instant,
    /// How many bytes are sent altogether.
    pub limit: u64,
}

impl SourceConfig {
    /// Frames of 1514 bytes without ECN, from the start and without end.
    #[must_use]
    pub const fn to(peer: Peer) -> Self {
        Self {
            to: peer,
            segment: 1_514,
            ecn: false,
            start: Instant::ZERO,
            stop: Instant::FAR_FUTURE,
            limit: u64::MAX,
        }
    }

    /// With ECN.
    #[must_use]
    pub const fn ecn(self) -> Self {
        Self { ecn: true, ..self }
    }

    /// From this moment on.
    #[must_use]
    pub const fn start(self, start: Instant) -> Self {
        Self { start, ..self }
    }

    /// Until this moment.
    #[must_use]
    pub const fn stop(self, stop: Instant) -> Self {
        Self { stop, ..self }
    }
}

/// What became of the segments of a [`Source`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceStats {
    /// Bytes that were sent.
    pub sent: u64,
    /// Bytes that were acknowledged.
    pub acknowledged: u64,
    /// Bytes that count as lost.
    pub lost: u64,
    /// Segments that were marked.
    pub marked: u64,
    /// How often nothing came for a whole time-out.
    pub timeouts: u64,
}

/// A segment that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sent {
    at: Instant,
    /// It neither arrived nor counts as lost.
    under_way: bool,
}

/// Later segments that have to arrive before one counts as lost (RFC 5681, 3.2).
const REORDERING: u64 = 3;

/// A node with one port that sends to a [`Sink`] whatever its
/// [`Control`] allows.
#[derive(Debug)]
pub struct Source<C> {
    config: SourceConfig,
    control: C,
    /// Segments from `oldest` on.
    sent: VecDeque<Sent>,
    oldest: u64,
    under_way: u64,
    next_send: Instant,
    stopped: bool,
    /// Since when to wait for an acknowledgement.
    waiting_since: Instant,
    stats: SourceStats,
}

impl<C: Control> Source<C> {
    /// A source that is ruled by `control`.
    #[must_use]
    pub fn new(config: SourceConfig, control: C) -> Self {
        Self {
            config: SourceConfig { segment: config.segment.max(LEAST as u32), ..config },
            control,
            sent: VecDeque::new(),
            oldest: 0,
            under_way: 0,
            next_send: config.start,
            stopped: false,
            waiting_since: config.start,
            stats: SourceStats::default(),
        }
    }

    /// The control, as it is now.
    #[must_use]
    pub const fn control(&self) -> &C {
        &self.control
    }

    /// What became of the segments.
    #[must_use]
    pub const fn stats(&self) -> SourceStats {
        self.stats
    }

    /// Bytes under way.
    #[must_use]
    pub const fn under_way(&self) -> u64 {
        self.under_way
    }

    fn segment(&self) -> u64 {
        u64::from(self.config.segment)
    }

    /// Whether there is something to send and the window has room for it; one
    /// segment may always be under way.
    fn may_send(&self) -> bool {
        let room = self.under_way == 0 || self.under_way + self.segment() <= self.control.window();
        room && !self.stopped && self.stats.sent < self.config.limit
    }

    fn send(&mut self, now: Instant, out: &mut Outbox<'_>) {
        let ecn = if self.config.ecn { Ecn::Capable0 } else { Ecn::NotCapable };
        self.stopped |= now >= self.config.stop;
        while self.may_send() && self.next_send <= now {
            let number = self.oldest + self.sent.len() as u64;
            let bytes = Message::Segment { number }.write(self.config.segment as usize);
            let frame = Frame { bytes, from: out.node().peer(), to: self.config.to, ecn };
            if self.under_way == 0 {
                self.waiting_since = now;
            }
            self.sent.push_back(Sent { at: now, under_way: true });
            self.under_way += self.segment();
            self.stats.sent += self.segment();
            self.next_send = now + self.control.pause(self.segment());
            out.send(PortId(0), frame);
        }
    }

    fn handle_acknowledgement(&mut self, now: Instant, number: u64, marked: bool) {
        let bytes = self.segment();
        let index = number.checked_sub(self.oldest).and_then(|n| usize::try_from(n).ok());
        let Some(sent) = index.and_then(|index| self.sent.get_mut(index)) else { return };
        if !core::mem::take(&mut sent.under_way) {
            return; // It counted as lost, or came twice.
        }
        let acknowledged = Acknowledged { bytes, sent: sent.at, marked, under_way: self.under_way };
        self.under_way -= bytes;
        self.waiting_since = now;
        self.stats.acknowledged += bytes;
        self.stats.marked += u64::from(marked);
        self.control.handle_acknowledged(now, &acknowledged);
        while self.sent.front().is_some_and(|first| {
            !first.under_way || self.oldest.saturating_add(REORDERING) <= number
        }) {
            self.forget_oldest(now);
        }
    }

    /// Forgets the oldest segment; if nothing was heard of it, it is lost.
    fn forget_oldest(&mut self, now: Instant) {
        let Some(first) = self.sent.pop_front() else { return };
        self.oldest += 1;
        if first.under_way {
            let bytes = self.segment();
            self.under_way -= bytes;
            self.stats.lost += bytes;
            self.control.handle_lost(now, first.at, bytes);
        }
    }

    /// Everything under way counts as lost, and the control is told once.
    fn handle_silence(&mut self, now: Instant) {
        self.stats.timeouts += 1;
        self.stats.lost += self.under_way;
        self.oldest += self.sent.len() as u64;
        self.sent.clear();
        self.under_way = 0;
        self.waiting_since = now;
        self.control.handle_timeout(now);
    }

    fn silence_at(&self) -> Option<Instant> {
        (self.under_way > 0).then(|| self.waiting_since + self.control.timeout())
    }
}

impl<C: Control> Node for Source<C> {
    fn handle_frame(&mut self, now: Instant, _port: PortId, frame: Frame, out: &mut Outbox<'_>) {
        if frame.to != out.node().peer() {
            return; // A switch that does not know the way floods.
        }
        if let Some(Message::Acknowledgement { number, marked }) = Message::read(&frame.bytes) {
            self.handle_acknowledgement(now, number, marked);
            self.send(now, out);
        }
    }

    fn handle_link(&mut self, now: Instant, _: PortId, _: LinkState, out: &mut Outbox<'_>) {
        self.send(now, out);
    }

    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox<'_>) {
        if self.silence_at().is_some_and(|at| at <= now) {
            self.handle_silence(now);
        }
        self.send(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let next = self.may_send().then_some(self.next_send);
        [self.silence_at(), next].into_iter().flatten().min()
    }
}

/// The other end of any number of [`Source`]s.
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

/// Bytes of an acknowledgement, and the least of a segment.
const LEAST: usize = 16;

const SEGMENT: u8 = 1;
const ACKNOWLEDGEMENT: u8 = 2;

/// A message: its kind, a flag, a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    /// A segment of some length.
    Segment { number: u64 },
    /// That segment arrived.
    Acknowledgement { number: u64, marked: bool },
}

impl Message {
    fn write(self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len.max(LEAST)];
        let number = match self {
            Self::Segment { number } => {
                bytes[0] = SEGMENT;
                number
            }
            Self::Acknowledgement { number, marked } => {
                bytes[0] = ACKNOWLEDGEMENT;
                bytes[1] = u8::from(marked);
                number
            }
        };
        bytes[8..16].copy_from_slice(&number.to_be_bytes());
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let number = u64::from_be_bytes(*bytes.get(8..)?.first_chunk()?);
        match (bytes[0], bytes[1]) {
            (SEGMENT, _) => Some(Self::Segment { number }),
            (ACKNOWLEDGEMENT, flag) => Some(Self::Acknowledgement { number, marked: flag != 0 }),
            _ => None,
        }
    }
}

/// Slow start, congestion avoidance, one halving in each round trip with loss
/// or marks, and a start from one segment after silence (RFC 5681, RFC 6582
/// with selective acknowledgements, RFC 3168, RFC 6298).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewReno {
    segment: u64,
    window: u64,
    threshold: u64,
    /// Bytes acknowledged since the window grew last.
    credit: u64,
    /// The last halving: what was sent before tells nothing new.
    halved: Instant,
    /// How often it was halved.
    halvings: u64,
    smoothed: Option<Duration>,
    variation: Duration,
    backoff: u32,
    /// The time-out is never shorter; RFC 6298 has a second.
    pub least_timeout: Duration,
}

impl NewReno {
    /// For segments of this many bytes, ten of which may leave at once (RFC 6928).
    #[must_use]
    pub fn new(segment: u32) -> Self {
        let segment = u64::from(segment).max(1);
        Self {
            segment,
            window: 10 * segment,
            threshold: u64::MAX,
            credit: 0,
            halved: Instant::ZERO,
            halvings: 0,
            smoothed: None,
            variation: Duration::ZERO,
            backoff: 0,
            least_timeout: Duration::from_millis(200),
        }
    }

    /// How often loss or marks halved the window.
    #[must_use]
    pub const fn halvings(&self) -> u64 {
        self.halvings
    }

    fn measure(&mut self, rtt: Duration) {
        self.backoff = 0;
        let Some(smoothed) = self.smoothed else {
            (self.smoothed, self.variation) = (Some(rtt), rtt / 2);
            return;
        };
        self.variation = (self.variation * 3 + rtt.abs_diff(smoothed)) / 4;
        self.smoothed = Some((smoothed * 7 + rtt) / 8);
    }

    fn halve(&mut self, now: Instant, sent: Instant) {
        if sent >= self.halved {
            self.threshold = (self.window / 2).max(2 * self.segment);
            self.window = self.threshold;
            self.credit = 0;
            self.halved = now;
            self.halvings += 1;
        }
    }

    fn grow(&mut self, bytes: u64) {
        if self.window < self.threshold {
            self.window = self.window.saturating_add(bytes);
            return;
        }
        self.credit += bytes;
        if self.credit >= self.window {
            self.credit -= self.window;
            self.window = self.window.saturating_add(self.segment);
        }
    }
}

impl Control for NewReno {
    fn window(&self) -> u64 {
        self.window
    }

    fn timeout(&self) -> Duration {
        let once = self.smoothed.map_or(Duration::from_secs(1), |rtt| rtt + self.variation * 4);
        let backed_off = once.max(self.least_timeout) * (1 << self.backoff);
        backed_off.min(Duration::from_secs(60))
    }

    fn handle_acknowledged(&mut self, now: Instant, segment: &Acknowledged) {
        self.measure(now.since(segment.sent));
        if segment.marked {
            self.halve(now, segment.sent);
        } else if segment.sent >= self.halved {
            let is_used = segment.under_way.saturating_add(self.segment) >= self.window;
            if is_used || self.window < self.threshold {
                self.grow(segment.bytes);
            }
        }
    }

    fn handle_lost(&mut self, now: Instant, sent: Instant, _bytes: u64) {
        self.halve(now, sent);
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.backoff == 0 {
            self.threshold = (self.window / 2).max(2 * self.segment);
        }
        self.backoff = (self.backoff + 1).min(16);
        self.window = self.segment;
        self.credit = 0;
        self.halved = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_written_and_others_are_not() {
        let messages = [
            Message::Segment { number: u64::MAX },
            Message::Acknowledgement { number: 7, marked: true },
            Message::Acknowledgement { number: 8, marked: false },
        ];
        for message in messages {
            assert_eq!(Message::read(&message.write(0)), Some(message));
            assert_eq!(Message::read(&message.write(LEAST)[..LEAST - 1]), None);
        }
        assert_eq!(Message::read(&[9; 100]), None);
        assert_eq!(Message::read(&[]), None);
    }

    const SEGMENT: u32 = 1_000;

    /// Acknowledges a whole window, sent `at`, in the round trip after it.
    fn round(reno: &mut NewReno, at: Instant, marked: bool) -> Instant {
        let (window, now) = (reno.window, at + Duration::from_millis(10));
        for _ in 0..window / u64::from(SEGMENT) {
            let bytes = u64::from(SEGMENT);
            reno.handle_acknowledged(
                now,
                &Acknowledged { bytes, sent: at, marked, under_way: window },
            );
        }
        now
    }

    #[test]
    fn it_doubles_until_it_halves_and_then_adds_one() {
        let mut reno = NewReno::new(SEGMENT);
        let now = round(&mut reno, Instant::ZERO, false);
        assert_eq!(reno.window(), 20_000);
        reno.handle_lost(now, now, 1_000);
        reno.handle_lost(now, Instant::ZERO, 1_000);
        assert_eq!((reno.window(), reno.halvings()), (10_000, 1), "once in a round trip");
        let now = round(&mut reno, now, false);
        assert_eq!(reno.window(), 11_000);
        let now = round(&mut reno, now, true);
        assert_eq!((reno.window(), reno.halvings()), (5_500, 2), "marks count like losses");
        reno.handle_timeout(now);
        assert_eq!((reno.window(), reno.threshold), (1_000, 2_750));
    }

    #[test]
    fn silence_doubles_the_timeout() {
        let mut reno = NewReno::new(SEGMENT);
        round(&mut reno, Instant::ZERO, false);
        let once = reno.timeout();
        reno.handle_timeout(Instant::ZERO);
        reno.handle_timeout(Instant::ZERO);
        assert_eq!(reno.timeout(), once * 4);
        (0..100).for_each(|_| reno.handle_timeout(Instant::ZERO));
        assert_eq!(reno.timeout(), Duration::from_secs(60));
    }
}
