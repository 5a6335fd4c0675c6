//! The bus between an adapter and its host.

use landfall_placement::{Duration, Instant};

use super::costs::time_of;

/// How fast a bus is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BusCosts {
    /// Bytes in a second; 0: no limit.
    pub rate: u64,
    /// Arbitration, address phase and turn-around of each transfer.
    pub transaction: Duration,
}

impl BusCosts {
    /// PCI with 32 bits at 33 MHz: four bytes in each cycle.
    pub const PCI_32_33: Self = Self { rate: 4 * 33_333_333, transaction: Duration::ZERO };
    /// PCI with 64 bits at 33 MHz.
    pub const PCI_64_33: Self = Self { rate: 8 * 33_333_333, transaction: Duration::ZERO };
}

/// A bus: one transfer at a time, in the order in which they were asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bus {
    costs: BusCosts,
    busy_until: Instant,
    busy: Duration,
}

impl Bus {
    /// A bus that is idle.
    #[must_use]
    pub const fn new(costs: BusCosts) -> Self {
        Self { costs, busy_until: Instant::ZERO, busy: Duration::ZERO }
    }

    /// A transfer that asks for the bus at `from`: when it has it no longer. `least` is
    /// how long it takes where the bus is faster than who drives it.
    #[inline]
    pub fn transfer(&mut self, from: Instant, bytes: u64, least: Duration) -> Instant {
        let time = (self.costs.transaction + time_of(bytes, self.costs.rate)).max(least);
        let start = from.max(self.busy_until);
        self.busy_until = start + time;
        self.busy = self.busy.saturating_add(time);
        self.busy_until
    }

    /// For how long it was in use.
    #[must_use]
    pub const fn busy(&self) -> Duration {
        self.busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_wait_for_each_other() {
        let mut bus = Bus::new(BusCosts { rate: 100_000_000, transaction: Duration::ZERO });
        let at = Instant::from_micros;
        assert_eq!(bus.transfer(at(5), 1000, Duration::ZERO), at(15));
        assert_eq!(bus.transfer(at(7), 100, Duration::ZERO), at(16), "it waits");
        assert_eq!(bus.transfer(at(20), 100, Duration::from_micros(3)), at(23), "it is slow");
        assert_eq!(bus.busy(), Duration::from_micros(14));
    }

    #[test]
    fn a_bus_without_a_rate_is_free() {
        let mut bus = Bus::new(BusCosts::default());
        let now = Instant::from_micros(1);
        assert_eq!(bus.transfer(now, u64::MAX, Duration::ZERO), now);
    }
}
