//! Whether something that guesses well most of the time does so now.

/// Counts misses, and says when to do without guesses for a while.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Doubt {
    /// Misses in a row.
    misses: u32,
    /// So many times it will still be done without.
    left: u32,
}

/// So many misses in a row are no accident.
const MISSES: u32 = 2;
/// Then it is done without so many times, before guesses get another chance.
const TIMES: u32 = 64;

impl Doubt {
    /// Shall it be done without this time?
    pub(crate) fn is_due(&mut self) -> bool {
        let due = self.left > 0;
        self.left = self.left.saturating_sub(1);
        due
    }

    /// A guess was right, or missed.
    pub(crate) fn learn(&mut self, missed: bool) {
        self.misses = if missed { self.misses + 1 } else { 0 };
        if self.misses >= MISSES {
            *self = Self { misses: 0, left: TIMES };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_in_a_row_are_believed_for_a_while() {
        let mut doubt = Doubt::default();
        for missed in [true, false, true] {
            doubt.learn(missed);
            assert!(!doubt.is_due());
        }
        doubt.learn(true);
        assert!((0..TIMES).all(|_| doubt.is_due()));
        assert!(!doubt.is_due(), "another chance");
    }
}
