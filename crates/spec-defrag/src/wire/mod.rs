//! What joining has to know of a frame, and makes of it.
//!
//! A frame is *parsed* ([`parse`]) into what joining needs to know, the head of a
//! first fragment is *adapted* ([`whole_head`]) to the whole packet. The headers are
//! those of the crate `landfall-inet`. It reads as a host does; this reads as a link
//! below one: what is no fragment, or is odd, is the host's to refuse, and passes.

mod exceeded;
mod parse;
mod whole;

pub use exceeded::time_exceeded;
pub use landfall_inet::Fragment;
pub use landfall_inet::reassembly::Key;
pub use parse::{Parsed, Stop, parse, transport_len};

pub(crate) use parse::Walk;
pub use whole::{adapt, whole_head};

#[cfg(test)]
pub(crate) mod tests;
