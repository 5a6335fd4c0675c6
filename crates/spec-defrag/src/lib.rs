//! Speculative defragmentation as a sans-IO state machine: a bigger packet than the
//! wire has, without the last copy.
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

mod buffers;
pub mod cut;
mod memory;
#[cfg(feature = "model")]
pub mod model;
mod packet;
pub mod wire;

pub use buffers::{BufferId, Buffers, LARGE, LEAD};
pub use memory::{Memory, Pieces};
pub use packet::{Body, Head, ListId, Packet, Way};
