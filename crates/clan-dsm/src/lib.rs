#![doc = include_str!("../README.md")]
//!
//! What does not live here: memory, I/O, clocks, randomness.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod address;
mod config;
mod cookie;
pub mod discovery;
mod endpoint;
mod error;
mod event;
mod events;
mod grants;
mod link;
mod memory;
#[cfg(any(test, feature = "model"))]
pub mod model;
mod multicast;
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
    Body, ConnectRequest, EndpointState, EndpointTable, Notice, OutOfBand, OutOfBandKind, Outgoing,
    Port, PortAddress,
};
pub use error::{Ended, Error, Reason};
pub use event::{Event, GroupKey};
pub use events::Source;
pub use landfall_placement::ConfigError;
pub use nic::{DmaRequest, GroupWrite, Nic, Stats};
pub use offload::Action;
