#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! | module | what it says |
//! | --- | --- |
//! | [`engine`] | the [`Engine`] trait: the whole contract between protocol and I/O |
//! | [`span`] | which bytes of which region: those of a unit, or of a whole message |
//! | [`mod@unit`] | what arrives, where it belongs, and that it is there; what leaves |
//! | [`mod@run`] | units that travel together |
//! | [`path`] | over which path, to whom, within which limits |
//! | [`refusal`] | why something was not accepted, counted |
//! | [`mod@counters`] | counters that know their names |
//! | [`time`] | virtual time |
//! | [`serial`] | numbers that wrap |
//! | [`assume`] | what an engine knows to be there |
//! | [`checksum`] | the Internet checksum |
//! | [`mod@crc32c`] | CRC-32C |
//! | [`config`] | values of a configuration that are out of their range |
//! | [`mod@trace`] | what engines do, told while they work |
//! | [`random`] | numbers that nobody else can guess, from a seed |
//!
//! What does not live here: memory itself, system calls, any protocol.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod assume;
pub mod checksum;
pub mod config;
pub mod counters;
pub mod crc32c;
mod delegate;
pub mod engine;
pub mod path;
pub mod random;
pub mod refusal;
pub mod run;
pub mod serial;
pub mod span;
pub mod time;
pub mod trace;
pub mod unit;

pub use assume::assumed;
pub use checksum::InternetSum;
pub use config::{ConfigError, ConfigValue};
pub use counters::Counter;
pub use engine::{Engine, Timeout};
pub use path::{Ecn, Offloads, PathId, PathLimits, PathState, Peer};
pub use random::{Random, Seed};
pub use refusal::{Refusal, Refusals};
pub use run::{Heads, RunPlacement, RunRoom, SealedRun, TransmitRun, UnitRun, Unsealed};
pub use serial::{Serial16, Serial32};
pub use span::{Area, Full, RegionId, Span, Spans};
pub use time::{Duration, Instant};
pub use unit::{
    Check, Deposit, Guess, Landing, Placement, Segment, SegmentKind, SumSlot, Ticket, Transmit,
    Unit, WordFunction, WordOp, WordWidth,
};
