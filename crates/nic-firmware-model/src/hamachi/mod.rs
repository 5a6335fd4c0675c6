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
//! | `costs` | what the adapter of the paper costs |
//! | `list` | what driver and adapter say to each other |
//! | `receive` | [`Hamachi`]: the receive processor |
//! | `steer` | what the paper hoped for: the adapter reads headers, and chooses the descriptor |
//! | `host` | [`Driver`] over the engine's receiver, its memory, and [`Station`]: all of it |
//! | `node` | a station in a simulated network |
//! | `model` | the same without an adapter, faults, and the comparison of the two |
//!
//! One liberty is taken. The chip goes on with the next *buffer* of its ring, so that a
//! frame which ends in its head buffer leaves the body buffer to the next frame. No frame
//! of an Ethernet is that short, and here a frame ends the descriptor that it began.

mod costs;
mod list;
mod receive;
mod steer;

pub use costs::{COSTS, DESCRIPTOR, TIME_OUT};
pub use list::{Command, Report};
pub use receive::{Counters, Entry, Hamachi, Token, WhenOut};
pub use steer::{OpenPage, Opens};

#[cfg(feature = "std")]
mod host;
#[cfg(feature = "model")]
pub mod model;
#[cfg(feature = "std")]
mod node;

#[cfg(feature = "std")]
pub use host::{
    Chip, Driver, DriverConfig, DriverCounters, HostRam, Loader, Ram, Room, Station, Tables,
};
#[cfg(feature = "std")]
pub use node::HamachiNode;
