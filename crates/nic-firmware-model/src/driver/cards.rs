//! A card for each engine, as the driver needs it.

use crate::lanai::{Helps, Lanai, LanaiSizes, LanaiTables, StageCosts};
use crate::machine::{Adapter, BusCosts, Coalescing, Costs, Parts, Sizes};
use crate::tigon::{self, Cycles, Reports, Tables, Tigon};
use landfall_placement::Duration;

/// How fast a card is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// What it does costs nothing but the time of this machine.
    #[default]
    Free,
    /// What it does takes as long as it took on the adapter of the paper.
    Period,
}

/// Slots and rings for frames of at most so many bytes.
const fn sizes(unit: u32) -> Sizes {
    Sizes { arrivals: 64, departures: 32, frame: unit, orders: 256, reports: 512, buffers: 256 }
}

/// A Tigon-II for an engine of STP: for so many Blocks of at most so many STUs, and
/// for units of at most so many bytes.
#[must_use]
pub fn tigon(config: &stp_core::Config, unit: u32, pace: Pace) -> Adapter<'static, Tigon<'static>> {
    let (cycles, costs) = match pace {
        Pace::Free => (Cycles::default(), Costs::OFF),
        Pace::Period => (Cycles::TIGON, tigon::COSTS),
    };
    // It tells of each STU: the engine need not know how long a Block takes.
    let habits = tigon::Config { checksum: config.checksum, reports: Reports::Each, cycles };
    let blocks = config.blocks.min(1 << 16);
    let firmware = Tigon::new(Tables::owned(blocks, 1 << config.block_stus.min(12)), habits);
    Adapter::new(firmware, Parts::owned(&sizes(unit)), costs)
}

/// A LANai 9 for an engine of QPIP, for frames of at most so many bytes. The keys
/// determine where a connection is found in its index, and are nobody else's to know.
#[must_use]
pub fn lanai(keys: (u64, u64), unit: u32, pace: Pace) -> Adapter<'static, Lanai<'static>> {
    let tables = LanaiTables::owned(LanaiSizes::default(), keys);
    let (stages, helps, costs) = match pace {
        Pace::Free => (StageCosts::default(), Helps::default(), Costs::OFF),
        Pace::Period => {
            let interrupts = Coalescing::After { time: Duration::ZERO, reports: 1 };
            let (clock, bus) = (StageCosts::CLOCK, BusCosts::PCI_64_33);
            let helps = Helps { checksum: true, ..Helps::default() };
            (StageCosts::PAPER, helps, Costs { clock, bus, interrupts, ..Costs::OFF })
        }
    };
    Adapter::new(Lanai::new(tables, stages, helps), Parts::owned(&sizes(unit)), costs)
}
