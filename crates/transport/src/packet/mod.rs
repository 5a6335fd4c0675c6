//! AF_PACKET: frames of an Ethernet interface, with the segmentation and
//! checksum offloads of the device, received straight into guessed spans.
//!
//! | [`Framing`] | who writes the link header | peers | offloads |
//! | --- | --- | --- | --- |
//! | [`Framing::Ethernet`] | the engine: its units are whole frames | [`Peer::Unaddressed`](landfall_placement::Peer::Unaddressed) | TCP segmentation and checksums, both ways |
//! | [`Framing::Payload`] | the kernel: units are what follows the header | [`Peer::Ethernet`](landfall_placement::Peer::Ethernet) | none: devices know TCP and UDP only; many frames move with one call |
//!
//! How the kernel behaves here was found by probing and by reading
//! `net/packet/af_packet.c`, and each finding has a test in
//! `tests/packet_rules.rs`:
//!
//! - a socket that is opened with a protocol hears every interface until it is
//!   bound: it is opened with none, gets its filter, and is bound then;
//! - the send address must carry the true ethertype, or segmentation fails;
//! - `PACKET_QDISC_BYPASS` refuses packets that need segmentation, so it is
//!   for paths without offloads only;
//! - frames of a peer on the same machine have unfinished checksums. They
//!   never crossed a wire, so they count as verified;
//! - a VLAN tag is not in the frame but beside it, or gone. The path is the
//!   untagged network: frames of a VLAN are refused; a mere priority tag
//!   (VLAN 0) changes nothing;
//! - on a veth super-packets pass whole, and MTU-sized frames that its
//!   receiver joins may come out of order: the last one, which has PSH, first.
//!
//! Ethernet pads frames to 60 bytes. The padding is part of the unit: what an
//! engine puts into short units has to say its own length.
//!
//! Frames that are not for this path (of a VLAN, to another station, cut
//! short) are counted as malformed and never reach the engine.
//!
//! The protocols of the kernel see every frame too, unless it is for a station
//! that the kernel is not: see [`Filter::station`]. On its own IP address it
//! answers TCP with resets, and each frame to any address costs it a look-up:
//! a quarter of a round trip.
//!
//! What does not live here: IP addresses, ARP, routes.

mod address;
mod config;
mod control;
mod driver;
mod filter;
mod interface;
mod link;
mod message;
mod receive;
mod room;
mod send;
mod several;
mod socket;
mod vnet;

pub(crate) use address::LinkAddress;
pub(crate) use interface::{
    Found, Request as InterfaceRequest, ask as ask_interface, find as find_interface, mtu_of,
    named as named_interface,
};
pub(crate) use link::whole_frames;
pub(crate) use room::{Failure, Room};
pub(crate) use socket::{
    ALL_PROTOCOLS, LEAST_ETHERTYPE, attach_filter, bind, grow_buffers, join as join_interface,
    set_option, why_no_socket,
};
pub(crate) use vnet::{VNET_HEADER, read as read_vnet, write as write_vnet};
#[cfg(feature = "io-uring")]
pub(crate) use {
    link::Link,
    message::{ReceiveHeader, SendHeader},
    receive::{Received, Receiver},
    socket::{Opened, open},
};

pub use config::{Framing, Interface, PacketConfig};
pub use driver::PacketDriver;
pub use filter::Filter;

/// The header of an Ethernet frame: destination, source, ethertype.
pub(crate) const ETHERNET_HEADER: usize = 14;
