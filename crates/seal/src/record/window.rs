//! Which packet numbers of a path came: a window behind the highest.

const WORDS: usize = 16;
/// A number so far behind the highest counts as one that came.
pub(super) const WINDOW: u64 = 64 * WORDS as u64;

/// The numbers that came of late. Older ones count as such that came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Window {
    /// One more than the highest number that came.
    end: u64,
    /// A ring: the bit of a number is at its remainder.
    bits: [u64; WORDS],
}

impl Window {
    /// Did it come before, or is it too old to know?
    pub(super) const fn has(&self, number: u64) -> bool {
        if number >= self.end {
            return false;
        }
        if self.end - number > WINDOW {
            return true;
        }
        let (word, bit) = Self::place(number);
        self.bits[word] & bit != 0
    }

    /// It came.
    pub(super) fn insert(&mut self, number: u64) {
        if number >= self.end {
            // Bits of numbers that fall out belong to those that come in.
            let fresh = (number - self.end).min(WINDOW);
            for stale in number - fresh..number {
                let (word, bit) = Self::place(stale);
                self.bits[word] &= !bit;
            }
            self.end = number.saturating_add(1);
        } else if self.end - number > WINDOW {
            return;
        }
        let (word, bit) = Self::place(number);
        self.bits[word] |= bit;
    }

    const fn place(number: u64) -> (usize, u64) {
        let at = number % WINDOW;
        ((at / 64) as usize, 1 << (at % 64))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The model remembers all numbers.
        #[test]
        fn a_window_knows_what_a_set_of_all_numbers_knows(
            start in prop_oneof![Just(0u64), any::<u64>()],
            steps in prop::collection::vec(
                prop_oneof![-1100i64..1100, -3i64..6, any::<i32>().prop_map(i64::from)], 1..400),
        ) {
            let (mut window, mut came) = (Window::default(), BTreeSet::new());
            let mut at = start;
            for step in steps {
                at = at.saturating_add_signed(step).min(u64::MAX - 1);
                let highest = came.last().copied();
                let is_old = highest.is_some_and(|highest: u64| highest - highest.min(at) >= WINDOW);
                prop_assert_eq!(window.has(at), is_old || came.contains(&at), "{}", at);
                window.insert(at);
                if !is_old {
                    came.insert(at);
                }
            }
        }
    }
}
