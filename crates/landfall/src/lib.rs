#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! | module | what it offers | feature |
//! | --- | --- | --- |
//! | [`clan`] | Distributed shared memory with tripwires | `clan` (default) |
//! | [`stp`] | Transfers, reads and remote memory by the Scheduled Transfer Protocol | `stp` (default) |
//! | [`qpip`] | Queue pairs on real TCP, UDP and IP | `qpip` (default) |
//! | [`verbs`] | What a program asks of queue pairs, whatever carries them | `qpip`; over STP `stp`, over CLAN `clan` |
//! | [`defrag`] | Packets of a page over a wire that carries less | `defrag` (default) |
//! | `nic` | simulated adapters as a transport, alone or in front of real ones | `nic`, with any of the others |
//! | [`metrics`] | what all of them count, as text for Prometheus | |
//! | [`memory`] | registered memory, where bytes land and are read | |
//!
//! What does not live here: protocols (they are engines of their own), drivers
//! and `unsafe` code (those are in `landfall-transport`).
#![forbid(unsafe_code)]

#[cfg(feature = "clan")]
pub mod clan;
#[cfg(feature = "defrag")]
pub mod defrag;
#[cfg(any(feature = "clan", feature = "defrag", feature = "qpip", feature = "stp"))]
#[cfg_attr(
    not(all(feature = "clan", feature = "qpip", feature = "stp")),
    allow(dead_code, unreachable_pub, unused_imports, reason = "each protocol uses a part of it")
)]
mod runtime;

#[cfg(any(feature = "clan", feature = "defrag", feature = "qpip", feature = "stp"))]
pub mod metrics;

#[cfg(all(
    feature = "nic",
    any(feature = "clan", feature = "defrag", feature = "qpip", feature = "stp")
))]
pub mod nic;
#[cfg(feature = "qpip")]
pub mod qpip;
#[cfg(any(feature = "clan", feature = "defrag", feature = "stp"))]
mod security;
#[cfg(feature = "stp")]
pub mod stp;
#[cfg(feature = "qpip")]
pub mod verbs;

/// Registered memory, from `landfall-transport`.
pub mod memory {
    pub use landfall_transport::memory::{Arena, ArenaConfig, ArenaError, Memory, Rights};
}
