//! Over what a node is reached: [`Transport`].

use std::fmt;
use std::io;
use std::net::SocketAddr;

use clan_dsm::Nic;
use landfall_placement::PathId;
use landfall_transport::Driver;
use landfall_transport::memory::Regions;
use landfall_transport::packet::{Framing, Interface, PacketConfig};
use landfall_transport::udp::UdpConfig;
#[cfg(feature = "io-uring")]
use landfall_transport::uring::UringUdpConfig;
use landfall_transport::xdp::XdpConfig;

use super::core::Lane;
use crate::drive::Way;

/// The ethertype of frames: the first that IEEE 802 sets aside for local
/// experiments (IEEE 802-2014, 9.2.2).
pub const ETHERTYPE: u16 = 0x88b5;

/// A path that a node opens.
///
/// | path | peers | privileges |
/// | --- | --- | --- |
/// | [`udp`](Self::udp) | a socket address | none |
/// | [`ethernet`](Self::ethernet), ethertype 0x88b5 | a station of the Ethernet | `CAP_NET_RAW` |
/// | [`xdp`](Self::xdp), ethertype 0x88b5 | a station of the Ethernet | `CAP_NET_RAW`, `CAP_NET_ADMIN`, `CAP_BPF` |
/// | [`udp_uring`](Self::udp_uring), [`ethernet_uring`](Self::ethernet_uring) | as without | as without |
/// | [`driver`](Self::driver) | as it says | as it says |
///
/// Two nodes of one process are joined by
/// [`Builder::open_pair`](super::Builder::open_pair).
pub struct Transport(Way<Nic>);

impl Transport {
    /// UDP on a local address, for an MTU of 1500. Port 0 lets the kernel choose.
    #[must_use]
    pub const fn udp(address: SocketAddr) -> Self {
        Self::udp_with(UdpConfig::new(address, 1500))
    }

    /// UDP with all that can be chosen: `UdpConfig::new(address, mtu)`.
    #[must_use]
    pub const fn udp_with(config: UdpConfig) -> Self {
        Self(Way::Udp(config))
    }

    /// Frames of ethertype 0x88b5 on an Ethernet interface.
    #[must_use]
    pub fn ethernet(interface: impl Into<Interface>) -> Self {
        Self::ethernet_with(PacketConfig::new(interface, framing()))
    }

    /// The same with all that can be chosen; the framing is what CLAN's must be.
    #[must_use]
    pub fn ethernet_with(config: PacketConfig) -> Self {
        Self(Way::ethernet(config, ETHERTYPE))
    }

    /// Frames of ethertype 0x88b5 by AF_XDP, with the first queue of the interface.
    #[must_use]
    pub fn xdp(interface: impl Into<Interface>) -> Self {
        Self(Way::xdp(XdpConfig::new(interface, ETHERTYPE), ETHERTYPE))
    }

    /// UDP by way of `io_uring`.
    #[cfg(feature = "io-uring")]
    #[must_use]
    pub const fn udp_uring(config: UringUdpConfig) -> Self {
        Self(Way::UringUdp(config))
    }

    /// Frames of ethertype 0x88b5 by way of `io_uring`.
    #[cfg(feature = "io-uring")]
    #[must_use]
    pub fn ethernet_uring(interface: impl Into<Interface>) -> Self {
        Self(Way::ethernet_uring(PacketConfig::new(interface, framing()), ETHERTYPE))
    }

    /// A driver of your own, or one that is wrapped, as by
    /// `landfall_transport::fault::Faulty`: opened with the node, for a path with
    /// this number and memory of this table. It leads to every kind of peer.
    #[must_use]
    pub fn driver<D: Driver + Send + 'static>(
        open: impl FnOnce(PathId, &Regions) -> io::Result<D> + Send + 'static,
    ) -> Self {
        Self(Way::driver(open))
    }

    /// A driver that is open, between two nodes of this process.
    pub(crate) fn joined(driver: impl Driver + Send + 'static) -> Self {
        Self(Way::joined(driver))
    }

    /// Is it on a network that others share, so that it should yield to them?
    pub(crate) const fn is_shared(&self) -> bool {
        self.0.is_shared()
    }

    pub(crate) fn open(self, path: PathId, regions: &Regions) -> io::Result<Lane> {
        self.0.open(path, regions)
    }
}

const fn framing() -> Framing {
    Framing::Payload { ethertype: ETHERTYPE }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Transport({self})")
    }
}
