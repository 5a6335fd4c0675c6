//! A DMA engine, one transfer after another; and the bus between an adapter and its host,
//! which its engines share.

use landfall_placement::{Duration, Instant};

use super::parts::{DmaCosts, time_of};

/// One DMA engine. It does one transfer at a time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dma {
    costs: DmaCosts,
    /// When it may begin the next.
    free_at: Instant,
    transfers: u64,
    bytes: u64,
}

impl Dma {
    /// An engine that is idle.
    #[must_use]
    pub const fn new(costs: DmaCosts) -> Self {
        Self { costs, free_at: Instant::ZERO, transfers: 0, bytes: 0 }
    }

    /// When it may begin the next transfer.
    #[must_use]
    pub const fn free_at(&self) -> Instant {
        self.free_at
    }

    /// Begins to move `bytes` in `pieces`, not before it is free; says when they are there.
    /// Each piece is set up by itself; together they are one transfer, a packet's.
    #[inline]
    pub fn begin(&mut self, now: Instant, bytes: u64, pieces: u32, bus: &mut Bus) -> Instant {
        let start = now.max(self.free_at);
        let pieces = pieces.max(1);
        let ready = start + self.costs.setup.saturating_mul(pieces);
        let done = bus.transfer(ready, bytes, time_of(bytes, self.costs.rate));
        self.free_at = done.max(start + self.costs.gap);
        self.transfers += u64::from(pieces);
        self.bytes += bytes;
        done
    }

    /// Moves `bytes` behind those of the last transfer, in one with it.
    #[inline]
    pub fn go_on(&mut self, now: Instant, bytes: u64, bus: &mut Bus) -> Instant {
        let start = now.max(self.free_at);
        let done = bus.go_on(start, bytes, time_of(bytes, self.costs.rate));
        self.free_at = done;
        self.bytes += bytes;
        done
    }

    /// What was under way is forgotten.
    pub fn reset(&mut self) {
        self.free_at = Instant::ZERO;
    }

    /// How many transfers it did.
    #[must_use]
    pub const fn transfers(&self) -> u64 {
        self.transfers
    }

    /// How many bytes it moved.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How long it takes at least for one transfer.
    #[must_use]
    pub const fn setup(&self) -> Duration {
        self.costs.setup
    }
}

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
        self.occupy(from, self.time_of(bytes).max(least))
    }

    /// The same for one that goes on with the last, without a transaction of its own.
    #[inline]
    pub fn go_on(&mut self, from: Instant, bytes: u64, least: Duration) -> Instant {
        self.occupy(from, time_of(bytes, self.costs.rate).max(least))
    }

    /// How long a transfer has it.
    #[must_use]
    #[inline]
    pub fn time_of(&self, bytes: u64) -> Duration {
        self.costs.transaction + time_of(bytes, self.costs.rate)
    }

    #[inline]
    fn occupy(&mut self, from: Instant, time: Duration) -> Instant {
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
    use crate::machine::BusCosts;

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

    #[test]
    fn fifty_thousand_transfers_in_a_second() {
        let gap = Duration::from_micros(20);
        let mut dma = Dma::new(DmaCosts { gap, ..DmaCosts::default() });
        let mut bus = Bus::new(BusCosts::PCI_32_33);
        let mut now = Instant::ZERO;
        let mut count = 0;
        while now < Instant::from_millis(1000) {
            let done = dma.begin(now, 1024, 1, &mut bus);
            assert!(done > now);
            now = dma.free_at();
            count += 1;
        }
        assert_eq!((count, dma.transfers(), dma.bytes()), (50_000, 50_000, 51_200_000));
    }

    #[test]
    fn two_engines_share_the_bus() {
        let costs =
            DmaCosts { setup: Duration::from_micros(1), rate: 50_000_000, ..<_>::default() };
        let (mut one, mut other) = (Dma::new(costs), Dma::new(costs));
        let mut bus = Bus::new(BusCosts::default());
        let at = Instant::from_micros;
        assert_eq!(one.begin(at(0), 500, 1, &mut bus), at(11), "set-up, and its own rate");
        assert_eq!(other.begin(at(0), 500, 1, &mut bus), at(21), "it waits for the bus");
        assert_eq!(one.begin(at(0), 0, 2, &mut bus), at(21), "two set-ups after it was free");
    }
}
