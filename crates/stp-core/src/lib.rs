#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! | module | what lives there |
//! | --- | --- |
//! | `endpoint` | [`Endpoint`]: the engine, what its user calls and what its driver calls |
//! | `context` | what every part is handed: time, configuration, counters, events |
//! | `network` | paths, links and connections; control messages |
//! | `connection` | set-up, tear-down, keep-alive, links |
//! | `send`, `receive` | Transfers, from both ends; the schedule of grants; recovery |
//! | `region` | persistent memory: Put, Get, FetchOp |
//! | [`offload`] | the receive path that an adapter would run, without `alloc` |
//! | [`wire`] | the Schedule Header and every operation |
//! | `link`, `path` | what is granted over a link, what waits to be sent on a path |
//! | `issued` | which grant of a link Data answers |
//! | `preference` | who goes first, and who gets more |
//! | `usage` | how much of its grants a sender uses, and how much it may have beside others |
//! | `mirror` | which Blocks adapters have, and what they must be told |
//! | `config`, `event`, `error`, `ids`, `stats` | what the user chooses, is told, did wrong, names and counts |
//!
//! What does not live here: memory, I/O, clocks, randomness.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod config;
mod connection;
mod context;
mod endpoint;
mod error;
mod event;
mod ids;
mod issued;
mod link;
mod mirror;
#[cfg(feature = "model")]
pub mod model;
mod network;
pub mod offload;
mod path;
mod preference;
mod receive;
mod region;
mod seen;
mod send;
mod size;
mod stats;
mod ticket;
mod usage;
pub mod wire;

pub use config::{Config, Policy};
pub use connection::{Admission, Connect, ConnectionLink};
pub use endpoint::Endpoint;
pub use error::{Ended, Error};
pub use event::Event;
pub use ids::{
    ConnectionId, ExposedId, OperationId, PeerRequestId, ReadId, ReceiveId, RemoteRegion,
    RequestId, Rights, SendId,
};
/// How a window yields to congestion: what [`Config::congestion`] has.
pub use landfall_congestion::Config as CongestionConfig;
pub use landfall_placement::ConfigError;
pub use preference::Priority;
pub use region::PutOptions;
pub use stats::Stats;
