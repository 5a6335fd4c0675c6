//! What the adapter of the paper costs.

use landfall_placement::Duration;

use crate::machine::{BusCosts, Coalescing, Costs, DmaCosts};

/// A descriptor is read over the bus before its buffer is filled.
pub const DESCRIPTOR: Duration = Duration::from_nanos(200);
/// So long after the first frame the driver looks at what has landed, where the list is
/// not used up before: longer than a list takes on the cable.
pub const TIME_OUT: Duration = Duration::from_micros(200);

/// The machine of the paper: descriptors that are fetched over a bus of 32 bits and 33 MHz,
/// and one interrupt for a burst.
pub const COSTS: Costs = Costs {
    dma: DmaCosts { setup: DESCRIPTOR, rate: 0, gap: Duration::ZERO },
    bus: BusCosts::PCI_32_33,
    interrupts: Coalescing::After { time: TIME_OUT, reports: u32::MAX },
    ..Costs::OFF
};
