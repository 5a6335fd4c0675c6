//! A queue of elements of one size, many of them under way (section 4.2 of the
//! paper): lazy counters, and never a remote read.
//!
//! Elements are published in batches: the receiver hears of them when there are
//! [`Config::batch`] of them, when the first of them has waited for the set time and
//! another call is made, when the sender waits for room, or with
//! [`Sender::publish`]. Who puts in elements now and then asks
//! [`Sender::due`] when the last batch has to be published, lets
//! [`Sender::into_punctual`] see to it, or publishes each ([`Config::singly`]).
//!
//! Example: see [`layer`](super).

use std::time::{Duration, Instant};

use landfall_transport::Wait;
pub use loan::{Elements, Loan};
pub use sender::{FlushingSender, Sender};

use super::ring;
use super::ring::Consumer;
use crate::clan::layer::any::{Waitable, readiness};
use crate::clan::layer::waiting::{Connect, Half, Joint, Waiting};
use crate::clan::{Access, Error, Fabric, Local, WORD};

mod loan;
mod sender;

/// What both sides agree on: size and number of elements. The rest each side
/// chooses for itself.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    element: u32,
    capacity: u32,
    batch: u32,
    within: Duration,
    wait: Wait,
    layout: u64,
}

impl Config {
    /// Elements of this many bytes; this many of them under way.
    #[must_use]
    pub const fn new(element: u32, capacity: u32) -> Self {
        let (batch, within) = (64, Duration::from_micros(20));
        Self { element, capacity, batch, within, wait: Wait::BALANCED, layout: 0 }
    }

    /// The sender publishes after this many elements, or after this time.
    #[must_use]
    pub const fn batch(self, most: u32, within: Duration) -> Self {
        Self { batch: most, within, ..self }
    }

    /// The sender publishes each element by itself.
    #[must_use]
    pub const fn singly(self) -> Self {
        Self { batch: 1, ..self }
    }

    /// How this side waits.
    #[must_use]
    pub const fn wait(self, wait: Wait) -> Self {
        Self { wait, ..self }
    }

    /// What this side takes an element for: a fingerprint that both sides compare before the
    /// first one, as [`typed`](super::typed) queues do. Zero compares nothing.
    #[must_use]
    pub const fn layout(self, fingerprint: u64) -> Self {
        Self { layout: fingerprint, ..self }
    }

    /// Bytes of an element.
    #[must_use]
    pub const fn element_len(&self) -> usize {
        self.element as usize
    }

    /// From one element to the next: they begin at words.
    fn stride(&self) -> u64 {
        u64::from(self.element).next_multiple_of(WORD)
    }

    fn receiver_len(&self) -> Result<u64, Error> {
        if self.element == 0 || self.capacity == 0 {
            return Err(Error::BadConfig("a queue has room for elements of at least one byte"));
        }
        // Neither factor is longer than 32 bits and a little.
        Ok(ring::PLACES + self.stride() * u64::from(self.capacity))
    }
}

/// Which place comes next, without a division.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: u64,
    stride: u64,
    end: u64,
}

impl Place {
    fn first(config: &Config) -> Self {
        let end = ring::PLACES + config.stride() * u64::from(config.capacity);
        Self { at: ring::PLACES, stride: config.stride(), end }
    }

    /// This many places lie one after another from here on.
    #[inline]
    const fn in_a_row(&self) -> u64 {
        (self.end - self.at) / self.stride
    }

    /// `count` places on; at most as many as are left in a row.
    #[inline]
    const fn advance(&mut self, count: u64) {
        self.at += self.stride * count;
        if self.at >= self.end {
            self.at = ring::PLACES;
        }
    }
}

/// Takes elements out, in their order. Dropping it closes the queue: the sender
/// finds it so when it has no room.
#[derive(Debug)]
pub struct Receiver<F: Fabric> {
    side: Consumer<F>,
    waiting: Waiting<F>,
    place: Place,
    element: usize,
    capacity: u64,
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
        let words = ring::WRITTEN..ring::END + WORD;
        let wire = fabric.watch(&local, words, Access::Write, Some(&remote))?;
        let capacity = u64::from(config.capacity);
        let mut side = Consumer::new(local, remote, capacity);
        side.set_layout(config.layout)?;
        Ok(Self {
            side,
            waiting: Waiting::new(fabric, config.wait, wire),
            place: Place::first(&config),
            element: config.element as usize,
            capacity,
        })
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

    /// Takes an element out if one is there; true if it was.
    ///
    /// # Errors
    /// `into` has the wrong length, the queue has ended ([`Error::Closed`]), or the
    /// peer is gone or misbehaves.
    #[inline]
    pub fn try_get(&mut self, into: &mut [u8]) -> Result<bool, Error> {
        self.check(into)?;
        match self.side.filled(1)? {
            Some(_) => self.take(into).map(|()| true),
            None => Ok(false),
        }
    }

    /// The same, and tells the sender nothing where none is there: it hears of what was taken
    /// out in quarters of the queue. For queues that are never full, where each word about
    /// what was taken would wake the sender for nothing.
    pub(crate) fn try_get_quietly(&mut self, into: &mut [u8]) -> Result<bool, Error> {
        self.check(into)?;
        match self.side.filled_quietly(1)? {
            Some(_) => self.take(into).map(|()| true),
            None => Ok(false),
        }
    }

    /// Takes an element out once one is there.
    ///
    /// # Errors
    /// Those of [`try_get`](Self::try_get), or the deadline is over.
    #[inline]
    pub fn get(&mut self, into: &mut [u8], deadline: Option<Instant>) -> Result<(), Error> {
        self.check(into)?;
        self.ready(deadline)?;
        self.take(into)
    }

    /// The same for a task.
    ///
    /// # Errors
    /// Those of [`try_get`](Self::try_get).
    pub async fn get_async(&mut self, into: &mut [u8]) -> Result<(), Error> {
        self.check(into)?;
        let Self { side, waiting, .. } = self;
        waiting.reached(side, |side| side.filled(1)).await?;
        self.take(into)
    }

    /// Takes out as many elements as are there and fit, one after another; how many
    /// that were. What lies in a row is one copy.
    ///
    /// # Errors
    /// Those of [`try_get`](Self::try_get). Nothing was taken out then.
    pub fn try_get_many(&mut self, into: &mut [u8]) -> Result<usize, Error> {
        let most = into.len() / self.element;
        let mut got = 0;
        while got < most {
            let there = match self.side.filled(1) {
                Ok(Some(there)) => there.min((most - got) as u64).min(self.place.in_a_row()),
                Ok(None) => break,
                Err(_) if got > 0 => break,
                Err(error) => return Err(error),
            };
            // Elements that do not fill their places are not neighbours there.
            let run = if self.element as u64 == self.place.stride { there } else { 1 };
            let part = got * self.element..(got + run as usize) * self.element;
            self.side.local().copy_out(self.place.at, &mut into[part])?;
            self.release(run)?;
            got += run as usize;
        }
        Ok(got)
    }

    /// Waits until an element is there, to be peeked at.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    #[inline]
    pub fn ready(&mut self, deadline: Option<Instant>) -> Result<(), Error> {
        let Self { side, waiting, .. } = self;
        waiting.until(side, deadline, |side| side.filled(1)).map(drop)
    }

    /// How many elements are there, after a look.
    ///
    /// # Errors
    /// Those of [`try_get`](Self::try_get).
    pub fn available(&mut self) -> Result<u64, Error> {
        // Never that many: so it looks.
        match self.side.filled(self.capacity + 1) {
            Ok(_) => Ok(self.side.known()),
            Err(_) if self.side.known() > 0 => Ok(self.side.known()),
            Err(error) => Err(error),
        }
    }

    /// Copies a part of the next element out, from its byte `at` on, and leaves it in
    /// its place; false if no element is there.
    ///
    /// # Errors
    /// Those of [`try_get`](Self::try_get), or the part is not within an element.
    pub fn peek(&mut self, at: usize, into: &mut [u8]) -> Result<bool, Error> {
        if at.checked_add(into.len()).is_none_or(|end| end > self.element) {
            let (offset, len, size) = (at as u64, into.len() as u64, self.element as u64);
            return Err(Error::OutOfBounds { offset, len, size });
        }
        if self.side.filled(1)?.is_none() {
            return Ok(false);
        }
        self.side.local().copy_out(self.place.at + at as u64, into).map(|()| true)
    }

    /// Takes the next element out without copying it; false if no element is there.
    ///
    /// # Errors
    /// Those of [`try_get`](Self::try_get).
    pub fn skip(&mut self) -> Result<bool, Error> {
        if self.side.filled(1)?.is_none() {
            return Ok(false);
        }
        self.release(1).map(|()| true)
    }

    /// Nothing will be taken out any more; the sender is told.
    ///
    /// # Errors
    /// The send buffer is full, or the peer is gone.
    pub fn close(&mut self) -> Result<(), Error> {
        self.side.close()
    }

    #[inline]
    fn check(&self, into: &[u8]) -> Result<(), Error> {
        let (len, most) = (into.len() as u64, self.element as u64);
        if len == most { Ok(()) } else { Err(Error::TooLong { len, most }) }
    }

    /// An element is there.
    #[inline]
    fn take(&mut self, into: &mut [u8]) -> Result<(), Error> {
        self.side.local().copy_out(self.place.at, into)?;
        self.release(1)
    }

    #[inline]
    fn release(&mut self, count: u64) -> Result<(), Error> {
        self.place.advance(count);
        self.side.advance(count)
    }
}

impl<F: Fabric> Waitable<F> for Receiver<F> {
    fn tripwire(&self) -> &F::Tripwire {
        self.waiting.tripwire()
    }

    fn is_ready(&mut self) -> Result<bool, Error> {
        readiness(self.side.filled(1))
    }
}

impl<F: Fabric> Drop for Receiver<F> {
    fn drop(&mut self) {
        // A failure has nobody to go to; the peer finds this side gone.
        let _ = self.close();
    }
}
