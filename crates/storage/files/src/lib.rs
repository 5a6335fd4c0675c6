#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod attributes;
mod entries;
mod error;
mod layout;
mod message;
#[cfg(feature = "model")]
pub mod model;
mod name;
mod reply;
mod request;
mod wire;

pub use attributes::{Attributes, FileKind, SetTime, Space, Time};
pub use entries::{Entries, Entry, EntryName};
pub use error::{Errno, ProtocolError};
pub use layout::Layout;
pub use name::{LONGEST_NAME, LONGEST_TARGET, Name, Target};
pub use reply::Reply;
pub use request::{Caller, Envelope, MOST_RELEASES, Release, Request, open, rename};

/// The version of this protocol that this crate speaks.
pub const VERSION: u32 = 1;

/// The node of the directory that is exported.
pub const ROOT: u64 = 1;
