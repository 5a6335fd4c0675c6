//! The reliable FIFO between two hosts over a path that loses, repeats, mixes
//! up and damages frames.

mod cargo;

#[allow(unused_imports)] // Until the adapter is there.
pub(crate) use cargo::{Cargo, Room};
