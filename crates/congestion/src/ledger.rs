//! How much was lost lately: [`Ledger`].

use crate::config::Config;

/// Bytes that arrived and bytes that were lost, the older ones fading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ledger {
    arrived: u32,
    lost: u32,
}

/// So many units are remembered, before both sides are halved.
const HORIZON: u64 = 4_096;

impl Ledger {
    pub(crate) const fn new() -> Self {
        Self { arrived: 0, lost: 0 }
    }

    pub(crate) fn add_arrived(&mut self, config: &Config, bytes: u64) {
        self.arrived = added(self.arrived, bytes);
        self.fade(config);
    }

    pub(crate) fn add_lost(&mut self, config: &Config, bytes: u64) {
        self.lost = added(self.lost, bytes);
        self.fade(config);
    }

    fn fade(&mut self, config: &Config) {
        let total = u64::from(self.arrived) + u64::from(self.lost);
        if total > HORIZON.saturating_mul(config.unit()).min(u64::from(u32::MAX)) {
            (self.arrived, self.lost) = (self.arrived / 2, self.lost / 2);
        }
    }

    /// Lost bytes among all, in parts per million.
    pub(crate) fn parts_per_million(&self) -> u32 {
        let total = u64::from(self.arrived) + u64::from(self.lost);
        let parts = u64::from(self.lost) * 1_000_000 / total.max(1);
        parts as u32 // At most a million.
    }
}

fn added(sum: u32, bytes: u64) -> u32 {
    sum.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: Config = Config::new(1_000);

    #[test]
    fn the_share_of_what_was_lost_is_known_and_fades() {
        let mut ledger = Ledger::new();
        assert_eq!(ledger.parts_per_million(), 0);
        for n in 0..10_000 {
            if n % 100 == 0 {
                ledger.add_lost(&CONFIG, 1_000);
            } else {
                ledger.add_arrived(&CONFIG, 1_000);
            }
        }
        assert!(ledger.parts_per_million().abs_diff(10_000) < 500, "{ledger:?}");
        for _ in 0..50_000 {
            ledger.add_arrived(&CONFIG, 1_000);
        }
        assert!(ledger.parts_per_million() < 10, "{ledger:?}");
    }

    #[test]
    fn any_numbers_give_a_share() {
        let mut ledger = Ledger::new();
        ledger.add_lost(&CONFIG, u64::MAX);
        assert_eq!(ledger.parts_per_million(), 1_000_000);
        ledger.add_arrived(&CONFIG, u64::MAX);
        assert!(ledger.parts_per_million() < 1_000_000);
    }
}
