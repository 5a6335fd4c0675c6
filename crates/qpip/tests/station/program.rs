//! What a connection is for: what this side says, and what it does with what it hears.
//!
//! Both sides of a test make the bytes that they exchange from a seed, so that
//! each can tell from a hash whether all of them came, in their order, once.

use std::cell::RefCell;
use std::rc::Rc;

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
    /// So many bytes, which it has written.
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

/// Says so many bytes of a seed, then nothing any more. What it hears is in the
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
