//! What a grant allows ([`Rights`]), why memory was refused, and what to do about it.

use core::fmt;
use core::ops::{BitOr, BitOrAssign};
use core::time::Duration;

use landfall_placement::{RegionId, Span, WordOp};
use thiserror::Error;

use super::Memory;

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

/// What whoever uses a lent region may do with it.
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
