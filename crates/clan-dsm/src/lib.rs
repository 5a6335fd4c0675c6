//! The CLAN network interface as a sans-IO state machine: distributed shared
//! memory with tripwires.
//!
//! The address in a packet *is* the place of its bytes, and a tripwire tells
//! when a chosen place was touched. Moving data and synchronising with it are
//! two things: the sender writes, and the receiver decides which of the writes
//! it wants to hear of.
//!
//! The words are in the
//! [glossary](https://github.com/landfall-rs/landfall/blob/main/docs/glossary.md).
//!
//! What does not live here: memory, I/O, clocks, randomness.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod address;
mod config;
mod cookie;
mod endpoint;
mod error;
mod event;
mod events;
mod link;
mod memory;
#[cfg(any(test, feature = "model"))]
pub mod model;
pub mod native;
mod nic;
pub mod offload;
mod transfer;
pub mod tripwire;
pub mod wire;

pub use address::{
    Address, ApertureId, BarrierId, DmaId, EndpointId, HostId, Key, Kind, LinkId, OperationId,
    ReadId, TripsetId, TripwireId, WHOLE, WORD, WindowId, WriteId,
};
pub use config::{Config, NativeConfig};
pub use cookie::{Access, Cookie, NoCookie, Rights};
pub use endpoint::{
    Body, ConnectRequest, EndpointState, Notice, OutOfBand, OutOfBandKind, Port, PortAddress,
};
pub use error::{Ended, Error, Reason};
pub use event::Event;
pub use events::Source;
pub use nic::{DmaRequest, GroupWrite, Nic, Stats};
pub use offload::Action;
