//! What things cost on a machine: the one table that a model of an adapter fills in.

use landfall_placement::Duration;

use super::bus::BusCosts;
use super::interrupt::Coalescing;

/// What a DMA engine needs beside the bus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DmaCosts {
    /// Before the first byte of each piece moves.
    pub setup: Duration,
    /// Bytes in a second; 0: as fast as the bus.
    pub rate: u64,
    /// The least time from the start of one transfer to that of the next, of however
    /// many pieces: 20 µs where an engine does 50,000 packets in a second.
    pub gap: Duration,
}

/// How many DMA engines an adapter has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engines {
    /// One for each direction.
    #[default]
    Two,
    /// One for both.
    One,
}

/// What things cost. All zero: everything happens at the same instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Cycles of the processor in a second; 0: they take no time.
    pub clock: u64,
    /// What a DMA engine needs.
    pub dma: DmaCosts,
    /// How many there are.
    pub engines: Engines,
    /// The bus between adapter and host; every DMA engine waits for it.
    pub bus: BusCosts,
    /// How many bytes a report has that is written to the host; 0: it comes along
    /// with the last payload, and costs nothing.
    pub report: u32,
    /// When the host is interrupted.
    pub interrupts: Coalescing,
}

impl Costs {
    /// Everything is free, and the host sees every report at once. Only here is
    /// it defined that an adapter is bit-exact.
    pub const OFF: Self = Self {
        clock: 0,
        dma: DmaCosts { setup: Duration::ZERO, rate: 0, gap: Duration::ZERO },
        engines: Engines::Two,
        bus: BusCosts { rate: 0, transaction: Duration::ZERO },
        report: 0,
        interrupts: Coalescing::Watched,
    };
}

/// How long so much of something takes, where so much is done in a second.
/// What has no rate takes no time.
#[must_use]
#[inline]
pub fn time_of(amount: u64, per_second: u64) -> Duration {
    let nanos = amount.saturating_mul(1_000_000_000).checked_div(per_second);
    Duration::from_nanos(nanos.unwrap_or(0))
}
