//! Over what an endpoint is reached: [`Transport`].

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

use landfall_placement::PathId;
#[cfg(doc)]
use landfall_placement::Peer;
use landfall_transport::Driver;
use landfall_transport::memory::Regions;
use landfall_transport::packet::{Framing, Interface, PacketConfig};
use landfall_transport::rawip::RawIpConfig;
use landfall_transport::udp::UdpConfig;
#[cfg(feature = "io-uring")]
use landfall_transport::uring::UringUdpConfig;
use landfall_transport::xdp::XdpConfig;
use stp_core::Endpoint;
use stp_core::wire::carrier::{ETHERTYPE, IP_PROTOCOL};

use super::core::Lane;
use crate::drive::Way;

/// A path that an endpoint opens.
///
/// | path | peers | privileges |
/// | --- | --- | --- |
/// | [`udp`](Self::udp) | [`SocketAddr`] | none |
/// | [`ethernet`](Self::ethernet), ethertype 0x8181 | [`Peer::Ethernet`] | `CAP_NET_RAW` |
/// | [`ip`](Self::ip), protocol 118 | [`Peer::Ip`] | `CAP_NET_RAW` |
/// | [`xdp`](Self::xdp), ethertype 0x8181 | [`Peer::Ethernet`] | `CAP_NET_RAW`, `CAP_NET_ADMIN`, `CAP_BPF` |
/// | [`udp_uring`](Self::udp_uring), [`ethernet_uring`](Self::ethernet_uring) | as without | as without |
/// | [`driver`](Self::driver) | as it says | as it says |
///
/// Two endpoints of one process are joined by
/// [`Builder::bind_pair`](super::Builder::bind_pair).
pub struct Transport(Way<Endpoint>);

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

    /// Frames of ethertype 0x8181 on an Ethernet interface.
    #[must_use]
    pub fn ethernet(interface: impl Into<Interface>) -> Self {
        Self::ethernet_with(PacketConfig::new(interface, framing()))
    }

    /// The same with all that can be chosen; the framing is what STP's must be.
    #[must_use]
    pub fn ethernet_with(config: PacketConfig) -> Self {
        Self(Way::ethernet(config, ETHERTYPE))
    }

    /// Packets of IP protocol 118 on a local address, for an MTU of 1500.
    #[must_use]
    pub const fn ip(address: IpAddr) -> Self {
        Self::ip_with(RawIpConfig::new(address, IP_PROTOCOL, 1500))
    }

    /// The same with all that can be chosen; the protocol is what STP's must be.
    #[must_use]
    pub const fn ip_with(mut config: RawIpConfig) -> Self {
        config.protocol = IP_PROTOCOL;
        Self(Way::RawIp(config))
    }

    /// Frames of ethertype 0x8181 by AF_XDP: rings that are mapped into this
    /// process, with the first queue of the interface.
    #[must_use]
    pub fn xdp(interface: impl Into<Interface>) -> Self {
        Self::xdp_with(XdpConfig::new(interface, ETHERTYPE))
    }

    /// The same with all that can be chosen; the ethertype is what STP's must be.
    #[must_use]
    pub fn xdp_with(config: XdpConfig) -> Self {
        Self(Way::xdp(config, ETHERTYPE))
    }

    /// UDP by way of `io_uring`.
    #[cfg(feature = "io-uring")]
    #[must_use]
    pub const fn udp_uring(config: UringUdpConfig) -> Self {
        Self(Way::UringUdp(config))
    }

    /// Frames of ethertype 0x8181 by way of `io_uring`.
    #[cfg(feature = "io-uring")]
    #[must_use]
    pub fn ethernet_uring(interface: impl Into<Interface>) -> Self {
        Self(Way::ethernet_uring(PacketConfig::new(interface, framing()), ETHERTYPE))
    }

    /// A driver of your own, or one that is wrapped, as by
    /// `landfall_transport::fault::Faulty`: opened when the endpoint is bound,
    /// for a path with this number and memory of this table. It leads to every
    /// kind of peer.
    #[must_use]
    pub fn driver<D: Driver + Send + 'static>(
        open: impl FnOnce(PathId, &Regions) -> io::Result<D> + Send + 'static,
    ) -> Self {
        Self(Way::driver(open))
    }

    /// A driver that is open, between two endpoints of this process.
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
