//! [`Landing`]: address space of the application, to which it has pages moved; [`FastBuffers`]: the
//! application reads the buffer itself, until it is done.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, io};

use landfall_placement::{Area, Span};

use super::pages::Backing;
use super::remapping::move_or_copy;
use super::{BytesOwner, DeliverError, Delivered, Delivery, DeliveryCounters, Pages};
use crate::memory::{Mapping, page_size};

/// Memory of the application in which packets appear where it wants them: the
/// pages of a long message one after another, for instance, to be read as one
/// slice. What was not written yet is zero and takes no memory.
///
/// ```
/// use landfall_transport::memory::Regions;
/// use landfall_transport::remap::{Landing, Pages};
///
/// let regions = Regions::new(4);
/// let pages = Pages::new(&regions, 4, 65536)?;
/// let mut landing = Landing::reserve(1 << 20)?;
/// let (first, second) = (pages.area().span(0, 65536), pages.area().span(65536, 65536));
/// regions.write(&first, &[1; 65536])?;
/// regions.write(&second, &[2; 65536])?;
/// // They came in another order.
/// landing.take_in(&pages, second, 65536)?;
/// landing.take_in(&pages, first, 0)?;
/// assert_eq!(landing[65535..65537], [1, 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Landing {
    mapping: Mapping,
    page: usize,
    counters: DeliveryCounters,
}

impl Landing {
    /// Reserves addresses for this many bytes, rounded up to whole pages.
    ///
    /// # Errors
    /// There are none, or the process has no address space for them.
    pub fn reserve(len: usize) -> io::Result<Self> {
        let page = page_size();
        let len = len.max(1).checked_next_multiple_of(page).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self { mapping: Mapping::reserved(len)?, page, counters: DeliveryCounters::default() })
    }

    /// Moves the pages of a packet here, in place of what is there. Returns where
    /// its bytes are. The buffer that they were in can be used again at once.
    ///
    /// Both begin on a page. Behind the last byte, to the end of its page, comes
    /// what there was in the buffer.
    ///
    /// ```compile_fail,E0502
    /// # use landfall_placement::Span;
    /// # use landfall_transport::remap::{Landing, Pages};
    /// # fn land(pages: &Pages, landing: &mut Landing, body: Span) {
    /// let first = &landing[..1];
    /// landing.take_in(pages, body, 0).unwrap(); // Other pages come in place of these.
    /// println!("{first:?}");
    /// # }
    /// ```
    ///
    /// # Errors
    /// Why not; nothing has changed.
    pub fn take_in(
        &mut self,
        pages: &Pages,
        body: Span,
        at: usize,
    ) -> Result<Range<usize>, DeliverError> {
        let (buffer, range) = pages.locate(&body)?;
        let start = buffer * pages.buffer_len() + range.start;
        let len = range.len().next_multiple_of(self.page);
        let fits = at.checked_add(len).is_some_and(|end| end <= self.mapping.len());
        if !fits || !at.is_multiple_of(self.page) || !start.is_multiple_of(self.page) {
            let (page, len) = (self.page, self.mapping.len());
            return Err(DeliverError::BadPlace { body, at, page, len });
        }
        if len > 0 {
            let _seized = pages.seize_to_move(&[body])?;
            let pool = &pages.memory().mapping;
            // SAFETY: whole pages within the two. Nobody has the region pinned or
            // reads the buffer, and who borrows this exclusively has no reference
            // to its bytes.
            unsafe {
                move_or_copy((pool, start), (&self.mapping, at), (1, len), &mut self.counters);
            }
        }
        self.counters.delivered += 1;
        Ok(at..at + range.len())
    }

    /// Returns the memory of these bytes back to the system, as far as they are
    /// whole pages; they are zero from now on. What is not within is left out.
    pub fn forget(&mut self, bytes: Range<usize>) {
        let start = bytes.start.checked_next_multiple_of(self.page);
        let end = bytes.end.min(self.mapping.len()) / self.page * self.page;
        let Some(start) = start.filter(|start| *start < end) else { return };
        // SAFETY: whole pages of ours, and no reference to them is left.
        unsafe {
            let first = self.mapping.base().add(start).as_ptr().cast();
            libc::madvise(first, end - start, libc::MADV_DONTNEED);
        }
    }

    /// What was done to bring packets here.
    #[must_use]
    pub fn counters(&self) -> DeliveryCounters {
        self.counters
    }
}

impl Deref for Landing {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: mapped as long as this lives, initialised by the kernel, and
        // changed by `&mut self` only.
        unsafe { std::slice::from_raw_parts(self.mapping.base().as_ptr(), self.mapping.len()) }
    }
}

impl DerefMut for Landing {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: likewise, and it is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.base().as_ptr(), self.mapping.len()) }
    }
}

impl fmt::Debug for Landing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Landing")
            .field("len", &self.mapping.len())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

// The address space in which moved buffers lie: several banks, in each of them
// a place for every buffer.
//
// A buffer always goes to its own place in one of the banks, and the pages that
// were read come back to the buffer that they are from. Neighbours stay
// neighbours, this many of them move at once; and the kernel, which keeps
// book of what lies where, finds each bank in one piece however often it moved.

/// What is in a place: nothing, so that pages can be moved there at once.
const EMPTY: u8 = 0;
/// Pages that the application reads.
const TAKEN: u8 = 1;
/// Pages that it has read, to go back to the buffer.
const READ: u8 = 2;

/// Banks of places.
#[derive(Debug)]
pub(super) struct Strip {
    pub(super) mapping: Mapping,
    places: Box<[AtomicU8]>,
    buffers: usize,
}

/// For one buffer: where its pages go, and from where others come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) to: usize,
    pub(super) back_from: Option<usize>,
}

impl Strip {
    pub(super) fn new(banks: usize, buffers: usize, buffer_len: usize) -> io::Result<Self> {
        let count = banks.checked_mul(buffers).ok_or(io::ErrorKind::InvalidInput)?;
        let len = count.checked_mul(buffer_len).ok_or(io::ErrorKind::InvalidInput)?;
        let places = (0..count).map(|_| AtomicU8::new(EMPTY)).collect();
        Ok(Self { mapping: Mapping::reserved(len)?, places, buffers })
    }

    fn banks(&self) -> usize {
        self.places.len() / self.buffers
    }

    /// The number of a buffer's place in a bank.
    pub(super) fn place(&self, bank: usize, buffer: usize) -> usize {
        bank * self.buffers + buffer
    }

    fn is(&self, bank: usize, buffer: usize, state: u8) -> bool {
        self.places[self.place(bank, buffer)].load(Ordering::Acquire) == state
    }

    /// Where the pages of a buffer go; as with the neighbour before, if that is
    /// possible. None if the application keeps pages in all banks.
    pub(super) fn choose(&self, buffer: usize, before: Option<Choice>) -> Option<Choice> {
        let fits = |choice: &Choice| {
            self.is(choice.to, buffer, EMPTY)
                && choice.back_from.is_some_and(|bank| self.is(bank, buffer, READ))
        };
        if let Some(choice) = before.filter(fits) {
            return Some(choice);
        }
        let mut read = (0..self.banks()).filter(|bank| self.is(*bank, buffer, READ));
        match (0..self.banks()).find(|bank| self.is(*bank, buffer, EMPTY)) {
            Some(to) => Some(Choice { to, back_from: read.next() }),
            // What was read there is lost to the system.
            None => read.next().map(|to| Choice { to, back_from: read.next() }),
        }
    }

    /// The pages of a buffer have moved as chosen.
    pub(super) fn moved(self: &Arc<Self>, buffer: usize, choice: Choice) -> HeldPlace {
        if let Some(bank) = choice.back_from {
            self.places[self.place(bank, buffer)].store(EMPTY, Ordering::Relaxed);
        }
        let place = self.place(choice.to, buffer);
        self.places[place].store(TAKEN, Ordering::Relaxed);
        HeldPlace { strip: Arc::clone(self), place }
    }
}

/// A place whose pages the application reads.
pub(super) struct HeldPlace {
    strip: Arc<Strip>,
    place: usize,
}

impl Drop for HeldPlace {
    fn drop(&mut self) {
        // All that was read of it was read before.
        self.strip.places[self.place].store(READ, Ordering::Release);
    }
}

/// Delivery by loan: nothing is moved or copied. Until its guard is dropped
/// nobody may write the buffer, whatever an engine says.
#[derive(Debug)]
pub struct FastBuffers {
    pages: Pages,
    returned: Arc<Returned>,
    counters: DeliveryCounters,
}

/// Spans whose guards were dropped; no more than there are buffers.
#[derive(Debug, Default)]
struct Returned(Mutex<VecDeque<Span>>);

impl Returned {
    /// A thread that panicked under the lock left nothing half done.
    fn lock(&self) -> MutexGuard<'_, VecDeque<Span>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A buffer on loan.
pub(super) struct Loan {
    memory: Arc<Backing>,
    returned: Arc<Returned>,
    buffer: usize,
    body: Span,
}

impl Drop for Loan {
    fn drop(&mut self) {
        // Anyone who is told that the buffer is back may write it.
        self.memory.loans.end(self.buffer);
        self.returned.lock().push_back(self.body);
    }
}

impl FastBuffers {
    /// Lends the buffers of these pages.
    #[must_use]
    pub fn new(pages: &Pages) -> Self {
        Self {
            pages: pages.clone(),
            returned: Arc::default(),
            counters: DeliveryCounters::default(),
        }
    }

    /// Puts all of them on loan, or none.
    fn lend_all(&self, bodies: &[Span]) -> Result<(), DeliverError> {
        let loans = &self.pages.memory().loans;
        for (nth, body) in bodies.iter().enumerate() {
            let located = self.pages.locate(body).and_then(|(buffer, _)| {
                if loans.lend(buffer) { Ok(()) } else { Err(DeliverError::Twice(*body)) }
            });
            if let Err(error) = located {
                for (buffer, _) in bodies[..nth].iter().flat_map(|body| self.pages.locate(body)) {
                    loans.end(buffer);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// The guard of a buffer that was just put on loan.
    fn guard(&self, body: &Span) -> Result<Delivered, DeliverError> {
        let (buffer, range) = self.pages.locate(body)?;
        let memory = Arc::clone(self.pages.memory());
        let start = buffer * self.pages.buffer_len() + range.start;
        // SAFETY: within the mapping.
        let bytes = unsafe { memory.mapping.base().add(start) };
        let loan = Loan { memory, returned: Arc::clone(&self.returned), buffer, body: *body };
        // SAFETY: the loan keeps the mapping. The buffer went on loan while
        // nobody had the region pinned, so nobody writes there until it ends.
        Ok(unsafe { Delivered::new(bytes, range.len(), BytesOwner::Buffer { _loan: loan }) })
    }
}

impl Delivery for FastBuffers {
    fn area(&self) -> Area {
        self.pages.area()
    }

    fn deliver_all(
        &mut self,
        bodies: &[Span],
        into: &mut Vec<Delivered>,
    ) -> Result<(), DeliverError> {
        let Some(first) = bodies.first() else { return Ok(()) };
        let seized = self.pages.seize(first)?;
        self.lend_all(bodies)?;
        drop(seized);
        for body in bodies {
            into.push(self.guard(body)?);
        }
        self.counters.delivered += bodies.len() as u64;
        Ok(())
    }

    fn poll_returned(&mut self) -> Option<Span> {
        self.returned.lock().pop_front()
    }

    fn counters(&self) -> DeliveryCounters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_were_read_come_back_and_neighbours_move_alike() {
        let strip = Arc::new(Strip::new(3, 4, 4096).unwrap());
        let first = strip.choose(2, None).unwrap();
        assert_eq!(first, Choice { to: 0, back_from: None });
        let taken = strip.moved(2, first);
        let second = strip.choose(2, None).unwrap();
        assert_eq!(second, Choice { to: 1, back_from: None }, "the first is being read");
        drop(taken);
        let second = strip.choose(2, None).unwrap();
        assert_eq!(second, Choice { to: 1, back_from: Some(0) });
        // The neighbour is where this one was before.
        drop(strip.moved(3, Choice { to: 0, back_from: None }));
        assert_eq!(strip.choose(3, Some(second)), Some(second));
        let _taken = strip.moved(2, second);
        assert_eq!(strip.choose(2, None), Some(Choice { to: 0, back_from: None }));
    }

    #[test]
    fn what_is_read_is_never_moved_over() {
        let strip = Arc::new(Strip::new(2, 1, 4096).unwrap());
        let keep: Vec<_> = (0..2).map(|_| strip.moved(0, strip.choose(0, None).unwrap())).collect();
        assert_eq!(strip.choose(0, None), None);
        drop(keep);
        assert_eq!(strip.choose(0, None), Some(Choice { to: 0, back_from: Some(1) }));
    }
}
