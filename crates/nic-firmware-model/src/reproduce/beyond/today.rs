//! Today's machines: what is put in the place of the papers' constants.

use core::time::Duration;

use super::super::exhibit::Constant;
use crate::machine::{BridgeCosts, BusCosts, Coalescing, Costs, DmaCosts, Engines};

/// Nanoseconds.
pub(super) type Nanos = f64;

/// Bits in a second on the links.
pub(super) const LINKS: [u64; 2] = [100_000_000_000, 400_000_000_000];
/// Ethernet's header, check sequence, preamble and gap.
pub(super) const ON_THE_CABLE: u32 = 38;
/// One core.
pub(super) const CLOCK: u64 = 3_000_000_000;
/// PCIe 5.0 with 16 lanes, in bytes in a second: 32 GT/s on each, 128 of 130 bits.
const LANES: u64 = 63_000_000_000;
/// Bytes around the payload of each of its packets.
const AROUND: f64 = 24.0;
/// With 256 bytes of payload in each packet.
pub(super) const BUS: u64 = LANES * 256 / 280;
/// A piece of a packet: with many requests under way, the engine begins with the next one
/// long before the first has come.
pub(super) const SETUP: Nanos = 10.0;
/// What an adapter reads from its host's memory is there so much later.
pub(super) const READ: Nanos = 500.0;
/// What is written over the bus.
pub(super) const WRITE: Nanos = 200.0;
/// Some metres, and a switch that cuts through.
pub(super) const WAY: Nanos = 300.0;
/// From an interrupt to the first line of its handler.
pub(super) const INTERRUPT: Nanos = 1_000.0;
/// Until a process that slept goes on.
pub(super) const WAKE: Nanos = 3_000.0;
/// A system call, or a doorbell.
pub(super) const CALL: Nanos = 100.0;
/// What a driver and the engine do for a frame.
pub(super) const DRIVER: Nanos = 60.0;
/// A byte that is copied.
pub(super) const COPY: Nanos = 0.1;
/// A page that is mapped elsewhere, and the other cores told.
pub(super) const REMAP: Nanos = 500.0;
/// One comparison of a content-addressable memory.
pub(super) const CAM: Nanos = 1.0;
/// 64 bytes that a processor stores to an adapter, joined to one transfer.
pub(super) const STORE: Nanos = 4.0;

/// From the memory of one host to that of another, beside what is busy for it.
pub(super) const ONE_WAY: Duration = Duration::from_nanos((READ + WAY + WRITE) as u64);

/// The bus.
pub(super) const PCIE: BusCosts = BusCosts { rate: BUS, transaction: Duration::ZERO };

/// The machine of an adapter.
pub(super) const MACHINE: Costs = Costs {
    clock: CLOCK,
    dma: DmaCosts { setup: Duration::from_nanos(SETUP as u64), rate: 0, gap: Duration::ZERO },
    engines: Engines::Two,
    bus: PCIE,
    cut_through: 0,
    bridge: BridgeCosts::NONE,
    report: 0,
    interrupts: Coalescing::After { time: Duration::ZERO, reports: 1 },
};

/// How long a byte is on the bus.
pub(super) fn on_the_bus(bytes: f64) -> Nanos {
    bytes * 1e9 / BUS as f64
}

/// How long bytes are that a processor stores, this many at a time.
pub(super) fn stored_over_the_bus(bytes: f64, each: f64) -> Nanos {
    (bytes + (bytes / each).ceil() * AROUND) * 1e9 / LANES as f64
}

/// How long bytes are on a link.
pub(super) fn on_the_link(bytes: f64, link: u64) -> Nanos {
    bytes * 8e9 / link as f64
}

/// What the machines are taken to be.
pub(super) fn constants() -> Vec<Constant> {
    let (given, assumed) = (Constant::given, Constant::assumed);
    let ours = "as machines of today are, roughly";
    vec![
        given(
            "processor of an adapter, one core",
            CLOCK as f64 / 1e9,
            "GHz",
            "asked: one core of 3 GHz",
        ),
        given(
            "bus",
            BUS as f64 / 1e9,
            "GB/s",
            "PCIe 5.0 x16: 32 GT/s, 128b/130b, 24 bytes around 256 of payload",
        ),
        assumed(
            "DMA set-up, each piece",
            SETUP,
            "ns",
            "100 million descriptors in a second, as many requests are under way",
        ),
        assumed(
            "an adapter's read over the bus, beside its bytes",
            READ,
            "ns",
            "half a microsecond and more is measured on PCIe 3 (Neugebauer and others, \
             SIGCOMM 2018)",
        ),
        assumed("a write over the bus, beside its bytes", WRITE, "ns", ours),
        assumed("some metres and a switch that cuts through", WAY, "ns", ours),
        assumed("interrupt", INTERRUPT, "ns", ours),
        assumed("waking a process", WAKE, "ns", ours),
        assumed("system call, or doorbell", CALL, "ns", ours),
        assumed(
            "driver and engine, each frame",
            DRIVER,
            "ns",
            "the engines' own benchmarks take tens of nanoseconds for a unit",
        ),
        assumed("copy, each byte", COPY, "ns", "10 GB/s from and to memory"),
        assumed("change of a page table, each page", REMAP, "ns", ours),
        assumed("comparison of a CAM", CAM, "ns", "one in each cycle, at 1 GHz"),
        assumed("64 bytes stored to an adapter", STORE, "ns", "16 GB/s, joined by the core"),
    ]
}
