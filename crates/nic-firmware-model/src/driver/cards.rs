//! A card for each engine, as the driver needs it.

use crate::clan::{self, Clan};
use crate::hamachi::{self, Hamachi, WhenOut};
use crate::lanai::{Helps, Lanai, LanaiSizes, LanaiTables, StageCosts};
use crate::machine::{Adapter, BusCosts, Coalescing, Costs, Parts, Sizes};
use crate::tigon::{self, Cycles, Reports, Tables, Tigon};
use clan_dsm::HostId;
use clan_dsm::offload::Secret;
use landfall_placement::{Duration, Random};

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

/// A CLAN adapter for an engine of CLAN's on a network that loses, for frames of at most so
/// many bytes. It takes nothing off the engine: its tables stay empty, and need no secret.
#[must_use]
pub fn clan(host: HostId, unit: u32, pace: Pace) -> Adapter<'static, Clan<'static>> {
    let (cycles, costs) = match pace {
        Pace::Free => (clan::Cycles::NONE, Costs::OFF),
        Pace::Period => (clan::Cycles::CLAN, clan::COSTS),
    };
    let entries = clan::Entries { apertures: 1, groups: 8, tripwires: 1, cam: 1 };
    let tables = clan::Tables::owned(&entries, Secret::new(&mut Random::new([0; 32])));
    let firmware = Clan::new(tables, clan::Config { cycles, ..clan::Config::network(host) });
    Adapter::new(firmware, Parts::owned(&sizes(unit)), costs)
}

/// A Hamachi whose lists have so many descriptors, for frames of at most so many bytes. It
/// loses what finds no descriptor, as the chip of the paper does.
#[must_use]
pub fn hamachi(entries: u16, frame: u32, pace: Pace) -> Adapter<'static, Hamachi<'static>> {
    let costs = match pace {
        Pace::Free => Costs::OFF,
        Pace::Period => hamachi::COSTS,
    };
    let tables = hamachi::Tables { entries: entries.into(), opens: 0 };
    // The list and its reports fit; nothing is sent, and nothing goes whole to the host.
    let sizes = Sizes { departures: 1, reports: 1024, buffers: 0, ..sizes(frame) };
    Adapter::new(tables.chip(WhenOut::Lose), Parts::owned(&sizes), costs)
}
