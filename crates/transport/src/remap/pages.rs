//! [`Pages`]: memory in buffers of one length, whose pages can be moved away.

use std::fmt;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use landfall_placement::{Area, Span};

use super::DeliverError;
use crate::memory::{
    AccessError, HUGE_PAGE, LendRefusal, Loans, Mapping, Regions, Rights, Seized, page_size,
};

/// Why there are no such pages.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PagesError {
    /// The lengths do not fit.
    #[error(
        "no {buffers} buffers of {buffer_len} bytes: there is one at least, each a number of \
         whole pages ({page} bytes), and 64 GiB in all at most"
    )]
    BadGeometry {
        /// How many there should have been.
        buffers: u32,
        /// How long each should have been.
        buffer_len: u32,
        /// How long a page is.
        page: usize,
    },
    /// The kernel has no more.
    #[error("the kernel mapped no {len} bytes: {source}")]
    NoMemory {
        /// How many were asked for.
        len: usize,
        /// What the kernel said.
        source: io::Error,
    },
    /// The pages could not be lent as a region.
    #[error(transparent)]
    NotLent(#[from] LendRefusal),
}

/// Memory in buffers of one length, page-aligned and lent as one region for
/// reading and writing. Clones are the same memory; the grant ends with the last.
#[derive(Clone)]
pub struct Pages(Arc<Inner>);

struct Inner {
    memory: Arc<Backing>,
    regions: Regions,
    area: Area,
    buffer_len: usize,
}

/// What the region's slot keeps alive.
pub(super) struct Backing {
    pub(super) mapping: Mapping,
    pub(super) loans: Loans,
}

impl Pages {
    /// This many buffers of this length, a number of whole pages.
    ///
    /// # Errors
    /// The lengths do not fit, or there is no memory, or no room in the table.
    pub fn new(regions: &Regions, buffers: u32, buffer_len: u32) -> Result<Self, PagesError> {
        const MOST_BYTES: u64 = 64 << 30;
        let page = page_size();
        let bytes = u64::from(buffers) * u64::from(buffer_len);
        let len = usize::try_from(bytes).ok().filter(|len| *len as u64 <= MOST_BYTES && *len > 0);
        let Some(len) = len.filter(|_| (buffer_len as usize).is_multiple_of(page)) else {
            return Err(PagesError::BadGeometry { buffers, buffer_len, page });
        };
        let buffer_len = buffer_len as usize;
        let mapping = Mapping::anonymous(len.next_multiple_of(HUGE_PAGE), false)
            .map_err(|source| PagesError::NoMemory { len, source })?
            .in_small_pages();
        let loans = Loans::new(buffers as usize, buffer_len);
        let memory = Arc::new(Backing { mapping, loans });
        let (place, loans) = ((memory.mapping.base(), len), NonNull::from(&memory.loans));
        let owner: Arc<dyn Send + Sync> = Arc::<Backing>::clone(&memory);
        // SAFETY: a mapping starts on a page, and the slot keeps it and the
        // loans beside it. References are made to bytes on loan alone; pages
        // are moved only while nobody has the region pinned, and zeros, which
        // are as good, come in their place.
        let region =
            unsafe { regions.lend_with_loans(place, Rights::READ | Rights::WRITE, loans, owner) }?;
        let area = Area::new(region, 0, len as u64);
        Ok(Self(Arc::new(Inner { memory, regions: regions.clone(), area, buffer_len })))
    }

    /// All buffers, one after another.
    #[must_use]
    pub fn area(&self) -> Area {
        self.0.area
    }

    /// How many buffers there are.
    #[must_use]
    pub fn buffers(&self) -> usize {
        (self.0.area.len / self.0.buffer_len as u64) as usize
    }

    /// How long a buffer is.
    #[must_use]
    pub fn buffer_len(&self) -> usize {
        self.0.buffer_len
    }

    pub(super) fn memory(&self) -> &Arc<Backing> {
        &self.0.memory
    }

    /// In which buffer the bytes are, and where in it.
    pub(super) fn locate(&self, body: &Span) -> Result<(usize, Range<usize>), DeliverError> {
        let area = self.0.area;
        if body.region != area.region {
            return Err(AccessError::Unknown(body.region).into());
        }
        let Some(end) = body.end().filter(|end| *end <= area.len) else {
            return Err(AccessError::OutOfBounds { span: *body, len: area.len }.into());
        };
        let (start, end) = (body.offset as usize, end as usize);
        let buffer = start / self.0.buffer_len;
        let first = buffer * self.0.buffer_len;
        if buffer >= self.buffers() || end - first > self.0.buffer_len {
            return Err(DeliverError::NotOneBuffer(*body));
        }
        Ok((buffer, start - first..end - first))
    }

    /// A moment at which nobody uses the region.
    pub(super) fn seize(&self, for_body: &Span) -> Result<Seized<'_>, DeliverError> {
        let seized = self.0.regions.seize(self.0.area.region)?;
        seized.ok_or(DeliverError::InUse(*for_body))
    }

    /// The same, at which nobody reads one of these either: their pages can be
    /// moved. A loan begins at such a moment only, so none does meanwhile.
    pub(super) fn seize_to_move(
        &self,
        bodies: &[Span],
    ) -> Result<Option<Seized<'_>>, DeliverError> {
        let Some(first) = bodies.first() else { return Ok(None) };
        let seized = self.seize(first)?;
        for body in bodies {
            if self.0.memory.loans.is_lent(self.locate(body)?.0) {
                return Err(DeliverError::Twice(*body));
            }
        }
        Ok(Some(seized))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Who still has the region pinned keeps the memory, which is all that
        // it needs; the grant ends in any case.
        let _ = self.regions.take_back_shared(self.area.region, Duration::ZERO);
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages")
            .field("area", &self.0.area)
            .field("buffer_len", &self.0.buffer_len)
            .finish_non_exhaustive()
    }
}
