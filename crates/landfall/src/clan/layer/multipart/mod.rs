//! Messages of several parts with meta-data, over the queue's scheme (section 4.3).
//!
//! A message is a header (what parts there are, how long they are, and meta-data of
//! the application) and a body (the parts). The receiver gets the header as soon as it
//! is there, and works on it while the body still arrives; it has a tripwire for
//! headers and another one for bodies, so that it is woken for what it waits for and
//! not for every piece.
//!
//! ```text
//!  in the ring, from a multiple of eight on
//!    parts: 2 bytes, mark: 2 bytes, length of the meta-data: 4 bytes
//!    length of each part: 4 bytes; filled up to a multiple of eight
//!    meta-data, filled up
//!    each part, filled up
//! ```
//!
//! ```
//! use landfall::clan::Threads;
//! use landfall::clan::layer::multipart::{Config, Receiver, Sender};
//!
//! let (here, there) = Threads::pair()?;
//! let (sender, receiver) =
//!     (Sender::open(&here, Config::DEFAULT)?, Receiver::open(&there, Config::DEFAULT)?);
//! let (to_receiver, to_sender) = (receiver.cookie(), sender.cookie());
//! let (mut sender, mut receiver) = (sender.connect(&to_receiver)?, receiver.connect(&to_sender)?);
//!
//! sender.send(b"meta-data", &[b"one part", b"another"], None)?;
//! let mut message = receiver.next(None)?;
//! assert_eq!((message.meta(), message.lengths()), (&b"meta-data"[..], &[8, 7][..]));
//! assert_eq!(message.parts(None)?, [&b"one part"[..], b"another"]);
//! # Ok::<(), landfall::clan::Error>(())
//! ```

mod receiver;
mod sender;

use landfall_transport::Wait;

use super::ring;
use crate::clan::{Error, Misbehaviour, WORD};

pub use receiver::{Message, Receiver};
pub use sender::Sender;

/// Touched when a header is complete; what it holds is not looked at.
const HEADERS: u64 = ring::SPARE;
/// Touched when a body is complete; what it holds is not looked at.
const BODIES: u64 = ring::SPARE + WORD;
/// In each header, so that a sender that has lost its place is noticed.
const MARK: u16 = 0x4d50;
/// A body from this length on is announced by its header.
const LONG: u64 = 4096;

/// What both sides agree on. How each waits is its own.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    capacity: u64,
    parts: u16,
    meta: u32,
    body: u64,
    wait: Wait,
}

impl Config {
    /// A ring of 512 KiB; up to 64 parts, 4 KiB of meta-data and 64 MiB of body.
    pub const DEFAULT: Self =
        Self { capacity: 512 << 10, parts: 64, meta: 4096, body: 64 << 20, wait: Wait::BALANCED };

    /// A ring of so many bytes at the receiver; a multiple of eight in which a header
    /// has room. Longer messages pass through it.
    #[must_use]
    pub const fn ring(self, capacity: u64) -> Self {
        Self { capacity, ..self }
    }

    /// The most parts, bytes of meta-data, and bytes of all parts together.
    #[must_use]
    pub const fn limits(self, parts: u16, meta: u32, body: u64) -> Self {
        Self { parts, meta, body, ..self }
    }

    /// How this side waits.
    #[must_use]
    pub const fn wait(self, wait: Wait) -> Self {
        Self { wait, ..self }
    }

    fn receiver_len(&self) -> Result<u64, Error> {
        if !self.capacity.is_multiple_of(WORD) {
            return Err(Error::BadConfig("a ring has a multiple of eight bytes"));
        }
        if (Head { parts: self.parts, meta: self.meta }).len() > self.capacity {
            return Err(Error::BadConfig("the longest header has to fit into the ring"));
        }
        ring::PLACES.checked_add(self.capacity).ok_or(Error::NoRoom("ring of that length"))
    }

    /// Is there room for that in a message?
    fn check(&self, parts: u64, meta: u64, body: u64) -> Result<(), (u64, u64)> {
        let limits =
            [(parts, u64::from(self.parts)), (meta, u64::from(self.meta)), (body, self.body)];
        limits.into_iter().find(|(len, most)| len > most).map_or(Ok(()), Err)
    }
}

/// The first word of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    parts: u16,
    meta: u32,
}

impl Head {
    fn to_word(self) -> u64 {
        u64::from(self.parts) | u64::from(MARK) << 16 | u64::from(self.meta) << 32
    }

    fn from_word(word: u64) -> Result<Self, Error> {
        if (word >> 16) as u16 != MARK {
            return Err(Error::PeerMisbehaved(Misbehaviour::Header(word)));
        }
        Ok(Self { parts: word as u16, meta: (word >> 32) as u32 })
    }

    /// Where the meta-data begins.
    fn meta_at(self) -> u64 {
        WORD + filled_up(4 * u64::from(self.parts))
    }

    /// Bytes of the header with the meta-data.
    fn len(self) -> u64 {
        self.meta_at() + filled_up(u64::from(self.meta))
    }
}

/// With what follows a part in the ring.
const fn filled_up(len: u64) -> u64 {
    len.next_multiple_of(WORD)
}
