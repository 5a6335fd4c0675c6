//! The headers that matter here: Ethernet, IPv4, IPv6 and its fragment header.
//!
//! A frame is *parsed* ([`parse`]) into what joining needs to know, the head of a
//! first fragment is *adapted* ([`whole_head`]) to the whole packet. What does not
//! live here: transport protocols, beyond how long their header is.

mod parsed;

pub use parsed::{Fragment, Key, Parsed, Stop};
