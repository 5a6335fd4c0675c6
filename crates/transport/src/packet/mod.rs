//! AF_PACKET: frames of an Ethernet interface, with the segmentation and
//! checksum offloads of the device, received straight into guessed spans.
//!
//! | [`Framing`] | who writes the link header | peers | offloads |
//! | --- | --- | --- | --- |
//! | [`Framing::Ethernet`] | the engine: its units are whole frames | [`Peer::Unaddressed`](landfall_placement::Peer::Unaddressed) | TCP segmentation and checksums, both ways; many frames move with one call |
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
//! Several frames move with one call, each by a list of its own: super-packets too. How long
//! a whole frame will be nobody knows, so one list is posted for each place that is guessed,
//! and one for the next place where the first is full then. After a miss there is one list a
//! call for a while: what lands in a wrong place is copied twice, and a call costs less.
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

mod driver;
pub(crate) mod fanout;
mod filter;
mod link;
mod message;
mod receive;
mod several;
mod single;
mod socket;
mod step;
mod vnet;

use std::fmt;

pub use driver::PacketDriver;
pub(crate) use fanout::{
    Headers, SpreadBy, addresses_program, empty, flow_program, member_of_socket,
    program_of_sockets, spread,
};
pub use filter::Filter;
pub(crate) use filter::{BEFORE_FRAGMENT, FRAGMENT};
pub(crate) use link::{Frame, Link, whole_frames};
pub(crate) use message::LinkAddress;
#[cfg(feature = "io-uring")]
pub(crate) use message::ReceiveHeader;
pub(crate) use message::SendHeader;
pub(crate) use receive::Received;
#[cfg(feature = "io-uring")]
pub(crate) use receive::{Outcomes, Receiver};
pub(crate) use single::receive_frame;
pub(crate) use socket::{
    ALL_PROTOCOLS, Failure, Found, LEAST_ETHERTYPE, Request as InterfaceRequest, Room,
    ask as ask_interface, attach_filter, attach_spread, bind, exists as interface_exists,
    find as find_interface, grow_buffers, join as join_interface, mtu_of, named as named_interface,
    set_option, why_no_socket,
};
pub(crate) use socket::{Opened, open};
pub(crate) use vnet::{
    VNET_HEADER, read as read_vnet, read_sum, write as write_vnet, write_sum,
    write_udp as write_vnet_udp,
};

/// The header of an Ethernet frame: destination, source, ethertype.
pub(crate) const ETHERNET_HEADER: usize = 14;

/// An interface of the network namespace that the opening thread is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interface {
    /// By its name.
    Name(String),
    /// By its index.
    Index(u32),
}

impl From<&str> for Interface {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

impl From<u32> for Interface {
    fn from(index: u32) -> Self {
        Self::Index(index)
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Index(index) => write!(f, "number {index}"),
        }
    }
}

/// What a unit is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Framing {
    /// A whole frame that begins with its Ethernet header, written and read by
    /// the engine.
    Ethernet {
        /// Which frames are for the engine; the kernel looks.
        filter: Filter,
    },
    /// What follows the Ethernet header of frames of one ethertype; the kernel
    /// writes and reads the header.
    Payload {
        /// The protocol by which the frames are told from others.
        ethertype: u16,
    },
}

/// How a path over an interface is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketConfig {
    /// The interface.
    pub interface: Interface,
    /// What a unit is.
    pub framing: Framing,
    /// Leave segmentation and checksums to the device, where the kernel can.
    /// Frames of one ethertype without an offload get none either way.
    pub offload: bool,
    /// Pass the queueing discipline of the interface by: a little less latency,
    /// no fairness towards others. Not together with `offload`.
    pub bypass_queue: bool,
    /// How large the kernel's socket buffers shall be.
    pub socket_buffer: usize,
    /// A group of stations that the interface is to hear, beside what it hears anyway.
    pub group: Option<[u8; 6]>,
}

impl PacketConfig {
    /// A path over this interface, with all offloads.
    #[must_use]
    pub fn new(interface: impl Into<Interface>, framing: Framing) -> Self {
        Self {
            interface: interface.into(),
            framing,
            offload: true,
            bypass_queue: false,
            socket_buffer: 32 << 20,
            group: None,
        }
    }

    /// The same without offloads: frames of the MTU, sums by the driver.
    #[must_use]
    pub fn without_offload(self) -> Self {
        Self { offload: false, ..self }
    }

    /// Are super-packets and checksums the device's?
    fn wants_offload(&self) -> bool {
        self.offload && matches!(self.framing, Framing::Ethernet { .. })
    }
}
