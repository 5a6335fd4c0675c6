//! [`LentParts`]: lent memory in parts of one length, each of which its owner reads as a
//! slice, where it lies, while the others stay lent.

use core::fmt;
use core::ops::Deref;
use core::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_placement::RegionId;

use super::{AccessError, LendRefusal, Loans, Memory, Regions, Rights, TakeBackError};

/// Memory that is lent in parts. A part is read where it lies through a [`PartGuard`]: while
/// that lives nobody writes the part, and what wants to is refused
/// ([`AccessError::OnLoan`]); the other parts are lent as before.
///
/// Dropped, the grant ends; the memory goes with the last guard.
///
/// ```
/// use landfall_transport::memory::{LentParts, Memory, Regions, Rights};
///
/// let regions = Regions::new(8);
/// let parts = LentParts::lend(&regions, Memory::zeroed(4 * 1024), 1024, Rights::WRITE)?;
/// regions.write(&parts.region().span(1024, 5), b"hello")?;
/// let second = parts.read(1)?;
/// assert_eq!(&second[..5], b"hello");
/// assert!(regions.write(&parts.region().span(1030, 1), b"!").is_err(), "it is being read");
/// regions.write(&parts.region().span(0, 1), b"!")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LentParts {
    inner: Arc<Inner>,
    regions: Regions,
    region: RegionId,
    part: usize,
    is_left: bool,
}

struct Inner {
    memory: Memory,
    loans: Loans,
    /// How long the memory is: its slice must not be made to ask.
    len: usize,
}

impl LentParts {
    /// A part that drivers use is waited for so long at most: a turn is shorter.
    const PATIENCE: Duration = Duration::from_millis(10);

    /// Lends memory in parts of this many bytes, a multiple of [`Memory::GRANULE`]; the last
    /// may be shorter.
    ///
    /// # Errors
    /// [`LendRefusal`]: the table is full, the rights allow nothing, or the parts have no
    /// such length.
    pub fn lend(
        regions: &Regions,
        memory: Memory,
        part: usize,
        rights: Rights,
    ) -> Result<Self, LendRefusal> {
        if part == 0 || !part.is_multiple_of(Memory::GRANULE) {
            return Err(LendRefusal::BadPart(part));
        }
        let len = memory.len();
        let loans = Loans::new(len.div_ceil(part), part);
        let inner = Arc::new(Inner { memory, loans, len });
        let (place, loans) = ((inner.memory.base(), len), NonNull::from(&inner.loans));
        let owner: Arc<dyn Send + Sync> = Arc::<Inner>::clone(&inner);
        // SAFETY: memory starts at a multiple of its granule and is filled up to one; the slot
        // keeps it, and the loans beside it. The memory is reached by its base alone from here
        // on: references are made to parts on loan only.
        let region = unsafe { regions.lend_with_loans(place, rights, loans, owner) }?;
        Ok(Self { inner, regions: regions.clone(), region, part, is_left: false })
    }

    /// Ends the handle and not the grant: that goes on until
    /// [`Regions::take_back_shared`] ends it, for those who still write there.
    pub fn leave(mut self) {
        self.is_left = true;
    }

    /// Its name in the table.
    #[must_use]
    pub const fn region(&self) -> RegionId {
        self.region
    }

    /// How many parts there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.inner.len.div_ceil(self.part)
    }

    /// Reads a part where it lies.
    ///
    /// # Errors
    /// It is being read already, or there is no such part; a driver has had the region for
    /// all of 10 ms; the grant has ended.
    pub fn read(&self, part: usize) -> Result<PartGuard, TakeBackError> {
        let start = part.saturating_mul(self.part);
        let len = self.inner.len.saturating_sub(start).min(self.part);
        let span = self.region.span(start as u64, len as u32);
        if len == 0 {
            return Err(AccessError::OutOfBounds { span, len: self.inner.len as u64 }.into());
        }
        let began = Instant::now();
        loop {
            // No write is under way while nobody has it pinned, and each one after this asks
            // whether the part is on loan.
            if let Some(_seized) = self.regions.seize(self.region)? {
                if !self.inner.loans.lend(part) {
                    return Err(AccessError::OnLoan(span).into());
                }
                let inner = Arc::clone(&self.inner);
                return Ok(PartGuard { inner, part, start, len });
            }
            let waited = began.elapsed();
            if waited >= Self::PATIENCE {
                return Err(TakeBackError::StillInUse { region: self.region, waited });
            }
            std::thread::yield_now();
        }
    }
}

impl Drop for LentParts {
    fn drop(&mut self) {
        if self.is_left {
            return;
        }
        // Who still has the region pinned keeps the memory, which is all that it needs; the
        // grant ends in any case.
        let _ = self.regions.take_back_shared(self.region, Duration::ZERO);
    }
}

impl fmt::Debug for LentParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LentParts")
            .field("region", &self.region)
            .field("part", &self.part)
            .finish_non_exhaustive()
    }
}

/// The bytes of a part, where they lie. While it lives nobody writes them.
pub struct PartGuard {
    inner: Arc<Inner>,
    part: usize,
    start: usize,
    len: usize,
}

impl Deref for PartGuard {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: within the memory, which `inner` keeps. The part went on loan while nobody
        // had it pinned, and is written by nobody until this is dropped.
        unsafe {
            let start = self.inner.memory.base().as_ptr().add(self.start);
            core::slice::from_raw_parts(start, self.len)
        }
    }
}

impl Drop for PartGuard {
    fn drop(&mut self) {
        self.inner.loans.end(self.part);
    }
}

/// The contents may be long, and are nobody's business in a log.
impl fmt::Debug for PartGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartGuard")
            .field("part", &self.part)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
