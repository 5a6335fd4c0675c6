//! [`FastBuffers`]: the application reads the buffer itself, until it is done.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use landfall_placement::{Area, Span};

use super::pages::Backing;
use super::{DeliverError, Delivered, Delivery, DeliveryCounters, Home, Pages};

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
        // Whoever is told that the buffer is back may write it.
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
        Ok(unsafe { Delivered::new(bytes, range.len(), Home::Buffer { _loan: loan }) })
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
