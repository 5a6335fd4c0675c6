//! Every header: checked views of what arrives, writers for what leaves.
//!
//! | module | what it knows |
//! | --- | --- |
//! | [`packet`] | a frame read up to what IP carries: [`parse`], [`Packet`], [`Ip`] |
//! | [`envelope`] | a frame written up to what IP carries: [`Envelope`] |
//! | [`ethernet`], [`arp`] | stations |
//! | [`ipv4`], [`ipv6`], [`fragment`], [`protocol`] | packets and their pieces |
//! | [`pseudo`] | what checksums cover beside their own bytes |
//! | [`tcp`], [`tcp_options`], [`udp`] | segments and datagrams |
//! | [`icmp`], [`icmp4`], [`icmp6`], [`ndp`] | echoes, errors, neighbours |
//!
//! Reading is total: any bytes are read or refused, none make it panic, and the
//! work is bounded. What is not at hand but in the unit is asked for
//! ([`Stop::NeedHead`]). The bytes of a header are one `#[repr(C)]` struct
//! without alignment, so that a view costs a length check.
//!
//! What does not live here: any state, and any decision that needs it: whose
//! address it is, whether a sequence number fits, whether to answer. That is
//! `ip`, `tcp` and `adapter`.

pub mod arp;
pub mod envelope;
pub mod ethernet;
pub mod fragment;
pub mod icmp;
pub mod icmp4;
pub mod icmp6;
pub mod ipv4;
pub mod ipv6;
pub mod ndp;
pub mod packet;
pub mod protocol;
pub mod pseudo;
pub mod tcp;
pub mod tcp_options;
pub mod udp;

#[cfg(test)]
mod tests;

pub use envelope::Envelope;
pub use ethernet::Mac;
pub use fragment::Fragment;
pub use packet::{Content, Ip, Layer, Packet, Problem, ProblemCode, Stop, is_host, parse};
pub use tcp::{Flags, Tcp};
pub use tcp_options::{Blocks, Options};
