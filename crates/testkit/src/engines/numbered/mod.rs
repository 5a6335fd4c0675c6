//! The scheduled engine: numbered units of a message, each with its place.
//!
//! # The protocol
//!
//! ```text
//!   sender                                receiver
//!     │  Request: message 7, 4 MiB, 1024 a unit, my key  │  memory was posted
//!     ├─────────────────────────────────────────────────▶│  for it before
//!     │            Grant: place 2, up to unit 4096, my key │
//!     │◀──────────────────────────────────────────────────┤
//!     │  Data 0 … 255                                     │  unit n belongs at
//!     ├─────────────────────────────────────────────────▶│  n × 1024, whenever
//!     │         Ack: all before 256, up to unit 4352       │  it comes
//!     │◀──────────────────────────────────────────────────┤
//!     │  …                          Done: messages ≤ 7     │  Delivered
//!     │◀──────────────────────────────────────────────────┤
//! ```
//!
//! - The receiver acknowledges every this many units, and tells of each gap once
//!   when it appears; the sender sends what is missing again. What is still not
//!   acknowledged after a timeout is sent again in order.
//! - A message that fits one unit goes without asking, once the keys are known:
//!   it takes the first memory that was posted, or is refused and then asks.
//! - A connection is a pair of path and peer. If either side gives up on
//!   anything, the whole connection has failed, and what is asked for next opens
//!   a new one, with new keys: nothing of the old one is believed any more.
//! - Word operations take effect exactly once: the receiver remembers the
//!   answers to the last 32 of a connection.
//! - There is no congestion control: the window alone bounds what is under way.
//! - Anyone may ask for a place. A forged request ties memory up until it times
//!   out; it never completes without the key.
//!
//! # Who owns which state
//!
//! | file | state |
//! | --- | --- |
//! | `connection` | keys, numbers used, answers remembered; what happens when nothing comes |
//! | `incoming` | one message that is received |
//! | `outgoing` | one message that is sent |
//! | `receive` | what a unit does to all of them |
//! | `transmit` | what is sent next |

mod config;
mod connection;
pub mod header;
mod incoming;
mod outgoing;
mod receive;
mod transmit;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cell::Cell;

use landfall_placement::{
    Duration, Engine, Guess, Instant, Landing, PathId, PathLimits, PathState, Peer, Placement,
    Random, Refusal, Refusals, Seed, Spans, Ticket, Timeout, Transmit, Unit, WordFunction,
    WordWidth,
};

pub use config::{Config, Error, Event, FetchId, MessageId};
use connection::Connection;
use header::HEADER_LEN;
use incoming::Incoming;
use landfall_placement::Area;
use outgoing::Outgoing;

/// A path, as far as it was told of.
#[derive(Debug)]
struct Path {
    id: PathId,
    /// `None` while it is down.
    limits: Option<PathLimits>,
    /// The place that the last unit of this path went to.
    last: Option<(usize, u64)>,
    /// Something that carries no payload may be due.
    is_control_due: bool,
}

/// A word operation that this side asked for.
#[derive(Debug)]
struct PendingOperation {
    id: FetchId,
    connection: usize,
    number: u32,
    offset: u64,
    width: WordWidth,
    function: WordFunction,
    is_due: bool,
    retries: u32,
    deadline: Instant,
}

/// The engine: both sender and receiver, to several peers over several paths.
///
/// ```
/// use landfall_placement::{Engine, PathId, PathLimits, PathState, Peer, RegionId, Instant};
/// use landfall_testkit::engines::numbered::{Config, Numbered};
/// use landfall_testkit::engines::Area;
///
/// let path = PathId(0);
/// let mut engine = Numbered::new(Config::with_unit(1024), [7; 32]);
/// engine.handle_path(Instant::ZERO, path, PathState::Up(PathLimits::plain(1472)));
/// engine.receive_into(Area::new(RegionId::new(0, 1), 0, 1 << 20))?;
/// engine.send(Instant::ZERO, path, Peer::Node(2), Area::new(RegionId::new(1, 1), 0, 5000))?;
/// # Ok::<(), landfall_testkit::engines::numbered::Error>(())
/// ```
#[derive(Debug)]
pub struct Numbered {
    config: Config,
    random: Random,
    paths: Vec<Path>,
    connections: Box<[Connection]>,
    incoming: Box<[Incoming]>,
    outgoing: Box<[Outgoing]>,
    asked: Box<[Option<PendingOperation>]>,
    posted: VecDeque<Area>,
    words: Option<Area>,
    events: VecDeque<Event>,
    events_bound: usize,
    /// How many events are still to come for what the user asked for.
    obligations: usize,
    /// The outgoing message whose turn it is.
    turn: usize,
    /// Counts uses of connections and places, for their order.
    clock: u64,
    next_id: u64,
    retransmitted: u64,
    refusals: Refusals,
    /// [`Config::silence`], which is asked for with every unit.
    silence: Duration,
    /// The next timer, until something changes: a driver that spins asks in
    /// every turn, and nothing changes in most.
    next_timer: Cell<Option<Option<Timeout>>>,
}

impl Numbered {
    /// An engine within these bounds. The seed decides its keys.
    #[must_use]
    pub fn new(config: Config, seed: Seed) -> Self {
        let config = config.in_range();
        let window = Config::window_units(config.window, config.unit);
        let events_bound = 2 * (config.posted + config.incoming + config.outgoing + config.fetches);
        Self {
            random: Random::new(seed),
            paths: Vec::with_capacity(config.paths),
            connections: (0..config.connections).map(|_| Connection::new()).collect(),
            incoming: (0..config.incoming)
                .map(|_| Incoming::new(window, config.checksum))
                .collect(),
            outgoing: (0..config.outgoing).map(|_| Outgoing::new(window)).collect(),
            asked: (0..config.fetches).map(|_| None).collect(),
            posted: VecDeque::with_capacity(config.posted + config.incoming),
            words: None,
            events: VecDeque::with_capacity(events_bound),
            events_bound,
            obligations: 0,
            turn: 0,
            clock: 0,
            next_id: 0,
            retransmitted: 0,
            refusals: Refusals::new(),
            silence: config.silence(),
            next_timer: Cell::new(None),
            config,
        }
    }

    /// Posts memory for the next message; several may be posted. The memory is
    /// the engine's until an event names it.
    ///
    /// # Errors
    /// [`Error::BadMemory`], [`Error::Overlap`] with memory that is the
    /// engine's, [`Error::Busy`] at the configured bound.
    pub fn receive_into(&mut self, memory: impl Into<Area>) -> Result<(), Error> {
        self.next_timer.set(None);
        let area = memory.into();
        if !area.is_valid() {
            return Err(Error::BadMemory);
        }
        if self.posted.len() >= self.config.posted || !self.may_ask() {
            return Err(Error::Busy);
        }
        let bound = self.incoming.iter().filter(|place| place.holds_memory());
        let mut held = bound.map(|place| &place.posted).chain(&self.posted).chain(&self.words);
        if held.any(|other| other.overlaps(&area)) {
            return Err(Error::Overlap);
        }
        self.obligations += 1;
        self.posted.push_back(area);
        self.bind_waiting();
        Ok(())
    }

    /// Takes back the memory that was posted last, if no message has begun to
    /// use it.
    pub fn take_back_posted(&mut self) -> Option<Area> {
        self.next_timer.set(None);
        let area = self.posted.pop_back()?;
        self.obligations -= 1;
        Some(area)
    }

    /// Lets peers do word operations on this memory (`None`: on none).
    ///
    /// # Errors
    /// [`Error::BadMemory`], or [`Error::Overlap`] with memory that waits for
    /// messages.
    pub fn serve_words(&mut self, memory: Option<Area>) -> Result<(), Error> {
        self.next_timer.set(None);
        if let Some(area) = &memory {
            if !area.is_valid() {
                return Err(Error::BadMemory);
            }
            let bound = self.incoming.iter().filter(|place| place.holds_memory());
            let mut held = bound.map(|place| &place.posted).chain(&self.posted);
            if held.any(|other| other.overlaps(area)) {
                return Err(Error::Overlap);
            }
        }
        self.words = memory;
        Ok(())
    }

    /// Sends this memory as a message. It is the engine's to read until an
    /// event says that the message was sent, or that it failed.
    ///
    /// # Errors
    /// [`Error::PathDown`], [`Error::BadMemory`], [`Error::TooLong`], or
    /// [`Error::Busy`] at a configured bound.
    pub fn send(
        &mut self,
        now: Instant,
        path: PathId,
        to: Peer,
        memory: impl Into<Area>,
    ) -> Result<MessageId, Error> {
        self.next_timer.set(None);
        let source = memory.into();
        if !source.is_valid() {
            return Err(Error::BadMemory);
        }
        let path = self.path_index(path).ok_or(Error::PathDown)?;
        let limits = self.paths[path].limits.ok_or(Error::PathDown)?;
        let room = limits.unit.saturating_sub(HEADER_LEN as u32);
        let unit = self.config.unit.min(room);
        if unit == 0 || usize::from(limits.head) < header::FETCH_LEN {
            return Err(Error::PathDown);
        }
        let units = Incoming::units_of(source.len, unit).ok_or(Error::TooLong)?;
        if !self.may_ask() {
            return Err(Error::Busy);
        }
        let free = self.outgoing.iter().position(|out| out.state == outgoing::State::Free);
        let free = free.ok_or(Error::Busy)?;
        let connection = self.connect(path, to).ok_or(Error::Busy)?;
        let message = self.connections[connection].next_message;
        let under_way = self.outgoing.iter().filter(|o| o.is_live() && o.connection == connection);
        if under_way.map(|out| message.wrapping_sub(out.message)).max().unwrap_or(0) >= 64 {
            return Err(Error::Busy);
        }
        self.connections[connection].next_message = message.wrapping_add(1);
        let eager =
            self.config.eager && units == 1 && self.connections[connection].remote_key.is_some();
        let id = MessageId(self.new_id());
        let out = &mut self.outgoing[free];
        out.begin((connection, message), id, source, (unit, units), eager);
        out.arm(now, self.config.retransmit_after);
        self.paths[path].is_control_due = true;
        self.obligations += 1;
        Ok(id)
    }

    /// Does `function` on a word of the memory that the other side serves,
    /// exactly once. Operations under way take effect in any order.
    ///
    /// # Errors
    /// [`Error::PathDown`], [`Error::Unaligned`], or [`Error::Busy`] at a
    /// configured bound.
    pub fn fetch(
        &mut self,
        now: Instant,
        path: PathId,
        to: Peer,
        (offset, width): (u64, WordWidth),
        function: WordFunction,
    ) -> Result<FetchId, Error> {
        self.next_timer.set(None);
        if !offset.is_multiple_of(u64::from(width.bytes())) {
            return Err(Error::Unaligned);
        }
        let path = self.path_index(path).ok_or(Error::PathDown)?;
        let limits = self.paths[path].limits.ok_or(Error::PathDown)?;
        if (limits.unit as usize) < header::FETCH_LEN {
            return Err(Error::PathDown);
        }
        if !self.may_ask() {
            return Err(Error::Busy);
        }
        let free = self.asked.iter().position(Option::is_none).ok_or(Error::Busy)?;
        let connection = self.connect(path, to).ok_or(Error::Busy)?;
        let number = self.connections[connection].next_fetch;
        let under_way = self.asked.iter().flatten().filter(|a| a.connection == connection);
        let oldest = under_way.map(|asked| number.wrapping_sub(asked.number)).max().unwrap_or(0);
        if oldest >= connection::FETCH_WINDOW {
            return Err(Error::Busy);
        }
        let id = FetchId(self.new_id());
        let has_key = self.connections[connection].remote_key.is_some();
        self.connections[connection].next_fetch = number.wrapping_add(1);
        self.connections[connection].hello_due |= !has_key;
        self.connections[connection].is_greeting |= !has_key;
        self.asked[free] = Some(PendingOperation {
            id,
            connection,
            number,
            offset,
            width,
            function,
            is_due: has_key,
            retries: 0,
            deadline: now + self.config.retransmit_after,
        });
        self.paths[path].is_control_due = true;
        self.obligations += 1;
        Ok(id)
    }

    /// How many units were sent more than once.
    #[must_use]
    pub const fn retransmitted(&self) -> u64 {
        self.retransmitted
    }

    /// How much memory waits for messages that have not begun.
    #[must_use]
    pub fn posted(&self) -> usize {
        self.posted.len()
    }

    /// Is nothing under way that this side asked for, other than receiving?
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.outgoing.iter().all(|out| out.state == outgoing::State::Free)
            && self.asked.iter().all(Option::is_none)
            && self.connections.iter().all(|c| c.done_at == Instant::FAR_FUTURE)
    }

    /// Each thing asked for leads to one event, and all of them fit the queue.
    fn may_ask(&self) -> bool {
        self.events.len() + self.obligations < self.events_bound
    }

    fn tell(&mut self, event: Event) {
        self.obligations = self.obligations.saturating_sub(1);
        self.events.push_back(event);
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    #[inline]
    fn path_index(&self, path: PathId) -> Option<usize> {
        self.paths.iter().position(|known| known.id == path)
    }

    /// The connection with this peer, opened if need be.
    fn connect(&mut self, path: usize, peer: Peer) -> Option<usize> {
        let index = self.find_connection(path, peer).or_else(|| self.open(path, peer))?;
        self.connections[index].used = self.tick();
        Some(index)
    }

    fn find_connection(&self, path: usize, peer: Peer) -> Option<usize> {
        self.connections.iter().position(|c| c.is_open && c.path == path && c.peer == peer)
    }

    /// Opens a connection: in a free place, or in that of the idle one that
    /// was not used for the longest.
    fn open(&mut self, path: usize, peer: Peer) -> Option<usize> {
        let unused = (0..self.connections.len()).filter(|index| self.is_unused(*index));
        let index = unused.min_by_key(|index| {
            let known = &self.connections[*index];
            (known.is_open, known.used)
        })?;
        self.connections[index].open(index, path, peer, &mut self.random);
        Some(index)
    }

    /// Is nothing under way on this connection?
    fn is_unused(&self, connection: usize) -> bool {
        let receives = self
            .incoming
            .iter()
            .any(|place| place.state != incoming::State::Free && place.connection == connection);
        let sends = self.outgoing.iter().any(|out| out.is_live() && out.connection == connection);
        let asks = self.asked.iter().flatten().any(|asked| asked.connection == connection);
        !receives && !sends && !asks
    }
}

impl Engine for Numbered {
    type Event = Event;

    fn handle_path(&mut self, _now: Instant, path: PathId, state: PathState) {
        self.next_timer.set(None);
        let limits = match state {
            PathState::Up(limits) => Some(limits),
            PathState::Down => None,
        };
        match self.path_index(path) {
            Some(index) => {
                self.paths[index].limits = limits;
                self.paths[index].is_control_due = true;
            }
            None if self.paths.len() < self.config.paths => {
                self.paths.push(Path { id: path, limits, last: None, is_control_due: true });
            }
            None => {
                self.refusals.count(Refusal::NoRoom);
            }
        }
    }

    #[inline]
    fn guess(&self, path: PathId, nth: usize) -> Option<Guess> {
        self.guess_run(self.path_index(path)?, nth)
    }

    #[inline]
    fn place(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        self.next_timer.set(None);
        self.sort_in(now, unit, into).map_err(|refusal| self.refusals.count(refusal))
    }

    #[inline]
    fn handle_placed(&mut self, now: Instant, ticket: Ticket, landing: Landing) {
        self.next_timer.set(None);
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
        let path = self.path_index(path)?;
        let was_due = self.paths[path].is_control_due;
        let unit = self.next_transmit(now, path, head, from);
        if was_due || unit.is_some() {
            self.next_timer.set(None);
        }
        unit
    }

    #[inline]
    fn handle_sent(&mut self, _now: Instant, ticket: Ticket) {
        self.next_timer.set(None);
        self.release(ticket);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.next_timer.set(None);
        self.fire_timers(now);
    }

    fn poll_timeout(&self) -> Option<Timeout> {
        if let Some(known) = self.next_timer.get() {
            debug_assert_eq!(known, self.find_next_timer(), "something changed without a word");
            return known;
        }
        let next = self.find_next_timer();
        self.next_timer.set(Some(next));
        next
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn refusals(&self) -> &Refusals {
        &self.refusals
    }
}
