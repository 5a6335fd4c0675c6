//! How long one may sleep in the kernel where that cannot tell all that is waited for.

use std::time::Duration;

/// The longest sleep before one has to look by oneself again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nap {
    longest: Option<Duration>,
    /// What the kernel would tell is known already, and would end each sleep at once.
    pub(crate) is_blind: bool,
}

impl Nap {
    /// The kernel tells all: as long as it takes.
    pub(crate) const NONE: Self = Self { longest: None, is_blind: false };
    /// Something may come at any moment.
    pub(crate) const SHORT: Self = Self::of(Duration::from_millis(1));
    /// The same, past what the kernel says of this descriptor.
    pub(crate) const BLIND: Self = Self { is_blind: true, ..Self::SHORT };

    pub(crate) const fn of(longest: Duration) -> Self {
        Self { longest: Some(longest), is_blind: false }
    }

    /// One that is good for both.
    pub(crate) fn and(self, other: Self) -> Self {
        let longest = match (self.longest, other.longest) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        Self { longest, is_blind: self.is_blind || other.is_blind }
    }

    /// How long that is, where so much time is left.
    pub(crate) fn within(self, left: Option<Duration>) -> Option<Duration> {
        self.and(Self { longest: left, is_blind: false }).longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_counts() {
        let second = Nap::of(Duration::from_secs(1));
        assert_eq!(second.and(Nap::NONE), second);
        assert_eq!(Nap::NONE.and(second).and(Nap::SHORT), Nap::SHORT);
        assert_eq!(second.and(Nap::BLIND), Nap::BLIND);
        assert_eq!(Nap::NONE.within(None), None);
        assert_eq!(Nap::NONE.within(Some(Duration::ZERO)), Some(Duration::ZERO));
        assert_eq!(second.within(Some(Duration::from_secs(2))), Some(Duration::from_secs(1)));
    }
}
