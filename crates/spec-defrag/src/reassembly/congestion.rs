//! What congestion the pieces of a packet met, for the whole of it.

use landfall_placement::{Ecn, Refusal};

/// The congestion marks of the pieces so far (RFC 3168, section 5.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Congestion(u8);

impl Congestion {
    /// One more piece came with this mark.
    #[inline]
    pub const fn add(&mut self, ecn: Ecn) {
        self.0 |= 1 << ecn as u8;
    }

    /// The marks of both.
    #[must_use]
    #[inline]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The mark of the whole: that of the `first` piece, or congestion if any piece
    /// met it.
    ///
    /// # Errors
    /// [`Refusal::Malformed`] where only some pieces were capable: somebody changed
    /// the others. The kernel drops such packets too (`ip_frag_ecn_table`).
    #[inline]
    pub const fn of_all(self, first: Ecn) -> Result<Ecn, Refusal> {
        const NOT_CAPABLE: u8 = 1 << Ecn::NotCapable as u8;
        const EXPERIENCED: u8 = 1 << Ecn::CongestionExperienced as u8;
        if self.0 & NOT_CAPABLE != 0 && self.0 != NOT_CAPABLE {
            Err(Refusal::Malformed)
        } else if self.0 & EXPERIENCED != 0 {
            Ok(Ecn::CongestionExperienced)
        } else {
            Ok(first)
        }
    }
}
