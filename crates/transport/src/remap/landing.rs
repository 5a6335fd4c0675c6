//! [`Landing`]: address space of the application, to which it has pages moved.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut, Range};

use landfall_placement::Span;

use super::remapping::move_or_copy;
use super::{DeliverError, DeliveryCounters, Pages};
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
    /// Reserves addresses for so many bytes, rounded up to whole pages.
    ///
    /// # Errors
    /// There are none, or the process has no address space for them.
    pub fn reserve(len: usize) -> io::Result<Self> {
        let page = page_size();
        let len = len.max(1).checked_next_multiple_of(page).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self { mapping: Mapping::reserved(len)?, page, counters: DeliveryCounters::default() })
    }

    /// Moves the pages of a packet here, in place of what is there. Gives where
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

    /// Gives the memory of these bytes back to the system, as far as they are
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
