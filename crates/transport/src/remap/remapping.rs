//! [`Remapping`]: the pages of a buffer move to the application.

use std::collections::VecDeque;
use std::sync::Arc;
use std::{io, ptr};

use landfall_placement::{Area, Span};

use super::landing::{Choice, Strip};
use super::{BytesOwner, DeliverError, Delivered, Delivery, DeliveryCounters, Pages};
use crate::memory::Mapping;

/// Delivery by moving pages: what the kernel or an engine wrote into a buffer is
/// at another address then, and the buffer has the pages of a packet that was
/// read before; or none, and gets fresh ones when it is written.
#[derive(Debug)]
pub struct Remapping {
    pages: Pages,
    strip: Arc<Strip>,
    returned: VecDeque<Span>,
    /// What is to be moved, by buffer: its place in the list of packets too.
    order: Vec<(usize, usize, Choice)>,
    counters: DeliveryCounters,
}

/// Neighbours that move alike.
#[derive(Clone, Copy)]
struct Run {
    first: usize,
    buffers: usize,
    choice: Choice,
}

impl Remapping {
    /// This many packets from the same buffer can be kept while a next one comes,
    /// and the pages of one more go back to it.
    pub const BANKS: usize = 4;

    /// Moves the buffers of these pages. The application may keep this many
    /// packets of each buffer; two is the least that lets pages go round.
    ///
    /// # Errors
    /// There are no banks, or the process has no address space for them.
    pub fn new(pages: &Pages, banks: usize) -> io::Result<Self> {
        if banks == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let strip = Strip::new(banks, pages.buffers(), pages.buffer_len())?;
        Ok(Self {
            pages: pages.clone(),
            strip: Arc::new(strip),
            returned: VecDeque::new(),
            order: Vec::new(),
            counters: DeliveryCounters::default(),
        })
    }

    /// Chooses where each buffer goes, in the order in which they lie.
    fn choose(&mut self, bodies: &[Span]) -> Result<(), DeliverError> {
        const UNKNOWN: Choice = Choice { to: 0, back_from: None };
        self.order.clear();
        for (nth, body) in bodies.iter().enumerate() {
            let (buffer, _) = self.pages.locate(body)?;
            self.order.push((buffer, nth, UNKNOWN));
        }
        self.order.sort_unstable_by_key(|(buffer, nth, _)| (*buffer, *nth));
        let mut before = None;
        for at in 0..self.order.len() {
            let (buffer, nth, _) = self.order[at];
            if at > 0 && self.order[at - 1].0 == buffer {
                return Err(DeliverError::Twice(bodies[nth]));
            }
            before = self.strip.choose(buffer, before);
            self.order[at].2 = before.ok_or(DeliverError::Full(bodies[nth]))?;
        }
        Ok(())
    }

    /// The runs that [`choose`](Self::choose) found.
    fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        let is_next =
            |a: &(usize, usize, Choice), b: &(usize, usize, Choice)| a.0 + 1 == b.0 && a.2 == b.2;
        self.order.chunk_by(is_next).map(|run| Run {
            first: run[0].0,
            buffers: run.len(),
            choice: run[0].2,
        })
    }

    /// Moves a run away and, if there are, pages that were read back.
    ///
    /// # Safety
    /// Nobody has the region pinned or reads the buffers, and the choice is the
    /// strip's.
    unsafe fn exchange(&self, run: Run) -> DeliveryCounters {
        let (pool, strip) = (&self.pages.memory().mapping, &self.strip.mapping);
        let len = self.pages.buffer_len();
        let place = |bank| self.strip.place(bank, run.first) * len;
        let mut done = DeliveryCounters::default();
        // SAFETY: the caller's promise; and nobody reads what is in the place
        // that was chosen.
        unsafe {
            let to = (strip, place(run.choice.to));
            move_or_copy((pool, run.first * len), to, (run.buffers, len), &mut done);
        }
        if let Some(bank) = run.choice.back_from {
            // SAFETY: these pages were read, and what is in the buffers is of
            // no worth. Should the kernel refuse, the buffers have fresh pages.
            let back = unsafe {
                strip.move_pages(place(bank), run.buffers * len, (pool, run.first * len))
            };
            done.move_calls += u64::from(back.is_ok());
        }
        done
    }
}

/// Moves buffers of this length, all at once if the kernel does that, else
/// one by one. One that it does not move is copied.
///
/// # Safety
/// As for [`Mapping::move_pages`].
pub(super) unsafe fn move_or_copy(
    (from, at): (&Mapping, usize),
    (to, place): (&Mapping, usize),
    (buffers, len): (usize, usize),
    counters: &mut DeliveryCounters,
) {
    // SAFETY: the caller's promise.
    if unsafe { from.move_pages(at, buffers * len, (to, place)) }.is_ok() {
        counters.move_calls += 1;
        return;
    }
    // The kernel moves what it keeps book of in one piece; it may also be at
    // the bound of how many pieces there may be.
    for step in (0..buffers).map(|nth| nth * len) {
        // SAFETY: likewise.
        let moved =
            buffers > 1 && unsafe { from.move_pages(at + step, len, (to, place + step)) }.is_ok();
        if moved {
            counters.move_calls += 1;
            continue;
        }
        // SAFETY: within the mappings, which are two; nobody uses these bytes.
        unsafe {
            let (from, to) = (from.base().add(at + step), to.base().add(place + step));
            ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), len);
        }
        counters.bytes_copied += len as u64;
    }
}

impl Delivery for Remapping {
    fn area(&self) -> Area {
        self.pages.area()
    }

    fn deliver_all(
        &mut self,
        bodies: &[Span],
        into: &mut Vec<Delivered>,
    ) -> Result<(), DeliverError> {
        self.choose(bodies)?;
        let Some(seized) = self.pages.seize_to_move(bodies)? else { return Ok(()) };
        let mut done = DeliveryCounters::default();
        for run in self.runs() {
            // SAFETY: seized just now.
            let run = unsafe { self.exchange(run) };
            done.move_calls += run.move_calls;
            done.bytes_copied += run.bytes_copied;
        }
        drop(seized);
        // In the order in which they were given.
        self.order.sort_unstable_by_key(|(_, nth, _)| *nth);
        for (body, (buffer, _, choice)) in bodies.iter().zip(&self.order) {
            let (_, range) = self.pages.locate(body)?;
            let place = self.strip.place(choice.to, *buffer) * self.pages.buffer_len();
            let taken = self.strip.moved(*buffer, *choice);
            // SAFETY: within the mapping, which the place keeps; nothing is
            // moved there or away before the place is given back.
            into.push(unsafe {
                let bytes = self.strip.mapping.base().add(place + range.start);
                Delivered::new(bytes, range.len(), BytesOwner::Strip { _place: taken })
            });
        }
        self.returned.extend(bodies);
        self.counters.delivered += bodies.len() as u64;
        self.counters.move_calls += done.move_calls;
        self.counters.bytes_copied += done.bytes_copied;
        Ok(())
    }

    fn poll_returned(&mut self) -> Option<Span> {
        self.returned.pop_front()
    }

    fn counters(&self) -> DeliveryCounters {
        self.counters
    }
}
