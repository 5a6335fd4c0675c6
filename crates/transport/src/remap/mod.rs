//! How a packet that was joined in lent memory comes to the application without
//! a copy: its pages are moved to the application, or read where they are.
//!
//! | part | what it is |
//! | --- | --- |
//! | [`Pages`] | memory in buffers of one length, lent as a region: what engines guess into |
//! | [`Delivery`] | the one interface of both ways, [`Remapping`] and [`FastBuffers`] |
//! | [`Delivered`] | the bytes of a packet, as long as the application keeps them |
//! | [`Remapping`] | pages move out of the buffer, others take their place |
//! | [`FastBuffers`] | the buffer is on loan until it was read |
//! | [`Landing`] | pages move to an address that the application chose |
//!
//! After a [`Delivery::deliver`] the buffer is the application's.
//! [`Delivery::poll_returned`] says when it can be used for the next packet: at
//! once where the pages were moved, and when the guard was dropped where they
//! were not.
//!
//! ```
//! use landfall_transport::memory::Regions;
//! use landfall_transport::remap::{Delivery, Pages, Remapping};
//!
//! let regions = Regions::new(4);
//! let pages = Pages::new(&regions, 16, 8192)?;
//! let mut delivery = Remapping::new(&pages, Remapping::BANKS)?;
//! // A driver writes a packet into the second page of the third buffer …
//! let body = pages.area().span(2 * 8192 + 4096, 11);
//! regions.write(&body, b"hello there")?;
//! // … and what was written is the application's, at another address.
//! let delivered = delivery.deliver(body)?;
//! assert_eq!(&delivered[..], b"hello there");
//! assert_eq!(delivery.poll_returned(), Some(body));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Nobody may have the region pinned at that moment** ([`DeliverError::InUse`]
//! otherwise): a system call under way would go on writing into pages that the
//! application reads. So a driver releases what it posted first.
//!
//! # What it costs
//!
//! Moving pages means that the kernel changes its books and the page table, and
//! tells all processors: several microseconds a call, some twenty on a virtual
//! machine, where a copy of 4 KiB takes a third of one. For 64 neighbours at
//! once it is 0.2 to 0.5 µs for each, for more still less; so deliver what came
//! together with [`Delivery::deliver_all`]. A loan costs some tens of
//! nanoseconds.
//!
//! What does not live here: which bytes make a packet, and who gets it.

mod landing;
mod pages;
mod remapping;

use std::ops::Deref;
use std::ptr::NonNull;
use std::{fmt, io};

use landfall_placement::{Area, Span};

pub use landing::{FastBuffers, Landing};
pub use pages::{Pages, PagesError};
pub use remapping::Remapping;

use crate::memory::AccessError;

/// Why a packet was not delivered. Nothing was moved, and nothing is on loan.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeliverError {
    /// The span is not of these pages, or their grant has ended.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The span has bytes of more than one buffer.
    #[error("{0} has bytes of more than one buffer: deliver a packet from its own buffer")]
    NotOneBuffer(Span),
    /// A driver or a system call may be writing.
    #[error("{0} is in a region that somebody uses: release what is posted, then deliver")]
    InUse(Span),
    /// The buffer was delivered already.
    #[error("the buffer of {0} was delivered and not returned, or is given twice")]
    Twice(Span),
    /// The application keeps too much.
    #[error("{0} has no place to go: drop packets that were delivered from the same buffer")]
    Full(Span),
    /// The place is not within the landing, or the bytes do not start on a page.
    #[error(
        "{body} cannot land at {at}: both start on a page of {page} bytes, and it has to fit \
         within {len} bytes"
    )]
    BadPlace {
        /// What should have landed.
        body: Span,
        /// Where.
        at: usize,
        /// How long a page is.
        page: usize,
        /// How long the landing is.
        len: usize,
    },
}

impl From<DeliverError> for io::Error {
    fn from(error: DeliverError) -> Self {
        let kind = match error {
            DeliverError::InUse(_) => io::ErrorKind::ResourceBusy,
            DeliverError::Full(_) => io::ErrorKind::WouldBlock,
            _ => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

/// What was done to deliver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryCounters {
    /// Packets that were delivered.
    pub delivered: u64,
    /// How often pages were moved, neighbours together: two system calls each.
    pub move_calls: u64,
    /// Bytes that were copied, because the kernel would not move them.
    pub bytes_copied: u64,
}

/// A way from the buffers of a region to the application, without a copy.
pub trait Delivery: fmt::Debug + Send {
    /// The buffers, one after another.
    fn area(&self) -> Area;

    /// Hands bytes of one buffer to the application. Nothing else in that buffer
    /// is of worth.
    ///
    /// # Errors
    /// Why not; nothing has changed.
    fn deliver(&mut self, body: Span) -> Result<Delivered, DeliverError> {
        let mut one = Vec::with_capacity(1);
        self.deliver_all(&[body], &mut one)?;
        one.pop().ok_or(DeliverError::NotOneBuffer(body))
    }

    /// Hands bytes of several buffers to the application, in this order: all of
    /// them or none.
    ///
    /// # Errors
    /// Why not; nothing has changed.
    fn deliver_all(
        &mut self,
        bodies: &[Span],
        into: &mut Vec<Delivered>,
    ) -> Result<(), DeliverError>;

    /// The next span of those delivered whose buffer can be used again.
    fn poll_returned(&mut self) -> Option<Span>;

    /// What was done.
    fn counters(&self) -> DeliveryCounters;
}

/// Bytes that were delivered: the application's until it drops them.
pub struct Delivered {
    bytes: NonNull<u8>,
    len: usize,
    /// Gets the memory back when this is dropped.
    _home: BytesOwner,
}

/// Where delivered bytes are at home.
enum BytesOwner {
    Strip { _place: landing::HeldPlace },
    Buffer { _loan: landing::Loan },
}

// SAFETY: bytes that are only read, in memory that the home keeps as it is, and
// neither belongs to a thread.
unsafe impl Send for Delivered {}
// SAFETY: likewise.
unsafe impl Sync for Delivered {}

impl Delivered {
    /// # Safety
    /// As long as the home lives, these bytes stay mapped and nobody writes them.
    unsafe fn new(bytes: NonNull<u8>, len: usize, home: BytesOwner) -> Self {
        Self { bytes, len, _home: home }
    }
}

impl Deref for Delivered {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `new` was promised it.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for Delivered {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Delivered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let was_moved = match self._home {
            BytesOwner::Strip { .. } => true,
            BytesOwner::Buffer { .. } => false,
        };
        f.debug_struct("Delivered")
            .field("len", &self.len)
            .field("was_moved", &was_moved)
            .finish_non_exhaustive()
    }
}
