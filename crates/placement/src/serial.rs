//! Numbers that wrap: serial-number arithmetic (RFC 1982), as TCP and STP count.
//!
//! There is no `Ord`: of two serial numbers half the circle apart neither is
//! the later one, and an order that is not transitive would mislead sorting.

macro_rules! serial {
    ($(#[$doc:meta])* $name:ident, $unsigned:ty, $signed:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[repr(transparent)]
        pub struct $name(pub $unsigned);

        impl $name {
            /// The number `n` steps on.
            #[must_use]
            #[inline]
            pub const fn plus(self, n: $unsigned) -> Self {
                Self(self.0.wrapping_add(n))
            }

            /// The number `n` steps back.
            #[must_use]
            #[inline]
            pub const fn minus(self, n: $unsigned) -> Self {
                Self(self.0.wrapping_sub(n))
            }

            /// How many steps lead from `earlier` to this, always forward.
            #[must_use]
            #[inline]
            pub const fn since(self, earlier: Self) -> $unsigned {
                self.0.wrapping_sub(earlier.0)
            }

            /// How far ahead of `other` this is; negative if it is behind.
            #[must_use]
            #[inline]
            pub const fn offset_from(self, other: Self) -> $signed {
                self.0.wrapping_sub(other.0) as $signed
            }

            /// Does this come before `other`, on the shorter way round?
            #[must_use]
            #[inline]
            pub const fn precedes(self, other: Self) -> bool {
                self.offset_from(other) < 0
            }

            /// Does this lie in the `len` numbers that start at `start`?
            #[must_use]
            #[inline]
            pub const fn is_within(self, start: Self, len: $unsigned) -> bool {
                self.since(start) < len
            }

            /// The later of the two, on the shorter way round.
            #[must_use]
            #[inline]
            pub const fn later(self, other: Self) -> Self {
                if self.precedes(other) { other } else { self }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

serial! {
    /// A 16-bit number that wraps.
    Serial16, u16, i16
}
serial! {
    /// A 32-bit number that wraps.
    Serial32, u32, i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_wrap_is_nothing_special() {
        let (before, after) = (Serial32(u32::MAX), Serial32(2));
        assert!(before.precedes(after) && !after.precedes(before));
        assert_eq!(after.since(before), 3);
        assert_eq!(before.offset_from(after), -3);
        assert_eq!(before.later(after), after);
        assert!(after.is_within(before, 4) && !after.is_within(before, 3));
    }

    #[test]
    fn half_the_circle_away_both_precede() {
        // RFC 1982 leaves it undefined; we only promise that it does not depend on the position.
        let (a, b) = (Serial16(5), Serial16(5 + 0x8000));
        assert!(a.precedes(b) && b.precedes(a));
    }

    proptest! {
        #[test]
        fn order_depends_on_distance_only(start: u32, distance in 1..0x8000_0000u32) {
            let (a, b) = (Serial32(start), Serial32(start).plus(distance));
            prop_assert_eq!(a.precedes(b), distance < 0x8000_0000);
            prop_assert_eq!(b.since(a), distance);
            prop_assert_eq!(b.minus(distance), a);
        }
    }
}
