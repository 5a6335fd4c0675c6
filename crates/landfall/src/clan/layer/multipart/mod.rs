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
//!
//! The side that sends.

use std::time::Instant;

use landfall_transport::Wait;
pub use receiver::{Message, Receiver};

use super::ring;
use super::ring::Producer;
use crate::clan::layer::waiting::{Connect, ConnectionEnd, Half, Joint, Waiting};
use crate::clan::{Access, Error, Fabric, Misbehaviour, WORD};

mod receiver;

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

    /// A ring of this many bytes at the receiver; a multiple of eight in which a header
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

/// Sends messages. Dropping it ends the connection, after the last of them.
#[derive(Debug)]
pub struct Sender<F: Fabric> {
    side: Sending<F>,
    waiting: Waiting<F>,
}

#[derive(Debug)]
struct Sending<F: Fabric> {
    ring: Producer<F>,
    config: Config,
    /// Header and meta-data of the message that is being sent.
    head: Vec<u8>,
    progress: Progress,
    /// How many tripwires have heard of the end.
    end_published: u8,
}

/// How far a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// No message is under way.
    Between,
    /// `offset` bytes of this piece are in the ring: 0 is the header, then the parts.
    Within { piece: usize, offset: u64, is_announced: bool },
    /// A message was given up in the middle.
    Cut,
}

impl<F: Fabric> ConnectionEnd<F> for Sending<F> {
    fn remote(&mut self) -> &mut F::Remote {
        self.ring.remote()
    }
}

impl<F: Fabric> Connect<F> for Sender<F> {
    type Config = Config;

    fn ours(_: &Config) -> Result<u64, Error> {
        Ok(ring::PRODUCER_LEN)
    }

    fn theirs(config: &Config) -> Result<u64, Error> {
        config.receiver_len()
    }

    fn join(joint: Joint<F>, config: Config) -> Result<Self, Error> {
        let Joint { fabric, local, remote } = joint;
        let words = ring::READ..ring::CLOSED + WORD;
        let wire = fabric.watch(&local, words, Access::Write, Some(&remote))?;
        let ring = Producer::new(local, remote, config.capacity);
        let (head, progress, end_published) = (Vec::new(), Progress::Between, 0);
        let side = Sending { ring, config, head, progress, end_published };
        Ok(Self { side, waiting: Waiting::new(fabric, config.wait, wire) })
    }
}

impl<F: Fabric> Sender<F> {
    /// This side's half.
    ///
    /// # Errors
    /// Those of [`Fabric::expose`], or the configuration is invalid.
    pub fn open(fabric: &F, config: Config) -> Result<Half<F, Self>, Error> {
        Half::open(fabric, config)
    }

    /// Sends a message. The header of a long one is on its way before the body.
    ///
    /// When the deadline ends it in the middle, the connection is of no use any more
    /// ([`Error::Cut`]), for a message that is begun cannot be taken back.
    ///
    /// # Errors
    /// It is too long, the deadline is over, the receiver is closed, or the peer is
    /// gone or mad.
    pub fn send(
        &mut self,
        meta: &[u8],
        parts: &[&[u8]],
        deadline: Option<Instant>,
    ) -> Result<(), Error> {
        let Self { side, waiting } = self;
        side.begin(meta, parts)?;
        let sent = waiting.until(side, deadline, |side| side.step(parts));
        side.end();
        sent
    }

    /// The same for a task. Dropping the future in the middle is as a deadline there.
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    pub async fn send_async(&mut self, meta: &[u8], parts: &[&[u8]]) -> Result<(), Error> {
        let Self { side, waiting } = self;
        side.begin(meta, parts)?;
        let sending = EndOnDrop(side);
        waiting.reached(&mut *sending.0, |side| side.step(parts)).await
    }

    /// Waits until the receiver has got all, and has said so: it does when it looks for
    /// more, or is dropped.
    ///
    /// # Errors
    /// It was closed before, the deadline is over, or the peer is gone or misbehaves.
    pub fn drain(&mut self, deadline: Option<Instant>) -> Result<(), Error> {
        let Self { side, waiting } = self;
        waiting.until(side, deadline, |side| side.ring.is_drained())
    }

    /// Ends the connection after what was sent. The receiver gets that, then
    /// [`Error::Closed`].
    ///
    /// # Errors
    /// The send buffer is full (then it is repeated), or the peer is gone.
    pub fn finish(&mut self) -> Result<(), Error> {
        self.side.finish()
    }
}

/// Ends a message, in whatever state it is, also when its future is dropped.
struct EndOnDrop<'a, F: Fabric>(&'a mut Sending<F>);

impl<F: Fabric> Drop for EndOnDrop<'_, F> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl<F: Fabric> Sending<F> {
    /// Makes the header.
    fn begin(&mut self, meta: &[u8], parts: &[&[u8]]) -> Result<(), Error> {
        if self.progress == Progress::Cut {
            return Err(Error::Cut);
        }
        let body = parts.iter().map(|part| part.len() as u64).sum();
        self.config
            .check(parts.len() as u64, meta.len() as u64, body)
            .map_err(|(len, most)| Error::TooLong { len, most })?;
        if let Some(long) = parts.iter().find(|part| u32::try_from(part.len()).is_err()) {
            return Err(Error::TooLong { len: long.len() as u64, most: u64::from(u32::MAX) });
        }
        let head = Head { parts: parts.len() as u16, meta: meta.len() as u32 };
        self.head.clear();
        self.head.extend_from_slice(&head.to_word().to_le_bytes());
        for part in parts {
            self.head.extend_from_slice(&(part.len() as u32).to_le_bytes());
        }
        self.head.resize(head.meta_at() as usize, 0);
        self.head.extend_from_slice(meta);
        self.head.resize(head.len() as usize, 0);
        self.progress = Progress::Within { piece: 0, offset: 0, is_announced: false };
        Ok(())
    }

    /// The message is sent, or was given up.
    fn end(&mut self) {
        match self.progress {
            // Nothing of it is there.
            Progress::Within { piece: 0, offset: 0, .. } => self.progress = Progress::Between,
            Progress::Within { .. } => self.progress = Progress::Cut,
            Progress::Between | Progress::Cut => {}
        }
    }

    /// Puts in what there is room for. Whatever step the way is too full for, it is
    /// done again by the next call.
    fn step(&mut self, parts: &[&[u8]]) -> Result<Option<()>, Error> {
        while let Progress::Within { piece, offset, is_announced } = self.progress {
            let is_complete = piece > parts.len();
            if is_complete && is_announced {
                self.ring.publish_with(BODIES)?;
                self.progress = Progress::Between;
                break;
            }
            // Anyone who waits for headers is woken: at the latest with the body, earlier
            // if that is long, and before this side waits for what it takes out.
            let is_before_body = piece == 1 && offset == 0;
            let is_full = piece > 0 && !is_complete && self.ring.room(1)?.is_none();
            if !is_announced && (is_complete || is_full || is_before_body && is_long(parts)) {
                self.ring.publish_with(HEADERS)?;
                self.progress = Progress::Within { piece, offset, is_announced: true };
                continue;
            }
            let bytes = if piece == 0 { self.head.as_slice() } else { parts[piece - 1] };
            let whole = filled_up(bytes.len() as u64);
            if offset == whole {
                self.progress = Progress::Within { piece: piece + 1, offset: 0, is_announced };
                continue;
            }
            let Some(room) = self.ring.room(1)? else { return Ok(None) };
            let capacity = self.config.capacity;
            let at = self.ring.written() % capacity;
            // Up to the end of the piece, of the room, and of the ring.
            let len = (whole - offset).min(room).min(capacity - at);
            let rest = &bytes[(offset as usize).min(bytes.len())..];
            let rest = &rest[..rest.len().min(len as usize)];
            if !rest.is_empty() {
                self.ring.write(ring::PLACES + at, rest)?;
            }
            self.ring.advance(len);
            self.progress = Progress::Within { piece, offset: offset + len, is_announced };
        }
        Ok(Some(()))
    }

    /// Both tripwires hear of the end. What the way is too full for is done by the next
    /// call, and what is done is not done again: else it would never end.
    fn finish(&mut self) -> Result<(), Error> {
        self.ring.finish()?;
        for (told, word) in [(1, HEADERS), (2, BODIES)] {
            if self.end_published < told {
                self.ring.publish_with(word)?;
                self.end_published = told;
            }
        }
        Ok(())
    }
}

fn is_long(parts: &[&[u8]]) -> bool {
    parts.iter().map(|part| part.len() as u64).sum::<u64>() >= LONG
}

impl<F: Fabric> Drop for Sender<F> {
    fn drop(&mut self) {
        let Self { side, waiting, .. } = self;
        waiting.flush_on_drop(side, Sending::finish);
    }
}
