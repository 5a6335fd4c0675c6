//! The side that receives.

use std::time::Instant;

use super::{BODIES, Config, HEADERS, Head, filled_up};
use crate::clan::layer::ring::{self, Consumer};
use crate::clan::layer::stream::copy_ring;
use crate::clan::layer::waiting::{Connect, Half, Joint};
use crate::clan::layer::waiting::{ConnectionEnd, Waiting};
use crate::clan::{Access, Error, Fabric, Misbehaviour, WORD};

/// Receives messages, in their order. Dropping it closes the connection: the sender
/// finds it so when it has no room.
#[derive(Debug)]
pub struct Receiver<F: Fabric> {
    side: Receiving<F>,
    /// For a header.
    headers: Waiting<F>,
    /// For the end of a body that fits into the ring.
    bodies: Waiting<F>,
    /// For any byte.
    bytes: Waiting<F>,
}

#[derive(Debug)]
struct Receiving<F: Fabric> {
    ring: Consumer<F>,
    config: Config,
    meta: Vec<u8>,
    lengths: Vec<u32>,
    /// The part that is read next, and how much of it was; behind the last one when
    /// no message is under way.
    part: usize,
    offset: u64,
}

impl<F: Fabric> ConnectionEnd<F> for Receiving<F> {
    fn remote(&mut self) -> &mut F::Remote {
        self.ring.remote()
    }
}

impl<F: Fabric> Connect<F> for Receiver<F> {
    type Config = Config;

    fn ours(config: &Config) -> Result<u64, Error> {
        config.receiver_len()
    }

    fn theirs(_: &Config) -> Result<u64, Error> {
        Ok(ring::PRODUCER_LEN)
    }

    fn join(joint: Joint<F>, config: Config) -> Result<Self, Error> {
        let Joint { fabric, local, remote } = joint;
        let waiting = |from, to| {
            let wire = fabric.watch(&local, from..to + WORD, Access::Write, Some(&remote))?;
            Ok::<_, Error>(Waiting::new(fabric.clone(), config.wait, wire))
        };
        let (headers, bodies) = (waiting(HEADERS, HEADERS)?, waiting(BODIES, BODIES)?);
        let bytes = waiting(ring::WRITTEN, ring::END)?;
        let ring = Consumer::new(local, remote, config.capacity);
        let (meta, lengths) = (Vec::new(), Vec::new());
        let side = Receiving { ring, config, meta, lengths, part: 0, offset: 0 };
        Ok(Self { side, headers, bodies, bytes })
    }
}

impl<F: Fabric> Receiver<F> {
    /// This side's half.
    ///
    /// # Errors
    /// Those of [`Fabric::expose`], or the configuration is invalid.
    pub fn open(fabric: &F, config: Config) -> Result<Half<F, Self>, Error> {
        Half::open(fabric, config)
    }

    /// The next message, if its header is there. What was not read of the one before
    /// is skipped.
    ///
    /// # Errors
    /// The connection has ended ([`Error::Closed`]), in the middle of a message
    /// ([`Error::Cut`]), or the peer is gone or misbehaves.
    pub fn try_next(&mut self) -> Result<Option<Message<'_, F>>, Error> {
        let found = self.side.begin()?;
        Ok(found.map(|()| Message { receiver: self }))
    }

    /// The next message, once its header is there.
    ///
    /// # Errors
    /// Those of [`try_next`](Self::try_next), or the deadline is over.
    pub fn next(&mut self, deadline: Option<Instant>) -> Result<Message<'_, F>, Error> {
        // The rest of an earlier one may be longer than the ring.
        let Self { side, headers, bytes, .. } = self;
        bytes.until(side, deadline, Receiving::skip)?;
        headers.until(side, deadline, Receiving::begin)?;
        Ok(Message { receiver: self })
    }

    /// The same for a task.
    ///
    /// # Errors
    /// Those of [`try_next`](Self::try_next).
    pub async fn next_async(&mut self) -> Result<Message<'_, F>, Error> {
        let Self { side, headers, bytes, .. } = self;
        bytes.reached(side, Receiving::skip).await?;
        headers.reached(side, Receiving::begin).await?;
        Ok(Message { receiver: self })
    }
}

impl<F: Fabric> Receiving<F> {
    /// Skips what is left of a message.
    fn skip(&mut self) -> Result<Option<()>, Error> {
        while let Some(left) = self.left_of_part() {
            match left {
                0 => (self.part, self.offset) = (self.part + 1, 0),
                left => match self.filled_within(1)? {
                    None => return Ok(None),
                    Some(there) => self.advance(there.min(left))?,
                },
            }
        }
        Ok(Some(()))
    }

    /// Takes the next header out of the ring.
    fn begin(&mut self) -> Result<Option<()>, Error> {
        if self.skip()?.is_none() {
            return Ok(None);
        }
        let Some(_) = self.at_least(WORD)? else { return Ok(None) };
        let mut word = [0; WORD as usize];
        self.copy(0, &mut word)?;
        let head = Head::from_word(u64::from_le_bytes(word))?;
        let (parts, meta) = (u64::from(head.parts), u64::from(head.meta));
        self.check(parts, meta, 0)?;
        let Some(_) = self.at_least(head.len())? else { return Ok(None) };
        let mut table = vec![0; 4 * usize::from(head.parts)];
        self.copy(WORD, &mut table)?;
        let lengths = table.as_chunks::<4>().0.iter().map(|len| u32::from_le_bytes(*len));
        let lengths: Vec<u32> = lengths.collect();
        self.check(parts, meta, lengths.iter().map(|len| u64::from(*len)).sum())?;
        let mut meta = vec![0; head.meta as usize];
        self.copy(head.meta_at(), &mut meta)?;
        self.ring.advance(head.len())?;
        (self.meta, self.lengths) = (meta, lengths);
        (self.part, self.offset) = (0, 0);
        Ok(Some(()))
    }

    fn check(&self, parts: u64, meta: u64, body: u64) -> Result<(), Error> {
        let length = |(len, most)| Error::PeerMisbehaved(Misbehaviour::Length { len, most });
        self.config.check(parts, meta, body).map_err(length)
    }

    /// This many bytes of a header: the end is no end in the middle of one.
    fn at_least(&mut self, len: u64) -> Result<Option<u64>, Error> {
        match self.ring.filled(len) {
            Err(Error::Closed) if self.ring.known() > 0 => Err(Error::Cut),
            other => other,
        }
    }

    /// The same for a body.
    fn filled_within(&mut self, least: u64) -> Result<Option<u64>, Error> {
        match self.ring.filled(least) {
            Err(Error::Closed) => Err(Error::Cut),
            other => other,
        }
    }

    /// What is left of the current part, with what fills it up.
    fn left_of_part(&self) -> Option<u64> {
        self.lengths.get(self.part).map(|len| filled_up(u64::from(*len)) - self.offset)
    }

    /// What is left of the message in the ring, or will be there.
    fn left(&self) -> u64 {
        let whole = |len: &u32| filled_up(u64::from(*len));
        let parts = self.lengths.get(self.part..).unwrap_or_default();
        parts.iter().map(whole).sum::<u64>() - self.offset
    }

    /// Is all of the body there that can be before somebody takes some of it out?
    fn look_for_rest(&mut self) -> Result<Option<()>, Error> {
        let left = self.left();
        if left == 0 {
            return Ok(Some(()));
        }
        let wanted = left.min(self.config.capacity);
        Ok(self.filled_within(wanted)?.map(drop))
    }

    /// Copies what is there of the current part; how much.
    fn take(&mut self, into: &mut [u8]) -> Result<Option<usize>, Error> {
        let Some(len) = self.lengths.get(self.part).map(|len| u64::from(*len)) else {
            return Ok(Some(0));
        };
        let left = (len - self.offset.min(len)).min(into.len() as u64);
        if left == 0 {
            return Ok(Some(0));
        }
        let Some(there) = self.filled_within(1)? else { return Ok(None) };
        let count = there.min(left);
        self.copy(0, &mut into[..count as usize])?;
        self.advance(count)?;
        Ok(Some(count as usize))
    }

    /// Skips what is left of the current part.
    fn next_part(&mut self) -> Result<Option<()>, Error> {
        while let Some(left) = self.left_of_part().filter(|left| *left > 0) {
            let Some(there) = self.filled_within(1)? else { return Ok(None) };
            self.advance(there.min(left))?;
        }
        (self.part, self.offset) = ((self.part + 1).min(self.lengths.len()), 0);
        Ok(Some(()))
    }

    fn advance(&mut self, count: u64) -> Result<(), Error> {
        self.offset += count;
        self.ring.advance(count)
    }

    /// Copies out of the ring, from `ahead` bytes behind what was read.
    fn copy(&self, ahead: u64, into: &mut [u8]) -> Result<(), Error> {
        copy_ring(&self.ring, self.config.capacity, self.ring.read() + ahead, into)
    }
}

/// A message whose header is here; its body arrives. Parts are read one after another.
#[derive(Debug)]
pub struct Message<'a, F: Fabric> {
    receiver: &'a mut Receiver<F>,
}

impl<F: Fabric> Message<'_, F> {
    /// The meta-data.
    #[must_use]
    pub fn meta(&self) -> &[u8] {
        &self.receiver.side.meta
    }

    /// How long the parts are.
    #[must_use]
    pub fn lengths(&self) -> &[u32] {
        &self.receiver.side.lengths
    }

    /// Copies what is there of the current part: how many bytes, nothing if none are
    /// there yet, and `Some(0)` at its end.
    ///
    /// # Errors
    /// The message is cut off, or the peer is gone or misbehaves.
    pub fn try_read(&mut self, into: &mut [u8]) -> Result<Option<usize>, Error> {
        self.receiver.side.take(into)
    }

    /// Copies bytes of the current part as they arrive; how many, 0 at its end.
    ///
    /// # Errors
    /// Those of [`try_read`](Self::try_read), or the deadline is over.
    pub fn read(&mut self, into: &mut [u8], deadline: Option<Instant>) -> Result<usize, Error> {
        let Receiver { side, bytes, .. } = &mut *self.receiver;
        bytes.until(side, deadline, |side| side.take(into))
    }

    /// The same for a task.
    ///
    /// # Errors
    /// Those of [`try_read`](Self::try_read).
    pub async fn read_async(&mut self, into: &mut [u8]) -> Result<usize, Error> {
        let Receiver { side, bytes, .. } = &mut *self.receiver;
        bytes.reached(side, |side| side.take(into)).await
    }

    /// Goes on to the next part; what was not read of this one is skipped.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn next_part(&mut self, deadline: Option<Instant>) -> Result<(), Error> {
        let Receiver { side, bytes, .. } = &mut *self.receiver;
        bytes.until(side, deadline, Receiving::next_part)
    }

    /// Waits until the rest of the body is there, or, where that is longer, as much of
    /// it as the ring has room for. It is not woken for less.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn wait_for_body(&mut self, deadline: Option<Instant>) -> Result<(), Error> {
        let Receiver { side, bodies, bytes, .. } = &mut *self.receiver;
        let fits = side.left() <= side.config.capacity;
        let wire = if fits { bodies } else { bytes };
        wire.until(side, deadline, Receiving::look_for_rest)
    }

    /// The same for a task.
    ///
    /// # Errors
    /// Those of [`try_read`](Self::try_read).
    pub async fn wait_for_body_async(&mut self) -> Result<(), Error> {
        let Receiver { side, bodies, bytes, .. } = &mut *self.receiver;
        let fits = side.left() <= side.config.capacity;
        let wire = if fits { bodies } else { bytes };
        wire.reached(side, Receiving::look_for_rest).await
    }

    /// All parts that were not read yet. Memory for them is taken as they arrive, so
    /// that a length that is not true costs nothing.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn parts(mut self, deadline: Option<Instant>) -> Result<Vec<Vec<u8>>, Error> {
        let mut parts = Vec::new();
        while self.receiver.side.left_of_part().is_some() {
            self.wait_for_body(deadline)?;
            let mut part = Vec::new();
            loop {
                let filled = part.len();
                part.resize(filled + self.at_hand().max(1), 0);
                let read = self.read(&mut part[filled..], deadline)?;
                part.truncate(filled + read);
                if read == 0 {
                    break;
                }
            }
            parts.push(part);
            self.next_part(deadline)?;
        }
        Ok(parts)
    }

    /// The same for a task.
    ///
    /// # Errors
    /// Those of [`try_read`](Self::try_read).
    pub async fn parts_async(mut self) -> Result<Vec<Vec<u8>>, Error> {
        let mut parts = Vec::new();
        while self.receiver.side.left_of_part().is_some() {
            self.wait_for_body_async().await?;
            let mut part = Vec::new();
            loop {
                let filled = part.len();
                part.resize(filled + self.at_hand().max(1), 0);
                let read = self.read_async(&mut part[filled..]).await?;
                part.truncate(filled + read);
                if read == 0 {
                    break;
                }
            }
            parts.push(part);
            let Receiver { side, bytes, .. } = &mut *self.receiver;
            bytes.reached(side, Receiving::next_part).await?;
        }
        Ok(parts)
    }

    /// How much of the current part is known to be there.
    fn at_hand(&self) -> usize {
        let side = &self.receiver.side;
        side.ring.known().min(side.left_of_part().unwrap_or(0)) as usize
    }
}

impl<F: Fabric> Drop for Receiver<F> {
    fn drop(&mut self) {
        // A failure has nobody to go to; the peer finds this side gone.
        let _ = self.side.ring.close();
    }
}
