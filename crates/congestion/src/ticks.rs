//! Short times in four bytes, so that a window stays small.

use landfall_placement::{Duration, Instant};

/// A time in steps of 64 ns; the longest is 274 s. Zero stands for "none known".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticks(pub(crate) u32);

const SHIFT: u32 = 6;

impl Ticks {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const MAX: Self = Self(u32::MAX);

    /// The time that passed, rounded to the step below, but never to "none".
    pub(crate) fn between(earlier: Instant, later: Instant) -> Self {
        Self(Self::from_nanos(later.as_nanos().saturating_sub(earlier.as_nanos())).0.max(1))
    }

    fn from_nanos(nanos: u64) -> Self {
        Self(u32::try_from(nanos >> SHIFT).unwrap_or(u32::MAX))
    }

    pub(crate) const fn is_none(self) -> bool {
        self.0 == 0
    }

    pub(crate) const fn duration(self) -> Duration {
        Duration::from_nanos((self.0 as u64) << SHIFT)
    }

    /// The shorter of two, where both are known.
    pub(crate) fn least(self, other: Self) -> Self {
        match (self.0, other.0) {
            (0, _) => other,
            (_, 0) => self,
            (a, b) => Self(a.min(b)),
        }
    }

    pub(crate) const fn beyond(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    pub(crate) const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl From<Duration> for Ticks {
    fn from(time: Duration) -> Self {
        let seconds = time.as_secs().saturating_mul(1_000_000_000);
        Self::from_nanos(seconds.saturating_add(u64::from(time.subsec_nanos())))
    }
}
