//! The writing end of a stream.

use std::io;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::Config;
use crate::clan::layer::any::{Waitable, readiness};
use crate::clan::layer::ring::{self, Producer};
use crate::clan::layer::waiting::{Connect, Half, Joint};
use crate::clan::layer::waiting::{ConnectionEnd, Waiting};
use crate::clan::{Access, Error, Fabric, Remote, Stage, WORD};

/// Writes bytes. Dropping it ends the stream, after the last of them.
#[derive(Debug)]
pub struct Writer<F: Fabric> {
    side: Producer<F>,
    waiting: Waiting<F>,
    capacity: u64,
    timeout: Option<Duration>,
}

impl<F: Fabric> Connect<F> for Writer<F> {
    type Config = Config;

    fn ours(_: &Config) -> Result<u64, Error> {
        Ok(ring::PRODUCER_LEN)
    }

    fn theirs(config: &Config) -> Result<u64, Error> {
        config.reader_len()
    }

    fn join(joint: Joint<F>, config: Config) -> Result<Self, Error> {
        let Joint { fabric, local, remote } = joint;
        let words = ring::READ..ring::CLOSED + WORD;
        let wire = fabric.watch(&local, words, Access::Write, Some(&remote))?;
        Ok(Self {
            side: Producer::new(local, remote, config.capacity),
            waiting: Waiting::new(fabric, config.wait, wire),
            capacity: config.capacity,
            timeout: None,
        })
    }
}

impl<F: Fabric> Writer<F> {
    /// This end's half.
    ///
    /// # Errors
    /// Those of [`Fabric::expose`], or the configuration is invalid.
    pub fn open(fabric: &F, config: Config) -> Result<Half<F, Self>, Error> {
        Half::open(fabric, config)
    }

    pub(super) const fn parts(&mut self) -> (&mut Producer<F>, &Waiting<F>, u64) {
        (&mut self.side, &self.waiting, self.capacity)
    }

    pub(super) const fn side_mut(&mut self) -> &mut Producer<F> {
        &mut self.side
    }

    /// How long [`io::Write`] waits for room; for ever by default.
    pub const fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// Writes as many of the bytes as there is room for; nothing if there is none.
    ///
    /// # Errors
    /// The reader is closed, the send buffer is full, or the peer is gone or misbehaves.
    pub fn try_write(&mut self, bytes: &[u8]) -> Result<Option<usize>, Error> {
        put(&mut self.side, self.capacity, bytes)
    }

    /// Writes some of the bytes, once there is room; how many.
    ///
    /// # Errors
    /// Those of [`try_write`](Self::try_write), or the deadline is over.
    pub fn write_some(&mut self, bytes: &[u8], deadline: Option<Instant>) -> Result<usize, Error> {
        let Self { side, waiting, capacity, .. } = self;
        waiting.until(side, deadline, |side| put(side, *capacity, bytes))
    }

    /// The same for a task.
    ///
    /// # Errors
    /// Those of [`try_write`](Self::try_write).
    pub async fn write_some_async(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        std::future::poll_fn(|context| self.poll_put(context, bytes)).await
    }

    pub(super) fn poll_put(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, Error>> {
        let Self { side, waiting, capacity, .. } = self;
        waiting.poll(context, side, |side| put(side, *capacity, bytes))
    }

    /// Publishes what could not be published at once, because the send buffer was full.
    pub(super) fn poll_publish(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let Self { side, waiting, .. } = self;
        waiting.poll(context, side, |side| side.publish().map(Some))
    }

    /// [`io::Write::flush`] for a task: the reader is told of all that was written.
    ///
    /// # Errors
    /// Those of [`try_write`](Self::try_write).
    pub async fn flush_async(&mut self) -> Result<(), Error> {
        std::future::poll_fn(|context| self.poll_publish(context)).await
    }

    /// Waits, for a task, until all that was written lies in the memory of the reader, and
    /// the end, if it was told. From then on the reader gets it, though this side goes, and
    /// its node with it.
    ///
    /// # Errors
    /// The reader is closed, or the peer is gone.
    pub async fn delivered_async(&mut self) -> Result<(), Error> {
        self.flush_async().await?;
        let remote = self.side.remote();
        std::future::poll_fn(|context| remote.poll_reached(Stage::Delivered, context)).await
    }

    /// [`finish`](Self::finish) for a task.
    ///
    /// # Errors
    /// Those of [`finish`](Self::finish).
    pub async fn finish_async(&mut self) -> Result<(), Error> {
        std::future::poll_fn(|context| self.poll_finish(context)).await
    }

    pub(super) fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let Self { side, waiting, .. } = self;
        waiting.poll(context, side, |side| side.finish().map(Some))
    }

    /// Waits until the reader has got all, and has said so: it does when it looks for
    /// more, or is dropped.
    ///
    /// # Errors
    /// It was closed before, the deadline is over, or the peer is gone or misbehaves.
    pub fn drain(&mut self, deadline: Option<Instant>) -> Result<(), Error> {
        let Self { side, waiting, .. } = self;
        waiting.until(side, deadline, Producer::is_drained)
    }

    /// Ends the stream: the reader gets what was written, then its end.
    ///
    /// # Errors
    /// The peer is gone, or there was no room on the way until the timeout.
    pub fn finish(&mut self) -> Result<(), Error> {
        let deadline = after(self.timeout);
        let Self { side, waiting, .. } = self;
        waiting.until(side, deadline, |side| side.finish().map(Some))
    }
}

/// The moment that a timeout ends.
pub(super) fn after(timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|timeout| Instant::now().checked_add(timeout))
}

/// The reader is told of this many bytes at a time: it takes the first out while others
/// are on their way, and none of them needs memory of its own until it has arrived.
const PIECE: u64 = 64 << 10;

/// Copies what there is room for, up to a piece, and publishes it.
fn put<F: Fabric>(
    side: &mut Producer<F>,
    capacity: u64,
    bytes: &[u8],
) -> Result<Option<usize>, Error> {
    if bytes.is_empty() {
        return Ok(Some(0));
    }
    let Some(room) = side.room(1)? else { return Ok(None) };
    let len = room.min(bytes.len() as u64).min(PIECE);
    let at = side.written() % capacity;
    let (first, second) = bytes[..len as usize].split_at(len.min(capacity - at) as usize);
    side.write(ring::PLACES + at, first)?;
    side.advance(first.len() as u64);
    let mut written = first.len();
    if !second.is_empty() {
        match side.write(ring::PLACES, second) {
            Ok(()) => {
                side.advance(second.len() as u64);
                written += second.len();
            }
            // What is in is in: done again, it would never end on a narrow way.
            Err(Error::Busy) => {}
            Err(error) => return Err(error),
        }
    }
    match side.publish() {
        // The bytes are in. The next call, or a flush, publishes them.
        Ok(()) | Err(Error::Busy) => Ok(Some(written)),
        Err(error) => Err(error),
    }
}

impl<F: Fabric> io::Write for Writer<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let deadline = after(self.timeout);
        let written = self.write_some(bytes, deadline).map_err(broken)?;
        // A program that does not flush must not wait for ever for an answer.
        io::Write::flush(self)?;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let deadline = after(self.timeout);
        let Self { side, waiting, .. } = self;
        waiting.until(side, deadline, |side| side.publish().map(Some)).map_err(broken)
    }
}

/// For a writer, the end of the other side is a broken pipe.
pub(super) fn broken(error: Error) -> io::Error {
    match error {
        Error::Closed => io::Error::new(io::ErrorKind::BrokenPipe, error),
        other => other.into(),
    }
}

impl<F: Fabric> Waitable<F> for Writer<F> {
    fn tripwire(&self) -> &F::Tripwire {
        self.waiting.tripwire()
    }

    fn is_ready(&mut self) -> Result<bool, Error> {
        readiness(self.side.room(1))
    }
}

impl<F: Fabric> Drop for Writer<F> {
    fn drop(&mut self) {
        let Self { side, waiting, .. } = self;
        waiting.flush_on_drop(side, Producer::finish);
    }
}
