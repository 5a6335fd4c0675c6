//! What a grant allows ([`Rights`]), what it covers ([`Window`]), which parts of it
//! somebody reads as a slice just now ([`Loans`]), and why memory was refused.

use core::fmt;
use core::ops::{BitOr, BitOrAssign, Range};
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire};
use core::time::Duration;

use landfall_placement::{RegionId, Span, WordOp};
use thiserror::Error;

use super::words::WORD;
use super::{Memory, RawSpan};

/// What anyone who uses a lent region may do with it.
///
/// ```
/// use landfall_transport::memory::Rights;
///
/// let rights = Rights::READ | Rights::WRITE;
/// assert!(rights.contains(Rights::WRITE));
/// assert!(!rights.contains(Rights::WORDS));
/// assert_eq!(rights.to_string(), "READ | WRITE");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rights(u8);

impl Rights {
    /// Nothing: such a grant is refused, since nobody could use it.
    pub const NONE: Self = Self(0);
    /// Payloads may be sent from the region.
    pub const READ: Self = Self(1);
    /// Payloads may be written into the region.
    pub const WRITE: Self = Self(2);
    /// Words of the region may be read, written and read-modify-written, each in one indivisible step.
    pub const WORDS: Self = Self(4);
    /// Everything.
    pub const ALL: Self = Self(7);

    /// Are all of `needed` among these?
    #[must_use]
    #[inline]
    pub const fn contains(self, needed: Self) -> bool {
        self.0 & needed.0 == needed.0
    }

    /// Is nothing allowed?
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The rights whose bits are set in `bits`; bits without a meaning are ignored.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// One bit for each right: read 1, write 2, words 4.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }
}

impl BitOr for Rights {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Rights {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [(Self::READ, "READ"), (Self::WRITE, "WRITE"), (Self::WORDS, "WORDS")];
        let mut between = "";
        for (right, name) in names {
            if self.contains(right) {
                write!(f, "{between}{name}")?;
                between = " | ";
            }
        }
        if self.is_empty() { f.write_str("nothing") } else { Ok(()) }
    }
}

/// Bytes with the rights to them. Whether they are still there, no matter who holds
/// the window has to know: by a pin, or by owning the memory.
#[derive(Clone, Copy)]
pub(super) struct Window {
    base: NonNull<u8>,
    len: usize,
    rights: Rights,
    /// Of parts that may not be written just now. It lives as long as the
    /// memory: see [`with_loans`](Self::with_loans).
    loans: Option<NonNull<Loans>>,
}

impl Window {
    pub(super) const fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// # Safety
    /// `base` is a multiple of eight. From it on there are `len` bytes, filled
    /// up to a multiple of eight: initialised, writable, and as long as this
    /// window or a copy of it is used, touched in user space through atomic
    /// words only.
    pub(super) unsafe fn new(base: NonNull<u8>, len: usize, rights: Rights) -> Self {
        Self { base, len, rights, loans: None }
    }

    /// The same, where each write asks these loans first.
    ///
    /// # Safety
    /// The loans live as long as this window or a copy of it is used.
    pub(super) unsafe fn with_loans(self, loans: NonNull<Loans>) -> Self {
        Self { loans: Some(loans), ..self }
    }

    pub(super) const fn len(&self) -> u64 {
        self.len as u64
    }

    pub(super) const fn rights(&self) -> Rights {
        self.rights
    }

    /// The bytes as words.
    ///
    /// # Safety
    /// The memory outlives the slice: a pin is held, or its owner is borrowed.
    pub(super) unsafe fn words<'a>(&self) -> &'a [AtomicU64] {
        // SAFETY: `new` was promised all that; other users' writes are
        // allowed, since atomics may change behind a shared reference.
        unsafe { core::slice::from_raw_parts(self.base.as_ptr().cast(), self.len.div_ceil(WORD)) }
    }

    /// Where the span lies in the window, if the grant allows this use of it.
    #[inline]
    pub(super) fn check(&self, span: &Span, needed: Rights) -> Result<Range<usize>, AccessError> {
        self.range(span, needed).ok_or_else(|| self.refusal(span, needed))
    }

    #[inline]
    fn range(&self, span: &Span, needed: Rights) -> Option<Range<usize>> {
        let end = span.end().filter(|end| *end <= self.len())?;
        let range = span.offset as usize..end as usize;
        let allowed = self.rights.contains(needed) && !self.is_read_elsewhere(&range, needed);
        allowed.then_some(range)
    }

    /// Would this use write what somebody reads as a slice?
    #[inline]
    fn is_read_elsewhere(&self, range: &Range<usize>, needed: Rights) -> bool {
        let writes = needed != Rights::READ && !needed.is_empty();
        // SAFETY: they live as long as this window is used.
        let loans = self.loans.filter(|_| writes).map(|loans| unsafe { loans.as_ref() });
        loans.is_some_and(|loans| loans.touch(range))
    }

    #[cold]
    fn refusal(&self, span: &Span, needed: Rights) -> AccessError {
        if !self.rights.contains(needed) {
            return AccessError::Forbidden { region: span.region, needed, granted: self.rights };
        }
        match span.end() {
            Some(end) if end <= self.len() => AccessError::OnLoan(*span),
            _ => AccessError::OutOfBounds { span: *span, len: self.len() },
        }
    }

    /// Where the word lies in the window, if the grant allows to use it.
    pub(super) fn check_word(&self, op: &WordOp) -> Result<usize, AccessError> {
        let span = op.region.span(op.offset, op.width.bytes());
        let range = self.check(&span, Rights::WORDS)?;
        if !op.offset.is_multiple_of(u64::from(op.width.bytes())) {
            return Err(AccessError::Misaligned(*op));
        }
        Ok(range.start)
    }

    /// The span as an address, if the grant allows this use of it.
    #[inline]
    pub(super) fn raw(&self, span: &Span, needed: Rights) -> Result<RawSpan, AccessError> {
        let range = self.check(span, needed)?;
        // SAFETY: the range was checked to lie within the memory.
        let ptr = unsafe { self.base.add(range.start) };
        Ok(RawSpan { ptr, len: range.end - range.start })
    }
}

/// The parts of a region, all of one length, each on loan or not. What is on
/// loan nobody may write: a slice of it exists.
///
/// A part goes on loan only at a moment when nobody has the region pinned, and
/// each use after that asks here first; so no write can be under way.
#[derive(Debug)]
pub(crate) struct Loans {
    part: usize,
    /// A bit for each part.
    bits: Box<[AtomicU64]>,
}

impl Loans {
    /// This many parts of this length, none on loan.
    pub(crate) fn new(parts: usize, part: usize) -> Self {
        let bits = (0..parts.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { part: part.max(1), bits }
    }

    /// Puts a part on loan. False if it is already, or is no part.
    pub(crate) fn lend(&self, part: usize) -> bool {
        let (word, bit) = (self.bits.get(part / 64), 1 << (part % 64));
        word.is_some_and(|word| word.fetch_or(bit, AcqRel) & bit == 0)
    }

    /// The slice is gone: the part may be written again.
    pub(crate) fn end(&self, part: usize) {
        if let Some(word) = self.bits.get(part / 64) {
            // All reads through the slice come before the next write.
            word.fetch_and(!(1 << (part % 64)), AcqRel);
        }
    }

    /// Is the part on loan?
    pub(crate) fn is_lent(&self, part: usize) -> bool {
        self.bits.get(part / 64).is_some_and(|word| word.load(Acquire) >> (part % 64) & 1 == 1)
    }

    /// Is any of these bytes on loan?
    pub(super) fn touch(&self, bytes: &Range<usize>) -> bool {
        let parts = bytes.start / self.part..bytes.end.div_ceil(self.part);
        !bytes.is_empty() && parts.into_iter().any(|part| self.is_lent(part))
    }
}

/// A use of lent memory that was refused. Nothing was touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AccessError {
    /// No region was ever granted under this name.
    #[error("{0} was never granted by this table: use the id that `lend` returned")]
    Unknown(RegionId),
    /// The grant is over: the memory was taken back.
    #[error("{0} was taken back: lend the memory again and use the new id")]
    Stale(RegionId),
    /// The grant was ended, the memory is not taken back yet.
    #[error("{0} was revoked: take its memory back, lend it again and use the new id")]
    Revoked(RegionId),
    /// The span is not inside of the region.
    #[error("{span} ends beyond the {len} bytes of the region: keep offset + length within it")]
    OutOfBounds {
        /// What was asked for.
        span: Span,
        /// How long the region is.
        len: u64,
    },
    /// The application reads these bytes as a slice just now.
    #[error("{0} was delivered and is being read: write there when its guard was dropped")]
    OnLoan(Span),
    /// The grant does not allow it.
    #[error("{region} was lent for {granted}, not for {needed}: lend it with that right")]
    Forbidden {
        /// The region.
        region: RegionId,
        /// What the use needs.
        needed: Rights,
        /// What the grant allows.
        granted: Rights,
    },
    /// The word does not lie at a multiple of its width.
    #[error("a word of {} bytes cannot lie at offset {} of {}: use a multiple of its width",
        .0.width.bytes(), .0.offset, .0.region)]
    Misaligned(WordOp),
    /// A copy was asked for with a buffer of another length than the span.
    #[error("a buffer of {buffer} bytes was given for {span}: give one as long as the span")]
    WrongLength {
        /// The span.
        span: Span,
        /// How long the buffer is.
        buffer: usize,
    },
    /// More pins on one region than the table can count.
    #[error("{0} is held by too many users at once: let some of them finish")]
    TooManyPins(RegionId),
}

/// Why a region was not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LendRefusal {
    /// The table holds as many regions as it may.
    #[error(
        "the region table is full ({max} regions): take one back, or make the table with more room"
    )]
    TableFull {
        /// The bound that the table was made with.
        max: u32,
    },
    /// A grant that allows nothing is of no use.
    #[error("the grant allows nothing: lend with READ, WRITE or WORDS")]
    NoRights,
    /// Parts of such a length would share words.
    #[error("memory is lent in parts of a multiple of 64 bytes, not of {0}")]
    BadPart(usize),
    /// The range of shared memory does not start at a multiple of eight.
    #[error("shared memory can be lent from a multiple of 8 on, not from {0}")]
    Misaligned(u64),
    /// The range is not inside of the shared memory.
    #[error("the range {start}..{end} is not within the {len} bytes of the shared memory")]
    OutOfBounds {
        /// First byte asked for.
        start: u64,
        /// First byte behind.
        end: u64,
        /// How long the shared memory is.
        len: u64,
    },
}

/// A region was not granted; here is the memory again.
#[derive(Error)]
#[error("{why}")]
pub struct LendError {
    /// What stood in the way.
    pub why: LendRefusal,
    pub(super) memory: Memory,
}

impl LendError {
    /// The memory that was not lent.
    #[must_use]
    pub fn into_memory(self) -> Memory {
        self.memory
    }
}

impl fmt::Debug for LendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LendError").field("why", &self.why).finish_non_exhaustive()
    }
}

/// Why memory was not given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TakeBackError {
    /// The id names no memory that is lent.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The grant has ended, but a driver or the kernel still holds the memory.
    #[error(
        "{region} is still in use after {waited:?}: let the driver finish its turn, then try again"
    )]
    StillInUse {
        /// The region.
        region: RegionId,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The region is shared memory: there is nothing to give back but the grant.
    #[error("{0} is shared memory: end its grant with `take_back_shared`")]
    Shared(RegionId),
    /// The region is the application's own memory.
    #[error("{0} is not shared memory: use `take_back`")]
    NotShared(RegionId),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_lent_once_and_its_bytes_alone_are_touched() {
        let loans = Loans::new(100, 4096);
        assert!(loans.lend(70) && !loans.lend(70) && !loans.lend(200));
        let at = 70 * 4096;
        for (bytes, touched) in [
            (at..at + 1, true),
            (at - 1..at, false),
            (at - 1..at + 1, true),
            (at + 4095..at + 9000, true),
            (at + 4096..at + 9000, false),
            (at..at, false),
            (0..1 << 30, true),
        ] {
            assert_eq!(loans.touch(&bytes), touched, "{bytes:?}");
        }
        loans.end(70);
        loans.end(999);
        assert!(!loans.is_lent(70) && loans.lend(70));
    }
}
