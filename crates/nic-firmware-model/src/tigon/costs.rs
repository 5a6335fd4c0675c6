//! What the Tigon-II of the paper costs.

use landfall_placement::Duration;

use crate::machine::{BusCosts, Coalescing, Costs, DmaCosts, Engines};

/// Cycles of the firmware, handler by handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cycles {
    /// A command of the host.
    pub command: u32,
    /// Taking a frame up, and reading its header.
    pub header: u32,
    /// Checking it against the tables.
    pub lookup: u32,
    /// Setting the DMA engine up.
    pub dma: u32,
    /// Counting what has landed.
    pub update: u32,
    /// Sending a frame.
    pub send: u32,
    /// Summing 16 bytes of payload.
    pub sum_16: u32,
}

impl Cycles {
    /// Assumed, not the paper's: a few dozen instructions each. A frame takes less
    /// than its DMA does, so that the paper's rows do not depend on it.
    pub const TIGON: Self =
        Self { command: 120, header: 60, lookup: 120, dma: 80, update: 60, send: 150, sum_16: 12 };

    /// Summing so many bytes.
    #[must_use]
    pub const fn sum(&self, bytes: usize) -> u32 {
        self.sum_16.saturating_mul((bytes / 16) as u32 + 1)
    }
}

/// The machine of the paper: 88 MHz, "about 50000 packets/s" by DMA (2.3,
/// Benchmarks), a 32-bit PCI bus. The set-up of a transfer is fitted: with it, packets
/// of a header and a page reach the 98 MB/s of Table 1.
pub const COSTS: Costs = Costs {
    clock: 88_000_000,
    dma: DmaCosts { setup: Duration::from_nanos(3_600), rate: 0, gap: Duration::from_micros(20) },
    engines: Engines::Two,
    bus: BusCosts::PCI_32_33,
    report: 0,
    interrupts: Coalescing::After { time: Duration::from_micros(20), reports: 8 },
};
