#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod client;
pub mod copy;
pub mod device;
#[cfg(feature = "files")]
pub mod files;
#[cfg(feature = "mount")]
mod fuse;
#[cfg(feature = "mount")]
pub mod mount;
#[cfg(feature = "command")]
pub mod program;
pub mod scsi;
pub mod server;
pub mod stream;
pub mod uri;

pub use landfall_nbd::{BlockSizes, Command, Errno, Export, Extent, Features, Replies};
#[cfg(feature = "tls")]
pub use rustls;
#[cfg(feature = "family")]
pub use sockets_compat;
