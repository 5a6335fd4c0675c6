//! What the CLAN adapter of the paper costs.

use landfall_placement::Duration;

use crate::machine::{BusCosts, Coalescing, Costs, DmaCosts, Engines};

/// Cycles of the adapter's logic, step by step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cycles {
    /// A command of the host.
    pub command: u32,
    /// Taking a header up.
    pub header: u32,
    /// Checking it against the tables.
    pub lookup: u32,
    /// Starting the way into memory.
    pub dma: u32,
    /// Comparing the words with the CAM, and telling the host.
    pub update: u32,
    /// Serialising a packet.
    pub send: u32,
}

impl Cycles {
    /// Nothing takes any time.
    pub const NONE: Self = Self { command: 0, header: 0, lookup: 0, dma: 0, update: 0, send: 0 };

    /// With the time on the wire, 0.5 µs on each of two adapters at 33 MHz, out and in
    /// (5.2: "The latency across the NIC hardware ... is about .5 µs"); how they share it is
    /// assumed.
    pub const CLAN: Self = Self { command: 2, header: 7, lookup: 3, dma: 2, update: 2, send: 13 };
}

/// The machine of the paper: logic at 33 MHz, one DMA engine, a PCI bus of 32 bits and
/// 33 MHz. Each of its transactions waits for bridges: two of them, one in each host, are
/// most of the 0.9 µs that are "spent traversing buses and bridges" (5.2).
pub const COSTS: Costs = Costs {
    clock: 33_333_333,
    dma: DmaCosts { setup: Duration::ZERO, rate: 0, gap: Duration::ZERO },
    engines: Engines::One,
    bus: BusCosts { transaction: Duration::from_nanos(330), ..BusCosts::PCI_32_33 },
    report: 0,
    interrupts: Coalescing::After { time: Duration::ZERO, reports: 1 },
};
