#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! | module | what lives there |
//! | --- | --- |
//! | `receiver` | [`Receiver`]: posts places by guess, checks bursts, cleans up, delivers |
//! | `speculator`, `predict` | the guesses, for any format; what is learned for them |
//! | [`offload`], [`format`](mod@format) | the check of descriptors; what a header has to say |
//! | [`reassembly`] | a reassembler by itself: frames in, packets out |
//! | `sources` | what is kept for each sender |
//! | [`conventional`] | the conventional path of the receiver |
//! | [`cut`] | the sender's part |
//! | [`admission`] | who may send fast |
//! | [`wire`] | headers: read, adapted, made |
//! | `buffers`, `memory`, `memory`, `shape` | the words that all of them use |
//!
//! What does not live here: memory, I/O, clocks, randomness.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod admission;
mod buffers;
pub mod conventional;
pub mod cut;
pub mod format;
mod memory;
#[cfg(feature = "model")]
pub mod model;
pub mod offload;
mod predict;
pub mod reassembly;
mod receiver;
mod shape;
mod sources;
mod speculator;
pub mod wire;

pub use buffers::{BufferId, Buffers, LARGE, LEAD};

pub use landfall_tables::HashSecret;
pub use memory::{
    Body, Bunch, Descriptor, HEAD_SLOT, Head, ListId, MappedFrame, Memory, Packet, Pieces,
    ReassemblyPath,
};
pub use predict::{Observed, Prediction};
pub use receiver::{Areas, Config, ConfigError, Foreign, Lend, MOST_BURST, Receiver, Stats};
pub use shape::{HeadLens, PayloadLens, Shape};
pub use speculator::{Outcome, Page, Speculator};
