#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod client;
mod error;
mod export;
#[cfg(feature = "model")]
pub mod model;
mod request;
pub mod server;
mod wire;

pub use error::{Errno, ProtocolError};
pub use export::{BASE_ALLOCATION, BlockSizes, Export, Extent, Features, Replies};
pub use request::Command;
pub use wire::LONGEST_STRING;
