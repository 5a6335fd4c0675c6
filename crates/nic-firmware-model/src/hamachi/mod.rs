//! The Hamachi of speculative defragmentation: two descriptor DMA processors that know
//! nothing of any protocol.
//!
//! The receive processor fills the buffers of the next descriptor with the next frame,
//! whatever it is, and says how long it was (End.Of.Packet). The driver loaded a list of
//! them before, by guess: head, body, and a buffer for what is longer than was guessed.
//! When the list is used up, frames are lost. One interrupt stands for a burst. The
//! transmit processor is the machine's: it gathers a frame from its head and its spans,
//! a descriptor for each.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `receive` | [`Hamachi`]: the receive processor, and what driver and adapter say to each other |
//! | `steer` | what the paper hoped for: the adapter reads headers, and chooses the descriptor |
//! | `loader` | [`Loader`]: what loads the lists of a Hamachi |
//! | `ram` | [`Ram`]: the memory that driver and adapter name |
//! | `station` | [`Driver`], a loader with the engine's receiver; [`Station`], a host with its adapter; [`HamachiNode`], one in a simulated network |
//! | `model` | the same without an adapter, faults, and the comparison of the two |
//!
//! One liberty is taken. The chip goes on with the next *buffer* of its ring, so that a
//! frame which ends in its head buffer leaves the body buffer to the next frame. No frame
//! of an Ethernet is that short, and here a frame ends the descriptor that it began.

mod receive;
mod steer;

use landfall_placement::Duration;

use crate::machine::{BusCosts, Coalescing, Costs, DmaCosts};

pub use receive::{Command, Counters, Entry, Hamachi, Report, Token, WhenOut};
pub use steer::{OpenPage, Opens};

#[cfg(feature = "std")]
mod loader;
#[cfg(feature = "model")]
pub mod model;
#[cfg(feature = "std")]
mod ram;
#[cfg(feature = "std")]
mod station;

#[cfg(feature = "std")]
pub use loader::{DriverConfig, DriverCounters, HostRam, Loader};
#[cfg(feature = "std")]
pub use ram::{Ram, Room};
#[cfg(feature = "std")]
pub use station::{Chip, Driver, HamachiNode, Station, Tables};

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
