//! UDP by a packet socket: datagrams whose headers are written here, many behind one header,
//! for the kernel or the device to cut (`VIRTIO_NET_HDR_GSO_UDP_L4`, Linux 6.2).
//!
//! The other end is anybody who speaks UDP, and needs nothing for it. Payloads go from and to
//! their places as with the [UDP driver](crate::udp); what is left out is the way through the
//! kernel's IP and UDP, and its routing of each call.
//!
//! | part | what it is |
//! | --- | --- |
//! | `driver` | [`UdpPacketDriver`]: the turn, by system calls; the one behind a ring is in `uring` |
//! | `receive`, `send` | the two halves of a path, without their calls |
//! | `frame` | the headers: written, and read and checked |
//! | `neighbours` | which station a peer is behind |
//! | `netlink` | asks the kernel for routes and neighbours |
//! | `socket` | the two sockets of a path |
//!
//! A path has two sockets. The packet socket carries the datagrams. A UDP socket of the
//! kernel holds the port, so that nobody else gets it and nobody is told that it is closed;
//! a filter keeps its queue empty. It has `UDP_GRO` on, for the kernel joins frames of those
//! ports only whose socket takes joined ones.
//!
//! Where a peer's station is not known (yet), where its route leads over another interface,
//! and once every few seconds for a neighbour that the kernel has not confirmed lately, a
//! call goes through the kernel's socket. So the kernel resolves and keeps the neighbours,
//! by ARP and by neighbour discovery, and its routing table stays the one that counts.
//!
//! What came another way than over the interface is not heard: peers on this host are for
//! [`udp`](crate::udp). Frames are refused, and counted as malformed, that are fragments,
//! have options or extension headers, belong to a VLAN, are to another station, are shorter
//! than they say, or are from an address that nobody has there; as corrupt, if the checksum
//! is wrong. Routers and devices may leave that unchecked: then it is summed here, and
//! counted in `bytes_summed`.

mod driver;
mod frame;
mod neighbours;
mod netlink;
mod receive;
mod send;
mod socket;

use std::net::SocketAddr;

pub use driver::UdpPacketDriver;
#[cfg(feature = "io-uring")]
pub(crate) use receive::FrameReceiver;
#[cfg(feature = "io-uring")]
pub(crate) use send::{Exit, ExitHeader, NotSent, SendSocket, UnitGroup};
#[cfg(feature = "io-uring")]
pub(crate) use socket::{Opened, open as open_sockets};

use crate::packet::Interface;
use crate::udp::UdpConfig;

/// How a path is opened.
///
/// ```
/// use landfall_transport::packet::Interface;
/// use landfall_transport::udp_packet::UdpPacketConfig;
///
/// let config = UdpPacketConfig::discover("192.0.2.7:7000".parse()?);
/// assert_eq!(config.interface, None, "the one that has the address");
/// let config = UdpPacketConfig { interface: Some("eth1".into()), ..config };
/// assert_eq!(config.interface, Some(Interface::Name("eth1".into())));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpPacketConfig {
    /// The address, which has to be that of one interface, and what else UDP has to be told.
    pub udp: UdpConfig,
    /// The interface; none for the one that has the address.
    pub interface: Option<Interface>,
}

impl UdpPacketConfig {
    /// A path for an interface with this MTU.
    #[must_use]
    pub const fn new(bind: SocketAddr, mtu: u32) -> Self {
        Self { udp: UdpConfig::new(bind, mtu), interface: None }
    }

    /// A path of which nobody has to know the MTU: see [`UdpConfig::discover`].
    #[must_use]
    pub const fn discover(bind: SocketAddr) -> Self {
        Self { udp: UdpConfig::discover(bind), interface: None }
    }
}
