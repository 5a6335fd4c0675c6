//! Elements that are written and read where they lie: [`Loan`] and [`Elements`].

use std::fmt;
use std::time::Instant;

use super::{Receiver, Sender};
use crate::clan::layer::place::{Place, View};
use crate::clan::layer::waiting::ConnectionEnd;
use crate::clan::{Error, Fabric};

/// A place in the memory of the receiver, for the next element: write into it, then
/// [enqueue](Self::enqueue) or [publish](Self::publish) it. Dropped before that it is given back, and
/// nothing was put in.
///
/// ```
/// use landfall::clan::Threads;
/// use landfall::clan::layer::queue::{Config, Receiver, Sender};
///
/// let (here, there) = Threads::pair()?;
/// let config = Config::new(4096, 16);
/// let (sender, receiver) = (Sender::open(&here, config)?, Receiver::open(&there, config)?);
/// let (to_receiver, to_sender) = (receiver.cookie(), sender.cookie());
/// let (mut sender, mut receiver) = (sender.connect(&to_receiver)?, receiver.connect(&to_sender)?);
///
/// let mut loan = sender.loan(None)?;
/// loan.write(0, b"written once")?;
/// loan.put(4000, &42u64)?;
/// loan.publish()?;
///
/// let elements = receiver.elements(None)?;
/// assert_eq!(elements.get::<[u8; 12]>(0)?, *b"written once");
/// assert_eq!(elements.get::<u64>(4000)?, 42);
/// # Ok::<(), landfall::clan::Error>(())
/// ```
pub struct Loan<'a, F: Fabric> {
    sender: &'a mut Sender<F>,
    at: u64,
}

impl<F: Fabric> Loan<'_, F> {
    /// The place, to be written into.
    #[inline]
    pub fn place(&mut self) -> Place<'_, F::Remote> {
        let len = self.sender.element as u64;
        Place::new(self.sender.side.remote(), self.at, len)
    }

    /// See [`Place::write`].
    ///
    /// # Errors
    /// Those of [`Place::write`].
    #[inline]
    pub fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), Error> {
        self.place().write(at, bytes)
    }

    /// See [`Place::put`].
    ///
    /// # Errors
    /// Those of [`Place::write`].
    #[inline]
    pub fn put<T>(&mut self, at: usize, value: &T) -> Result<(), Error>
    where
        T: zerocopy::IntoBytes + zerocopy::Immutable,
    {
        self.place().put(at, value)
    }

    /// The element is in; the receiver hears of it with its batch.
    ///
    /// # Errors
    /// The peer is gone.
    #[inline]
    pub fn enqueue(self) -> Result<(), Error> {
        self.sender.fill_in_place()
    }

    /// The element is in, and the receiver hears of it at once.
    ///
    /// # Errors
    /// The peer is gone. A full send buffer delays the publication to the next call.
    #[inline]
    pub fn publish(self) -> Result<(), Error> {
        self.sender.fill_in_place()?;
        self.sender.publish_if_possible()
    }
}

impl<F: Fabric> fmt::Debug for Loan<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loan").field("at", &self.at).finish_non_exhaustive()
    }
}

impl<F: Fabric> Sender<F> {
    /// The place of the next element, if there is room.
    ///
    /// # Errors
    /// The receiver has closed the queue, the send buffer is full, or the peer is gone or
    /// misbehaves.
    #[inline]
    pub fn try_loan(&mut self) -> Result<Option<Loan<'_, F>>, Error> {
        Ok(match self.side.room(1)? {
            Some(_) => Some(Loan { at: self.place.at, sender: self }),
            None => None,
        })
    }

    /// The place of the next element, once there is room.
    ///
    /// # Errors
    /// Those of [`try_loan`](Self::try_loan), or the deadline is over.
    #[inline]
    pub fn loan(&mut self, deadline: Option<Instant>) -> Result<Loan<'_, F>, Error> {
        let Self { side, waiting, .. } = self;
        waiting.until(side, deadline, |side| side.room(1))?;
        Ok(Loan { at: self.place.at, sender: self })
    }

    /// The same for a task.
    ///
    /// # Errors
    /// Those of [`try_loan`](Self::try_loan).
    pub async fn loan_async(&mut self) -> Result<Loan<'_, F>, Error> {
        let Self { side, waiting, .. } = self;
        waiting.reached(side, |side| side.room(1)).await?;
        Ok(Loan { at: self.place.at, sender: self })
    }
}

/// Elements that are there, where they lie: as many as lie in a row. When this is dropped
/// they are taken out, and their places go back to the sender; what
/// [`leave`](Self::leave) is told stays.
pub struct Elements<'a, F: Fabric> {
    receiver: &'a mut Receiver<F>,
    count: u64,
    taken: u64,
}

impl<F: Fabric> Elements<'_, F> {
    /// How many there are; at least one.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count as usize
    }

    /// One of them, where it lies.
    #[must_use]
    #[inline]
    pub fn nth(&self, index: usize) -> Option<View<'_, F::Local>> {
        let Receiver { side, place, element, .. } = &*self.receiver;
        ((index as u64) < self.count).then(|| {
            View::new(side.local(), place.at + index as u64 * place.stride, *element as u64)
        })
    }

    /// All of them, in their order.
    pub fn iter(&self) -> impl Iterator<Item = View<'_, F::Local>> {
        (0..self.count()).filter_map(|index| self.nth(index))
    }

    /// Ends it, and takes out the first `count` only (at most as many as there are): the
    /// others are there the next time.
    pub fn take_only(mut self, count: usize) {
        self.taken = self.count.min(count as u64);
    }

    /// Ends it, and takes out none.
    pub fn leave(self) {
        self.take_only(0);
    }

    /// The first, where it lies.
    #[inline]
    fn first(&self) -> View<'_, F::Local> {
        let Receiver { side, place, element, .. } = &*self.receiver;
        View::new(side.local(), place.at, *element as u64)
    }

    /// Copies bytes of the first out. See [`View::read`].
    ///
    /// # Errors
    /// They are not all in the element.
    #[inline]
    pub fn read(&self, at: usize, into: &mut [u8]) -> Result<(), Error> {
        self.first().read(at, into)
    }

    /// A value in the first. See [`View::get`].
    ///
    /// # Errors
    /// It is not all in the element.
    #[inline]
    pub fn get<T: zerocopy::FromBytes + zerocopy::IntoBytes>(&self, at: usize) -> Result<T, Error> {
        self.first().get(at)
    }
}

impl<F: Fabric> Drop for Elements<'_, F> {
    fn drop(&mut self) {
        if self.taken > 0 {
            // A sender that cannot be told now is told by the next call.
            let _ = self.receiver.release(self.taken);
        }
    }
}

impl<F: Fabric> fmt::Debug for Elements<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Elements").field("count", &self.count).finish_non_exhaustive()
    }
}

impl<F: Fabric> Receiver<F> {
    /// The elements that are there and lie in a row, if one is there.
    ///
    /// # Errors
    /// The queue has ended ([`Error::Closed`]), or the peer is gone or misbehaves.
    #[inline]
    pub fn try_elements(&mut self) -> Result<Option<Elements<'_, F>>, Error> {
        let there = self.side.filled(1)?;
        Ok(there.map(|there| self.in_a_row(there)))
    }

    /// The elements that are there and lie in a row, once one is there.
    ///
    /// # Errors
    /// Those of [`try_elements`](Self::try_elements), or the deadline is over.
    #[inline]
    pub fn elements(&mut self, deadline: Option<Instant>) -> Result<Elements<'_, F>, Error> {
        let Self { side, waiting, .. } = self;
        let there = waiting.until(side, deadline, |side| side.filled(1))?;
        Ok(self.in_a_row(there))
    }

    /// The same for a task.
    ///
    /// # Errors
    /// Those of [`try_elements`](Self::try_elements).
    pub async fn elements_async(&mut self) -> Result<Elements<'_, F>, Error> {
        let Self { side, waiting, .. } = self;
        let there = waiting.reached(side, |side| side.filled(1)).await?;
        Ok(self.in_a_row(there))
    }

    #[inline]
    fn in_a_row(&mut self, there: u64) -> Elements<'_, F> {
        let count = there.min(self.place.in_a_row());
        Elements { receiver: self, count, taken: count }
    }
}
