//! One connection of a station: its queue pair, the memory of its requests, and
//! the program behind it.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use landfall_placement::RegionId;
use landfall_transport::memory::Regions;
use qpip::{Buffer, CloseReason, MemoryKey};

/// How much is posted at a time.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub receives: u32,
    pub sends: u32,
    /// Bytes of each request.
    pub bytes: u32,
}

impl Shape {
    /// For much.
    pub const BULK: Self = Self { receives: 8, sends: 8, bytes: 256 << 10 };
    /// For little.
    pub const SMALL: Self = Self { receives: 2, sends: 2, bytes: 4 << 10 };

    pub fn requests(self) -> u32 {
        self.receives + self.sends
    }
}

/// What came of a connection so far.
#[derive(Clone, Debug)]
pub struct Report {
    /// Both ends, once it was open.
    pub ends: Option<(SocketAddr, SocketAddr)>,
    pub received: u64,
    pub hash: blake3::Hash,
    /// Bytes whose requests completed with success.
    pub sent: u64,
    /// Requests that completed otherwise.
    pub failed_sends: u32,
    pub peer_finished: bool,
    pub closed: Option<CloseReason>,
}

/// One connection.
pub struct Conversation {
    pub(super) program: Box<dyn Program>,
    pub(super) region: RegionId,
    pub(super) key: MemoryKey,
    pub(super) shape: Shape,
    /// Requests, by number, that can be posted.
    pub(super) free_receives: Vec<u32>,
    pub(super) free_sends: Vec<u32>,
    /// Posted, and not complete.
    pub(super) under_way: u32,
    /// Receives are posted as they become free.
    pub(super) is_reading: bool,
    pub(super) has_ended: bool,
    pub(super) hasher: blake3::Hasher,
    pub(super) report: Report,
}

impl Conversation {
    pub(super) fn new(
        program: Box<dyn Program>,
        region: RegionId,
        key: MemoryKey,
        shape: Shape,
    ) -> Self {
        let hasher = blake3::Hasher::new();
        let report = Report {
            ends: None,
            received: 0,
            hash: hasher.finalize(),
            sent: 0,
            failed_sends: 0,
            peer_finished: false,
            closed: None,
        };
        Self {
            program,
            region,
            key,
            shape,
            free_receives: (0..shape.receives).rev().collect(),
            free_sends: (shape.receives..shape.requests()).rev().collect(),
            under_way: 0,
            is_reading: true,
            has_ended: false,
            hasher,
            report,
        }
    }

    /// The buffer of a request, or its first `len` bytes.
    pub(super) fn buffer(&self, request: u32, len: u32) -> Buffer {
        Buffer::new(self.key, u64::from(request) * u64::from(self.shape.bytes), len)
    }

    pub(super) fn hear(&mut self, regions: &Regions, request: u32, offset: u32, len: u32) {
        let at = u64::from(request) * u64::from(self.shape.bytes) + u64::from(offset);
        let mut bytes = vec![0; len as usize];
        regions.read(&self.region.span(at, len), &mut bytes).unwrap();
        self.hasher.update(&bytes);
        self.report.received += u64::from(len);
        self.program.hear(&bytes);
    }

    /// What the program says next; its bytes are in the request's memory then.
    pub(super) fn say(&mut self, regions: &Regions, request: u32) -> Say {
        let mut bytes = vec![0; self.shape.bytes as usize];
        let say = self.program.say(&mut bytes);
        if let Say::Bytes(len) = say {
            let at = u64::from(request) * u64::from(self.shape.bytes);
            regions.write(&self.region.span(at, len as u32), &bytes[..len]).unwrap();
        }
        say
    }

    pub fn report(&self) -> Report {
        Report { hash: self.hasher.finalize(), ..self.report.clone() }
    }
}

// What a connection is for: what this side says, and what it does with what it hears.
//
// Both sides of a test make the bytes that they exchange from a seed, so that
// each can tell from a hash whether all of them came, in their order, once.

/// The bytes of a seed, one after another without end.
pub struct Pattern(blake3::OutputReader);

impl Pattern {
    pub fn new(seed: u64) -> Self {
        Self(blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof())
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }
}

/// The hash of the first `len` bytes of a seed.
pub fn hash_of(seed: u64, len: u64) -> blake3::Hash {
    let (mut pattern, mut hasher) = (Pattern::new(seed), blake3::Hasher::new());
    let mut bytes = vec![0; 64 << 10];
    let mut left = len;
    while left > 0 {
        let now = left.min(bytes.len() as u64) as usize;
        pattern.fill(&mut bytes[..now]);
        hasher.update(&bytes[..now]);
        left -= now as u64;
    }
    hasher.finalize()
}

/// What a program wants to say next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Say {
    /// This many bytes, which it has written.
    Bytes(usize),
    /// Nothing for now.
    Nothing,
    /// Nothing any more.
    End,
    /// It breaks off.
    Reset,
}

/// One side of a conversation.
pub trait Program {
    fn say(&mut self, into: &mut [u8]) -> Say;
    fn hear(&mut self, _bytes: &[u8]) {}
    /// The other side says no more.
    fn hear_end(&mut self) {}
}

/// Says this many bytes of a seed, then nothing any more. What it hears is in the
/// report that every conversation has.
pub struct Saying {
    pattern: Pattern,
    left: u64,
}

impl Saying {
    pub fn new(seed: u64, len: u64) -> Self {
        Self { pattern: Pattern::new(seed), left: len }
    }

    /// Only listens.
    pub fn nothing() -> Self {
        Self::new(0, 0)
    }
}

impl Program for Saying {
    fn say(&mut self, into: &mut [u8]) -> Say {
        let now = self.left.min(into.len() as u64) as usize;
        if now == 0 {
            return Say::End;
        }
        self.pattern.fill(&mut into[..now]);
        self.left -= now as u64;
        Say::Bytes(now)
    }
}

/// Answers each byte with itself, and the end with the end.
#[derive(Default)]
pub struct Echo {
    heard: Vec<u8>,
    ended: bool,
}

impl Program for Echo {
    fn say(&mut self, into: &mut [u8]) -> Say {
        let now = self.heard.len().min(into.len());
        if now == 0 {
            return if self.ended { Say::End } else { Say::Nothing };
        }
        into[..now].copy_from_slice(&self.heard[..now]);
        self.heard.drain(..now);
        Say::Bytes(now)
    }

    fn hear(&mut self, bytes: &[u8]) {
        self.heard.extend(bytes);
    }

    fn hear_end(&mut self) {
        self.ended = true;
    }
}

/// What a [`Script`] shares with its test.
#[derive(Debug, Default)]
pub struct Talk {
    /// What came.
    pub heard: Vec<u8>,
    pub heard_end: bool,
    /// What is to be said, and has not been.
    pub to_say: Vec<u8>,
    /// Behind that nothing more is said.
    pub end: bool,
    /// It breaks off, at once.
    pub reset: bool,
}

/// Says what the test tells it while it goes on, and shows what it hears.
#[derive(Clone, Default)]
pub struct Script(pub Rc<RefCell<Talk>>);

impl Script {
    /// Says this.
    pub fn tell(&self, bytes: &[u8]) {
        self.0.borrow_mut().to_say.extend(bytes);
    }

    /// Says this, and nothing any more.
    pub fn say_and_end(&self, bytes: &[u8]) {
        self.tell(bytes);
        self.0.borrow_mut().end = true;
    }
}

impl Program for Script {
    fn say(&mut self, into: &mut [u8]) -> Say {
        let mut talk = self.0.borrow_mut();
        let now = talk.to_say.len().min(into.len());
        if talk.reset {
            return Say::Reset;
        }
        if now == 0 {
            return if talk.end { Say::End } else { Say::Nothing };
        }
        into[..now].copy_from_slice(&talk.to_say[..now]);
        talk.to_say.drain(..now);
        Say::Bytes(now)
    }

    fn hear(&mut self, bytes: &[u8]) {
        self.0.borrow_mut().heard.extend(bytes);
    }

    fn hear_end(&mut self) {
        self.0.borrow_mut().heard_end = true;
    }
}
