//! What a grant allows: [`Rights`].

use core::fmt;
use core::ops::{BitOr, BitOrAssign};

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
