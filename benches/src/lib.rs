//! What benchmarks share: an engine that receives units which a real sender
//! made, without memory, sockets or copies in between.
//!
//! Making a batch is apart from receiving it, so that only the receiver's
//! bookkeeping is timed: guess, place, placed.
#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod burst;
mod clan;
mod defrag;
mod firmware;
mod qpip;
mod stp;

pub use burst::NicPair;
pub use clan::{Bursts, TripLine};
pub use defrag::{DefragPair, Join};
pub use firmware::{AdapterPair, ClanLoad, HamachiLoad, LanaiLoad, Load, TigonLoad};
pub use qpip::{QpipPair, SEGMENT};
pub use stp::{BATCH, STU, StpPair};

use landfall_placement::{
    Duration, Ecn, Engine, Instant, Landing, PathId, PathLimits, PathState, Peer, Placement,
    RegionId, Spans, Ticket, Unit,
};
use landfall_testkit::engines::Area;
use landfall_testkit::engines::numbered::{self, Numbered};
use landfall_testkit::engines::stream::{self, Framing, Stream};

const PATH: PathId = PathId(0);
const ROOM: usize = 128;
/// A message, or an area of the stream.
const PIECE: u64 = 1 << 20;
const PIECES: u64 = 16;
const REGION: RegionId = RegionId::new(0, 1);

/// One unit on its way: its head, and how long it is.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    bytes: [u8; ROOM],
    len: usize,
    unit_len: u32,
    to_receiver: bool,
}

impl Head {
    /// Is there more to the unit than its head?
    #[must_use]
    pub const fn has_payload(&self) -> bool {
        self.unit_len as usize > self.len
    }
}

/// A sender and a receiver, and what is between them.
#[derive(Debug)]
pub struct Pair<E> {
    sender: E,
    receiver: E,
    now: Instant,
    batch: Vec<Head>,
    tickets: Vec<Ticket>,
    /// Used for every unit, as a driver does: an empty list is long to make.
    spans: Spans,
}

/// A line with units of a fixed length.
pub type NumberedPair = Pair<Numbered>;
/// A line with a byte stream.
pub type StreamPair = Pair<Stream>;

/// What a line needs of an engine beyond the contract.
pub trait Endless: Engine {
    /// Has something to send, always.
    fn keep_sending(&mut self, now: Instant);
    /// Has memory to receive into, always. Handles and counts events.
    fn keep_receiving(&mut self);
}

impl Endless for Numbered {
    fn keep_sending(&mut self, now: Instant) {
        while self.poll_event().is_some() {}
        // Until the engine has as much as it takes.
        while self.send(now, PATH, Peer::Node(1), Area::new(REGION, 0, PIECE)).is_ok() {}
    }

    fn keep_receiving(&mut self) {
        while let Some(event) = self.poll_event() {
            if let numbered::Event::Delivered { posted, .. } = event {
                let _ = self.receive_into(posted);
            }
        }
    }
}

impl Endless for Stream {
    fn keep_sending(&mut self, _: Instant) {
        while self.poll_event().is_some() {}
        while self.send(Area::new(REGION, 0, PIECE)).is_ok() {}
    }

    fn keep_receiving(&mut self) {
        while let Some(event) = self.poll_event() {
            if let stream::Event::Received { posted, .. } = event {
                let _ = self.receive_into(posted);
            }
        }
    }
}

impl NumberedPair {
    /// A line with this many payload bytes in each unit.
    #[must_use]
    pub fn new(payload: u32) -> Self {
        let config = numbered::Config::with_unit(payload);
        let engine = |seed| Numbered::new(config, [seed; 32]);
        let mut receiver = engine(2);
        for n in 0..PIECES {
            let _ = receiver.receive_into(Area::new(REGION, n * PIECE, PIECE));
        }
        Self::between(engine(1), receiver)
    }
}

impl StreamPair {
    /// A line whose units carry as much as a frame does.
    #[must_use]
    pub fn new() -> Self {
        let framing = Framing::Bare { peer: Peer::Node(1), local_port: 1, remote_port: 2 };
        let config = stream::Config::new(framing, PATH);
        let back = stream::Config { framing: framing.reversed(Peer::Node(0)), ..config };
        let mut receiver = Stream::listen(back, [2; 32]);
        for n in 0..PIECES {
            let _ = receiver.receive_into(Area::new(REGION, n * PIECE, PIECE));
        }
        Self::between(Stream::connect(config, [1; 32]), receiver)
    }
}

impl Default for StreamPair {
    fn default() -> Self {
        Self::new()
    }
}

impl<E: Endless> Pair<E> {
    fn between(mut sender: E, mut receiver: E) -> Self {
        let now = Instant::from_millis(1);
        for engine in [&mut sender, &mut receiver] {
            engine.handle_path(now, PATH, PathState::Up(PathLimits::plain(9000)));
        }
        let (batch, tickets) = (Vec::with_capacity(256), Vec::with_capacity(256));
        Self { sender, receiver, now, batch, tickets, spans: Spans::new() }
    }

    /// Makes the next `units` units with payload; what else the two have to
    /// say to each other is said on the way.
    ///
    /// # Panics
    /// The sender stops sending: the bench would measure nothing.
    pub fn next_batch(&mut self, units: usize) -> &[Head] {
        self.batch.clear();
        for idle in 0..100_000 {
            self.sender.keep_sending(self.now);
            self.receiver.keep_receiving();
            while self.batch.len() < units {
                let Some(head) = poll(&mut self.sender, self.now, true, &mut self.spans) else {
                    break;
                };
                if head.has_payload() {
                    self.batch.push(head);
                } else {
                    deliver(&mut self.receiver, self.now, &head);
                }
            }
            if self.batch.len() == units {
                return &self.batch;
            }
            // What the receiver has not seen cannot be granted anew: give it
            // the short batch, and let it answer.
            assert!(idle < 99_999, "the sender has nothing to send");
            for head in std::mem::take(&mut self.batch) {
                deliver(&mut self.receiver, self.now, &head);
            }
            self.answer();
        }
        &self.batch
    }

    /// What a driver does with the batch: a guess, a place for each, then all placed.
    /// Gives the number of units that got a place. Never inlined, so that its
    /// instructions can be counted.
    #[inline(never)]
    pub fn receive(&mut self) -> usize {
        self.tickets.clear();
        std::hint::black_box(self.receiver.guess(PATH, 0));
        for head in &self.batch {
            self.tickets.extend(place(&mut self.receiver, self.now, head, &mut self.spans));
        }
        for ticket in &self.tickets {
            self.receiver.handle_placed(self.now, *ticket, Landing::Unchecked);
        }
        self.tickets.len()
    }

    /// Lets the receiver answer and both let time pass.
    pub fn answer(&mut self) {
        self.now += Duration::from_micros(100);
        self.receiver.keep_receiving();
        for engine in [&mut self.receiver, &mut self.sender] {
            if engine.poll_timeout().is_some_and(|timeout| timeout.at <= self.now) {
                engine.handle_timeout(self.now);
            }
        }
        while let Some(head) = poll(&mut self.receiver, self.now, false, &mut self.spans) {
            deliver(&mut self.sender, self.now, &head);
        }
    }
}

/// The next unit of an engine, which is sent at once. Knows what is sent by the
/// spans in `from`.
#[inline]
fn poll<E: Engine>(
    engine: &mut E,
    now: Instant,
    to_receiver: bool,
    from: &mut Spans,
) -> Option<Head> {
    let mut bytes = [0; ROOM];
    from.clear();
    let unit = engine.poll_transmit(now, PATH, &mut bytes, from)?;
    engine.handle_sent(now, unit.ticket);
    let len = usize::from(unit.head_len);
    let unit_len = len as u32 + from.total_len() as u32;
    Some(Head { bytes, len, unit_len, to_receiver })
}

/// Gives a unit to an engine, and says that it is in place.
fn deliver<E: Engine>(engine: &mut E, now: Instant, head: &Head) {
    if let Some(ticket) = place(engine, now, head, &mut Spans::new()) {
        engine.handle_placed(now, ticket, Landing::Unchecked);
    }
}

/// Asks an engine for the place of a unit.
#[inline]
fn place<E: Engine>(engine: &mut E, now: Instant, head: &Head, into: &mut Spans) -> Option<Ticket> {
    into.clear();
    let unit = Unit {
        path: PATH,
        from: Peer::Node(u32::from(!head.to_receiver)),
        head: &head.bytes[..head.len],
        len: head.unit_len,
        segment: None,
        ecn: Ecn::NotCapable,
        verified: false,
    };
    match engine.place(now, &unit, into) {
        Ok(Placement::Into { ticket, .. }) => Some(ticket),
        _ => None,
    }
}
