//! The side that sends.

use std::time::Instant;

use super::{BODIES, Config, HEADERS, Head, LONG, filled_up};
use crate::clan::layer::ring::{self, Producer};
use crate::clan::layer::waiting::{Connect, Half, Joint};
use crate::clan::layer::waiting::{Side, Waiting};
use crate::clan::{Access, Error, Fabric, WORD};

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
    end_told: u8,
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

impl<F: Fabric> Side<F> for Sending<F> {
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
        let (head, progress, end_told) = (Vec::new(), Progress::Between, 0);
        let side = Sending { ring, config, head, progress, end_told };
        Ok(Self { side, waiting: Waiting::new(fabric, config.wait, wire) })
    }
}

impl<F: Fabric> Sender<F> {
    /// This side's half.
    ///
    /// # Errors
    /// Those of [`Fabric::expose`], or the configuration makes no sense.
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
        let sending = Ending(side);
        waiting.reached(&mut *sending.0, |side| side.step(parts)).await
    }

    /// Waits until the receiver has got all, and has said so: it does when it looks for
    /// more, or is dropped.
    ///
    /// # Errors
    /// It was closed before, the deadline is over, or the peer is gone or mad.
    pub fn drain(&mut self, deadline: Option<Instant>) -> Result<(), Error> {
        let Self { side, waiting } = self;
        waiting.until(side, deadline, |side| side.ring.is_drained())
    }

    /// Ends the connection after what was sent. The receiver gets that, then
    /// [`Error::Closed`].
    ///
    /// # Errors
    /// The way is full (then it is repeated), or the peer is gone.
    pub fn finish(&mut self) -> Result<(), Error> {
        self.side.finish()
    }
}

/// Ends a message, in whatever state it is, also when its future is dropped.
struct Ending<'a, F: Fabric>(&'a mut Sending<F>);

impl<F: Fabric> Drop for Ending<'_, F> {
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
            // Whoever waits for headers is woken: at the latest with the body, earlier
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
            if self.end_told < told {
                self.ring.publish_with(word)?;
                self.end_told = told;
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
        waiting.last_words(side, Sending::finish);
    }
}
