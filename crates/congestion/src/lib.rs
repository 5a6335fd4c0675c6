//! Congestion control: how many bytes may be under way on a path that others share.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`window`] | the [`Window`]: what arrived, what was lost, how much may be under way; how much was lost lately |
//! | [`rtt`] | round trips and the time-out (RFC 6298) |
//! | [`config`] | what can be chosen |
//! | `delay` | what round trips say about queues, and whether it helps to yield to them |
//!
//! The algorithm, its sources, and what it has of RFC 8085 are in the README.
//!
//! What does not live here: detection of losses, timers, packets, any protocol.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod config;
mod delay;
pub mod rtt;
mod ticks;
pub mod window;

pub use config::Config;
pub use rtt::RttEstimator;
pub use window::{Arrived, Phase, Window};
