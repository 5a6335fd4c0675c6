//! Whether guessing pays at all, and how far ahead: the share of guesses that came
//! true lately, and how many of a burst did before the first that did not.

/// Full marks.
const ONE: u32 = 1 << 16;
/// Below this share guesses are not acted on: a miss costs about as much as a hit
/// saves.
const PAYS: u32 = ONE / 2;
/// A burst changes the mean by this share.
const SHIFT: u32 = 2;
/// The shortest list: some packets of a page. The share is that of so many units at the
/// start of a burst: one thing that nobody expected displaces all that follow it, and
/// that says more about how long the list was than about the guesses.
const SHORTEST: u16 = 12;
/// A list that was right to its end is longer by so much the next time.
const LONGER: u16 = 6;

/// Which units of a burst were foreseen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    units: u16,
    /// Before the first that was not.
    run: u16,
    /// Of the first units of the burst.
    early: u16,
}

impl Tally {
    /// The next unit was foreseen, or not.
    #[inline]
    pub(crate) fn note(&mut self, is_foreseen: bool) {
        if is_foreseen {
            self.run += u16::from(self.run == self.units);
            self.early += u16::from(self.units < SHORTEST);
        }
        self.units = self.units.saturating_add(1);
    }
}

/// A moving mean over bursts. Guesses are made, and compared with what came, when
/// they are not acted on as well: so it is noticed when they would come true again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    share: u32,
    /// So many units ahead are guessed, as long as it pays.
    reach: u16,
    most: u16,
}

impl Pace {
    pub(crate) const fn new(most: u16) -> Self {
        Self { share: ONE, reach: most, most }
    }

    /// A burst was looked at.
    pub(crate) fn burst(&mut self, tally: Tally) {
        let Tally { units, run, early } = tally;
        if units == 0 {
            return;
        }
        let now = u32::from(early) * ONE / u32::from(units.min(SHORTEST));
        self.share = self.share - (self.share >> SHIFT) + (now >> SHIFT);
        let reach = if run >= units {
            // A burst that was short says nothing about a long list.
            if units >= self.reach { self.reach.saturating_add(LONGER) } else { self.reach }
        } else {
            self.reach.midpoint(run)
        };
        self.reach = reach.max(SHORTEST).min(self.most);
    }

    /// Whether to act on guesses.
    pub(crate) const fn pays(&self) -> bool {
        self.share >= PAYS
    }

    /// How long the list shall be: where nothing is guessed, the longer the better.
    pub(crate) const fn reach(&self) -> u16 {
        if self.pays() { self.reach } else { self.most }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A burst whose first units were foreseen.
    fn burst(run: u16, of: u16) -> Tally {
        let mut tally = Tally::default();
        (0..of).for_each(|n| tally.note(n < run));
        tally
    }

    #[test]
    fn misses_stop_it_and_hits_start_it_again() {
        let mut pace = Pace::new(96);
        pace.burst(burst(0, 0));
        assert!(pace.pays());
        (0..4).for_each(|_| pace.burst(burst(1, 96)));
        assert!(!pace.pays());
        assert_eq!(pace.reach(), 96, "nothing is displaced where nothing is guessed");
        (0..4).for_each(|_| pace.burst(burst(96, 96)));
        assert!(pace.pays());
        (0..1000).for_each(|_| pace.burst(burst(u16::MAX, u16::MAX)));
        assert!(pace.share <= ONE);
    }

    #[test]
    fn lists_are_as_long_as_what_comes_undisturbed() {
        let mut pace = Pace::new(96);
        (0..20).for_each(|_| pace.burst(burst(30, pace.reach())));
        assert!((20..=40).contains(&pace.reach()), "{pace:?}");
        (0..5).for_each(|_| pace.burst(burst(3, 3)));
        assert!(pace.reach() <= 40, "short bursts are no reason");
        (0..20).for_each(|_| pace.burst(burst(pace.reach(), pace.reach())));
        assert_eq!(pace.reach(), 96);
        (0..3).for_each(|_| pace.burst(burst(7, 96)));
        assert!(pace.pays() && pace.reach() >= SHORTEST);
    }
}
