//! The reading end of a stream.

use std::io;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::Config;
use super::writer::after;
use crate::clan::layer::any::{Waitable, readiness};
use crate::clan::layer::ring::{self, Consumer};
use crate::clan::layer::waiting::{Connect, Half, Joint};
use crate::clan::layer::waiting::{ConnectionEnd, Waiting};
use crate::clan::{Access, Error, Fabric, Local, Remote, Stage, WORD};

/// Reads bytes. Dropping it closes the stream: the writer finds it so when it has no
/// room.
#[derive(Debug)]
pub struct Reader<F: Fabric> {
    side: Consumer<F>,
    waiting: Waiting<F>,
    capacity: u64,
    timeout: Option<Duration>,
}

impl<F: Fabric> Connect<F> for Reader<F> {
    type Config = Config;

    fn ours(config: &Config) -> Result<u64, Error> {
        config.reader_len()
    }

    fn theirs(_: &Config) -> Result<u64, Error> {
        Ok(ring::PRODUCER_LEN)
    }

    fn join(joint: Joint<F>, config: Config) -> Result<Self, Error> {
        let Joint { fabric, local, remote } = joint;
        let words = ring::WRITTEN..ring::END + WORD;
        let wire = fabric.watch(&local, words, Access::Write, Some(&remote))?;
        Ok(Self {
            side: Consumer::new(local, remote, config.capacity),
            waiting: Waiting::new(fabric, config.wait, wire),
            capacity: config.capacity,
            timeout: None,
        })
    }
}

impl<F: Fabric> Reader<F> {
    /// This end's half.
    ///
    /// # Errors
    /// Those of [`Fabric::expose`], or the configuration is invalid.
    pub fn open(fabric: &F, config: Config) -> Result<Half<F, Self>, Error> {
        Half::open(fabric, config)
    }

    pub(super) const fn parts(&mut self) -> (&mut Consumer<F>, &Waiting<F>, u64) {
        (&mut self.side, &self.waiting, self.capacity)
    }

    pub(super) const fn side(&self) -> &Consumer<F> {
        &self.side
    }

    pub(super) const fn side_mut(&mut self) -> &mut Consumer<F> {
        &mut self.side
    }

    /// How long [`io::Read`] waits for bytes; for ever by default.
    pub const fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// Reads what is there; nothing if nothing is there yet.
    ///
    /// # Errors
    /// The stream has ended ([`Error::Closed`]), or the peer is gone or misbehaves.
    pub fn try_read(&mut self, into: &mut [u8]) -> Result<Option<usize>, Error> {
        take(&mut self.side, self.capacity, into)
    }

    /// Reads some bytes, once there are any; how many.
    ///
    /// # Errors
    /// Those of [`try_read`](Self::try_read), or the deadline is over.
    pub fn read_some(
        &mut self,
        into: &mut [u8],
        deadline: Option<Instant>,
    ) -> Result<usize, Error> {
        let Self { side, waiting, capacity, .. } = self;
        waiting.until(side, deadline, |side| take(side, *capacity, into))
    }

    /// The same for a task.
    ///
    /// # Errors
    /// Those of [`try_read`](Self::try_read).
    pub async fn read_some_async(&mut self, into: &mut [u8]) -> Result<usize, Error> {
        std::future::poll_fn(|context| self.poll_take(context, into)).await
    }

    pub(super) fn poll_take(
        &mut self,
        context: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<Result<usize, Error>> {
        let Self { side, waiting, capacity, .. } = self;
        waiting.poll(context, side, |side| take(side, *capacity, into))
    }

    /// Closes it, for a task, and waits until the writer has been told: dropped, it tells
    /// the writer only if the way is not full just then.
    ///
    /// # Errors
    /// The peer is gone.
    pub async fn close_async(&mut self) -> Result<(), Error> {
        let Self { side, waiting, .. } = self;
        waiting.reached(side, |side| side.close().map(Some)).await?;
        let remote = side.remote();
        std::future::poll_fn(|context| remote.poll_reached(Stage::Delivered, context)).await
    }

    /// How many bytes can be read without waiting.
    ///
    /// # Errors
    /// Those of [`try_read`](Self::try_read).
    pub fn available(&mut self) -> Result<u64, Error> {
        // Never that many: so it looks.
        match self.side.filled(self.capacity + 1) {
            Ok(_) => Ok(self.side.known()),
            Err(_) if self.side.known() > 0 => Ok(self.side.known()),
            Err(error) => Err(error),
        }
    }
}

/// Copies what is there, and frees its place.
fn take<F: Fabric>(
    side: &mut Consumer<F>,
    capacity: u64,
    into: &mut [u8],
) -> Result<Option<usize>, Error> {
    if into.is_empty() {
        return Ok(Some(0));
    }
    let Some(there) = side.filled(1)? else { return Ok(None) };
    let len = there.min(into.len() as u64);
    copy_ring(side, capacity, side.read(), &mut into[..len as usize])?;
    side.advance(len)?;
    Ok(Some(len as usize))
}

/// Copies bytes of a ring, from counter `from` on.
pub(in crate::clan::layer) fn copy_ring<F: Fabric>(
    side: &Consumer<F>,
    capacity: u64,
    from: u64,
    into: &mut [u8],
) -> Result<(), Error> {
    let at = from % capacity;
    let before_the_end = (into.len() as u64).min(capacity - at) as usize;
    let (first, second) = into.split_at_mut(before_the_end);
    side.local().copy_out(ring::PLACES + at, first)?;
    if !second.is_empty() {
        side.local().copy_out(ring::PLACES, second)?;
    }
    Ok(())
}

impl<F: Fabric> io::Read for Reader<F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.read_some(into, after(self.timeout)) {
            Ok(len) => Ok(len),
            Err(Error::Closed) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }
}

impl<F: Fabric> Waitable<F> for Reader<F> {
    fn tripwire(&self) -> &F::Tripwire {
        self.waiting.tripwire()
    }

    fn is_ready(&mut self) -> Result<bool, Error> {
        readiness(self.side.filled(1))
    }
}

impl<F: Fabric> Drop for Reader<F> {
    fn drop(&mut self) {
        // A failure has nobody to go to; the peer finds this side gone.
        let _ = self.side.close();
    }
}
