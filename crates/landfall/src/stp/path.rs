//! Over what an endpoint is reached: [`Transport`].

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

use landfall_placement::{PathId, Peer};
use landfall_transport::Driver;
use landfall_transport::memory::Regions;
use landfall_transport::packet::{Framing, Interface, PacketConfig, PacketDriver};
use landfall_transport::rawip::{RawIpConfig, RawIpDriver};
use landfall_transport::udp::{UdpConfig, UdpDriver};
#[cfg(feature = "io-uring")]
use landfall_transport::uring::{UringPacketDriver, UringUdpConfig, UringUdpDriver};
use landfall_transport::xdp::{self, XdpConfig, XdpDriver};
use stp_core::Endpoint;
use stp_core::wire::carrier::{ETHERTYPE, IP_PROTOCOL};

use super::core::{Kind, Lane};
use crate::drive::AnyDriver;

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
pub struct Transport(Way);

type Open = dyn FnOnce(PathId, &Regions) -> io::Result<Box<dyn AnyDriver<Endpoint>>> + Send;

enum Way {
    Udp(UdpConfig),
    Packet(PacketConfig),
    RawIp(RawIpConfig),
    Xdp(XdpConfig),
    #[cfg(feature = "io-uring")]
    UringUdp(UringUdpConfig),
    #[cfg(feature = "io-uring")]
    UringPacket(PacketConfig),
    Driver(Kind, Box<Open>),
}

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
        Self(Way::Packet(PacketConfig { framing: framing(), ..config }))
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
        let framing = xdp::Framing::Payload { ethertype: ETHERTYPE };
        Self(Way::Xdp(XdpConfig { framing, ..config }))
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
        Self(Way::UringPacket(PacketConfig::new(interface, framing())))
    }

    /// A driver of your own, or one that is wrapped, as by
    /// `landfall_transport::fault::Faulty`: opened when the endpoint is bound,
    /// for a path with this number and memory of this table. It leads to every
    /// kind of peer.
    #[must_use]
    pub fn driver<D: Driver + Send + 'static>(
        open: impl FnOnce(PathId, &Regions) -> io::Result<D> + Send + 'static,
    ) -> Self {
        Self(Way::Driver(
            Kind::Other,
            Box::new(move |path, regions| Ok(Box::new(open(path, regions)?))),
        ))
    }

    /// A driver that is open, between two endpoints of this process.
    pub(crate) fn joined(driver: impl Driver + Send + 'static) -> Self {
        Self(Way::Driver(Kind::Node, Box::new(move |_, _| Ok(Box::new(driver)))))
    }

    /// Is it on a network that others share, so that it should yield to them?
    pub(crate) const fn is_shared(&self) -> bool {
        match &self.0 {
            Way::Udp(_) | Way::RawIp(_) => true,
            #[cfg(feature = "io-uring")]
            Way::UringUdp(_) => true,
            _ => false,
        }
    }

    pub(crate) fn open(self, path: PathId, regions: &Regions) -> io::Result<Lane> {
        let (driver, kind, local): (Box<dyn AnyDriver<Endpoint>>, _, _) = match self.0 {
            Way::Udp(config) => {
                let driver = UdpDriver::open(path, config, regions)?;
                let local = Peer::Socket(driver.local_address());
                (Box::new(driver), Kind::Socket, Some(local))
            }
            Way::Packet(config) => {
                let driver = PacketDriver::open(path, &config, regions)?;
                let local = Peer::Ethernet(driver.station());
                (Box::new(driver), Kind::Station, Some(local))
            }
            Way::RawIp(config) => {
                let driver = RawIpDriver::open(path, &config, regions)?;
                let local = Peer::Ip(driver.local_address());
                (Box::new(driver), Kind::Host, Some(local))
            }
            Way::Xdp(config) => {
                let driver = XdpDriver::open(path, &config, regions)?;
                let local = Peer::Ethernet(driver.station());
                (Box::new(driver), Kind::Station, Some(local))
            }
            #[cfg(feature = "io-uring")]
            Way::UringUdp(config) => {
                let driver = UringUdpDriver::open(path, config, regions)?;
                let local = Peer::Socket(driver.local_address());
                (Box::new(driver), Kind::Socket, Some(local))
            }
            #[cfg(feature = "io-uring")]
            Way::UringPacket(config) => {
                let driver = UringPacketDriver::open(path, &config, regions)?;
                let local = Peer::Ethernet(driver.station());
                (Box::new(driver), Kind::Station, Some(local))
            }
            Way::Driver(kind, open) => (open(path, regions)?, kind, None),
        };
        Ok(Lane { driver, kind, local, is_up: true, broken: None })
    }
}

const fn framing() -> Framing {
    Framing::Payload { ethertype: ETHERTYPE }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Way::Udp(config) => write!(f, "UDP on {}", config.bind),
            Way::Packet(config) => write!(f, "Ethernet on {}", config.interface),
            Way::RawIp(config) => write!(f, "IP on {}", config.bind),
            Way::Xdp(config) => write!(f, "AF_XDP on {}", config.interface),
            #[cfg(feature = "io-uring")]
            Way::UringUdp(_) => f.write_str("UDP by io_uring"),
            #[cfg(feature = "io-uring")]
            Way::UringPacket(config) => write!(f, "Ethernet on {} by io_uring", config.interface),
            Way::Driver(..) => f.write_str("a driver that was handed in"),
        }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Transport({self})")
    }
}
