//! The headers that matter here: Ethernet, IPv4, IPv6 and its fragment header.
//!
//! A frame is *parsed* ([`parse`]) into what joining needs to know, the head of a
//! first fragment is *adapted* ([`whole_head`]) to the whole packet. What does not
//! live here: transport protocols, beyond how long their header is.

pub mod ethernet;
mod exceeded;
pub mod ipv4;
pub mod ipv6;
mod parse;
mod parsed;
pub mod protocol;
mod whole;

pub use exceeded::time_exceeded;
pub use parse::parse;
pub use parsed::{Fragment, Key, Parsed, Stop};
pub use protocol::transport_len;
pub use whole::{adapt, whole_head};

#[cfg(test)]
pub(crate) mod tests;
