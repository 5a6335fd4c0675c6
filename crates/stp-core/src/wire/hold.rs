//! How long a grant waited at the sender, in the 16 bits of Data's `param`.
//!
//! The receiver takes it off the time between grant and Data, and has the round
//! trip of the network without the sender's queue. It is a little floating
//! number without a sign: an exponent of 4 bits above a mantissa of 12, in units
//! of 64 ns. So it reaches from 64 ns to 8.5 s, and is never off by more than
//! one part in 2048.

use core::time::Duration;

/// Nanoseconds in a unit.
const UNIT: u64 = 64;
const MANTISSA_BITS: u32 = 12;
const LARGEST_EXPONENT: u32 = 15;
/// The longest that can be said.
const MOST: u64 = ((1 << MANTISSA_BITS) - 1) << LARGEST_EXPONENT;

/// The number for a duration, rounded down: the receiver never takes off more
/// than was waited. What is longer than can be said becomes the longest that can.
#[must_use]
pub fn encode(hold: Duration) -> u16 {
    // A u64 holds 584 years of nanoseconds; more is cut to the longest anyway.
    let units = u64::try_from(hold.as_nanos()).map_or(MOST, |nanos| nanos / UNIT).min(MOST);
    let exponent = (u64::BITS - units.leading_zeros()).saturating_sub(MANTISSA_BITS);
    (exponent << MANTISSA_BITS) as u16 | (units >> exponent) as u16
}

/// The duration that a number stands for. Every number stands for one.
#[must_use]
pub const fn decode(hold: u16) -> Duration {
    let exponent = (hold >> MANTISSA_BITS) as u32;
    let mantissa = (hold & ((1 << MANTISSA_BITS) - 1)) as u64;
    Duration::from_nanos((mantissa << exponent) * UNIT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_numbers() {
        let nanos = |nanos| encode(Duration::from_nanos(nanos));
        assert_eq!(nanos(0), 0);
        assert_eq!(nanos(63), 0);
        assert_eq!(nanos(64), 1);
        assert_eq!(nanos(4095 * 64), 0x0fff);
        // 4096 units need the exponent: 2048 times two.
        assert_eq!(nanos(4096 * 64), 0x1800);
        assert_eq!(nanos(4097 * 64), 0x1800);
        assert_eq!(nanos(4098 * 64), 0x1801);
        assert_eq!(decode(0xffff), Duration::from_nanos(8_587_837_440));
        for forever in [Duration::from_secs(9), Duration::from_secs(1 << 40), Duration::MAX] {
            assert_eq!(encode(forever), 0xffff);
        }
    }

    #[test]
    fn every_number_stands_for_a_duration_that_comes_back() {
        for number in 0..=u16::MAX {
            let hold = decode(number);
            assert_eq!(decode(encode(hold)), hold, "{number:#06x}");
        }
    }

    proptest! {
        #[test]
        fn rounds_down_and_by_little(nanos in 0u64..8_587_837_440) {
            let back = decode(encode(Duration::from_nanos(nanos))).as_nanos() as u64;
            prop_assert!(back <= nanos);
            prop_assert!(nanos - back <= UNIT.max(nanos / 2048 + UNIT));
        }

        #[test]
        fn longer_is_never_less(a in any::<u64>(), b in any::<u64>()) {
            let number = |nanos: u64| decode(encode(Duration::from_nanos(nanos)));
            prop_assert_eq!(number(a.min(b)) <= number(a.max(b)), true);
        }
    }
}
