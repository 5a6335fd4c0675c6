//! Whether guessing pays at all: the share of guesses that came true lately.

/// Full marks.
const ONE: u32 = 1 << 16;
/// Below this share guesses are not acted on: a miss costs about as much as a hit
/// saves.
const PAYS: u32 = ONE / 2;
/// A burst changes the mean by this share.
const SHIFT: u32 = 2;

/// A moving mean over bursts. Guesses are made, and compared with what came, when
/// they are not acted on as well: so it is noticed when they would come true again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    share: u32,
}

impl Pace {
    pub(crate) const fn new() -> Self {
        Self { share: ONE }
    }

    /// So many units of a burst were foreseen, of so many.
    pub(crate) const fn burst(&mut self, foreseen: u32, of: u32) {
        if of == 0 {
            return;
        }
        let now = (foreseen as u64 * ONE as u64 / of as u64) as u32;
        self.share = self.share - (self.share >> SHIFT) + (now >> SHIFT);
    }

    /// Whether to act on guesses.
    pub(crate) const fn pays(&self) -> bool {
        self.share >= PAYS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_stop_it_and_hits_start_it_again() {
        let mut pace = Pace::new();
        pace.burst(0, 0);
        assert!(pace.pays());
        (0..4).for_each(|_| pace.burst(10, 96));
        assert!(!pace.pays());
        (0..4).for_each(|_| pace.burst(96, 96));
        assert!(pace.pays());
        (0..1000).for_each(|_| pace.burst(u32::MAX, u32::MAX));
        assert!(pace.share <= ONE);
    }
}
