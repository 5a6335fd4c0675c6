//! A long piece of registered memory.

use crate::span::{RegionId, Span};
use core::fmt;

/// A part of a region, of any length. A [`Span`] is what one unit needs and
/// holds at most 4 GiB; an area is what a whole message or stream needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Area {
    /// The region that the bytes belong to.
    pub region: RegionId,
    /// Where the area starts in the region.
    pub offset: u64,
    /// How many bytes it has.
    pub len: u64,
}

impl Area {
    /// The part of `region` that starts at `offset` and is `len` bytes long.
    #[must_use]
    pub const fn new(region: RegionId, offset: u64, len: u64) -> Self {
        Self { region, offset, len }
    }

    /// Has it bytes, and is its end a number?
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        self.len > 0 && self.offset.checked_add(self.len).is_some()
    }

    /// Do the two name a byte in common? Both must be valid.
    #[must_use]
    pub const fn overlaps(&self, other: &Self) -> bool {
        self.region.index == other.region.index
            && self.region.generation == other.region.generation
            && self.offset < other.offset.saturating_add(other.len)
            && other.offset < self.offset.saturating_add(self.len)
    }

    /// The `len` bytes from `at` on, which must lie inside.
    #[must_use]
    #[inline]
    pub const fn span(&self, at: u64, len: u32) -> Span {
        Span { region: self.region, offset: self.offset.wrapping_add(at), len }
    }
}

impl From<Span> for Area {
    fn from(span: Span) -> Self {
        Self::new(span.region, span.offset, u64::from(span.len))
    }
}

impl fmt::Display for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}, +{})", self.region, self.offset, self.len)
    }
}
