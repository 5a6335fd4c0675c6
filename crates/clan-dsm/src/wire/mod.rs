//! What stands on the wire, bit by bit. No state lives here.

pub mod command;
pub mod frame;

#[cfg(test)]
mod vectors;

pub use command::{Command, ReplyTo};
pub use frame::{Entry, Frame, FrameFlags, FrameHeader, FrameKind, Incomplete};
