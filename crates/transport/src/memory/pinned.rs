//! [`Pinned`]: one region, held for as long as an operation is in flight.

use core::fmt;
use core::ptr::NonNull;

use landfall_placement::{RegionId, Span, WordOp};

use super::grant::Window;
use super::slot::Slot;
use super::{AccessError, Regions, Rights, words};

/// Where a span lies: for an `iovec`, or whatever else wants an address.
///
/// The address is good while the pin is held through which it was resolved:
/// until [`Pins::release`](super::Pins::release), or the end of the [`Pinned`].
/// It stays good when the region is revoked meanwhile. What it points to may
/// change at any time; user space touches it through the copies of
/// [`Pins`](super::Pins) and [`Pinned`] only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawSpan {
    /// The first byte.
    pub ptr: NonNull<u8>,
    /// How many bytes.
    pub len: usize,
}

impl RawSpan {
    /// The first `len` bytes and the rest; all, where there are fewer.
    #[inline]
    pub(crate) fn split_at(self, len: usize) -> (Self, Self) {
        let len = len.min(self.len);
        // Within the span or just behind it: never null.
        let behind = NonNull::new(self.ptr.as_ptr().wrapping_add(len)).unwrap_or(self.ptr);
        (Self { len, ..self }, Self { ptr: behind, len: self.len - len })
    }
}

/// A region that is held: it stays where it is and cannot be taken back.
pub struct Pinned {
    regions: Regions,
    id: RegionId,
    slot: NonNull<Slot>,
    window: Window,
}

// SAFETY: the pin is counted in an atomic and belongs to no thread; the
// memory behind it may be used from everywhere, through atomic words.
unsafe impl Send for Pinned {}
// SAFETY: likewise, and nothing changes behind a shared reference.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// # Safety
    /// `slot` is in `regions` and was pinned under `id`; this takes the pin
    /// over. `window` is the slot's.
    pub(super) unsafe fn new(
        regions: Regions,
        id: RegionId,
        slot: *const Slot,
        window: Window,
    ) -> Self {
        // SAFETY: it came from a reference.
        let slot = unsafe { NonNull::new_unchecked(slot.cast_mut()) };
        Self { regions, id, slot, window }
    }

    /// The region that is held.
    #[must_use]
    pub fn id(&self) -> RegionId {
        self.id
    }

    /// How long it is.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a region is not a collection")]
    pub fn len(&self) -> u64 {
        self.window.len()
    }

    /// What its grant allows.
    #[must_use]
    pub fn rights(&self) -> Rights {
        self.window.rights()
    }

    /// Where its first byte lies, for other languages: the bytes are there while it is held. They
    /// may change at any moment, so it is no place for a slice.
    ///
    /// ```
    /// use landfall_transport::memory::{Memory, Regions, Rights};
    ///
    /// let regions = Regions::new(1);
    /// let id = regions.lend(Memory::from_bytes(b"held"), Rights::READ).unwrap();
    /// let pinned = regions.pin(id)?;
    /// assert!(pinned.address().cast::<u64>().is_aligned());
    /// # Ok::<(), landfall_transport::memory::AccessError>(())
    /// ```
    #[must_use]
    pub const fn address(&self) -> NonNull<u8> {
        self.window.base()
    }

    /// The address of a span, if `needed` is granted and it lies within.
    ///
    /// # Errors
    /// What the check found; also when the grant has ended meanwhile.
    pub fn resolve(&self, span: &Span, needed: Rights) -> Result<RawSpan, AccessError> {
        self.check_grant(span.region)?;
        self.window.raw(span, needed)
    }

    /// Copies bytes into a span.
    ///
    /// # Errors
    /// The span may not be written, or is not as long as the bytes.
    pub fn copy_in(&self, span: &Span, bytes: &[u8]) -> Result<(), AccessError> {
        self.check_grant(span.region)?;
        let range = self.window.check(span, Rights::WRITE)?;
        check_length(span, bytes.len())?;
        // SAFETY: `self` holds the pin.
        words::copy_in(unsafe { self.window.words() }, range.start, bytes);
        Ok(())
    }

    /// Copies a span out.
    ///
    /// # Errors
    /// The span may not be read, or is not as long as the buffer.
    pub fn copy_out(&self, span: &Span, into: &mut [u8]) -> Result<(), AccessError> {
        self.check_grant(span.region)?;
        let range = self.window.check(span, Rights::READ)?;
        check_length(span, into.len())?;
        // SAFETY: `self` holds the pin.
        words::copy_out(unsafe { self.window.words() }, range.start, into);
        Ok(())
    }

    /// Does a word operation; gives what the word held before.
    ///
    /// # Errors
    /// The word may not be used, is not aligned, or not within the region.
    pub fn word(&self, op: &WordOp) -> Result<u64, AccessError> {
        self.check_grant(op.region)?;
        let at = self.window.check_word(op)?;
        // SAFETY: `self` holds the pin.
        let memory = unsafe { self.window.words() };
        words::word(memory, at, op.width, op.function).ok_or(AccessError::Misaligned(*op))
    }

    /// The pin keeps the memory; the right to use it ends with the grant.
    fn check_grant(&self, id: RegionId) -> Result<(), AccessError> {
        if id != self.id {
            return Err(AccessError::Unknown(id));
        }
        // SAFETY: slots live as long as the table, which `regions` keeps.
        unsafe { self.slot.as_ref() }.state().check_live(id)
    }
}

/// A copy needs as many bytes on one side as on the other.
pub(super) fn check_length(span: &Span, buffer: usize) -> Result<(), AccessError> {
    if buffer == span.len as usize {
        Ok(())
    } else {
        Err(AccessError::WrongLength { span: *span, buffer })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: slots live as long as the table, which `regions` keeps; the
        // pin was handed over in `new`, and ends here.
        unsafe { self.regions.unpin_slot(self.slot.as_ref()) }
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned")
            .field("id", &self.id)
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
