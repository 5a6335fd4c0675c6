//! Over what an endpoint is reached: [`Transport`].

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

use landfall_placement::PathId;
#[cfg(any(doc, feature = "nic"))]
use landfall_placement::Peer;
use landfall_transport::Driver;
use landfall_transport::memory::Regions;
use landfall_transport::packet::{Framing, Interface, PacketConfig};
use landfall_transport::rawip::RawIpConfig;
use landfall_transport::udp::UdpConfig;
#[cfg(feature = "io-uring")]
use landfall_transport::uring::UringUdpConfig;
use landfall_transport::xdp::XdpConfig;
use stp_core::wire::carrier::{ETHERTYPE, IP_PROTOCOL};
use stp_core::{Config, Endpoint};

use super::core::Lane;
#[cfg(feature = "nic")]
use crate::drive::Kind;
use crate::drive::Way;
#[cfg(feature = "nic")]
use crate::drive::plug::{Nic, Plug};
#[cfg(feature = "nic")]
use crate::nic::{Pace, Wire};

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
#[cfg_attr(feature = "nic", doc = "| [`nic`](Self::nic) | as its address | none |")]
///
/// Two endpoints of one process are joined by
/// [`Builder::bind_pair`](super::Builder::bind_pair).
pub struct Transport(Over);

enum Over {
    Way(Way<Endpoint>),
    #[cfg(feature = "nic")]
    Nic(Plug),
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
        Self(Over::Way(Way::Udp(config)))
    }

    /// Frames of ethertype 0x8181 on an Ethernet interface.
    #[must_use]
    pub fn ethernet(interface: impl Into<Interface>) -> Self {
        Self::ethernet_with(PacketConfig::new(interface, framing()))
    }

    /// The same with all that can be chosen; the framing is what STP's must be.
    #[must_use]
    pub fn ethernet_with(config: PacketConfig) -> Self {
        Self(Over::Way(Way::ethernet(config, ETHERTYPE)))
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
        Self(Over::Way(Way::RawIp(config)))
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
        Self(Over::Way(Way::xdp(config, ETHERTYPE)))
    }

    /// UDP by way of `io_uring`.
    #[cfg(feature = "io-uring")]
    #[must_use]
    pub const fn udp_uring(config: UringUdpConfig) -> Self {
        Self(Over::Way(Way::UringUdp(config)))
    }

    /// Frames of ethertype 0x8181 by way of `io_uring`.
    #[cfg(feature = "io-uring")]
    #[must_use]
    pub fn ethernet_uring(interface: impl Into<Interface>) -> Self {
        Self(Over::Way(Way::ethernet_uring(PacketConfig::new(interface, framing()), ETHERTYPE)))
    }

    /// A driver of your own, or one that is wrapped, as by
    /// `landfall_transport::fault::Faulty`: opened when the endpoint is bound,
    /// for a path with this number and memory of this table. It leads to every
    /// kind of peer.
    #[must_use]
    pub fn driver<D: Driver + Send + 'static>(
        open: impl FnOnce(PathId, &Regions) -> io::Result<D> + Send + 'static,
    ) -> Self {
        Self(Over::Way(Way::driver(open)))
    }

    /// A driver that is open, between two endpoints of this process.
    pub(crate) fn joined(driver: impl Driver + Send + 'static) -> Self {
        Self(Over::Way(Way::joined(driver)))
    }

    /// A Tigon-II of this process, plugged into a wire under an address: see
    /// [`nic`](crate::nic). If all paths of an endpoint are such, its Data is taken off it.
    #[cfg(feature = "nic")]
    #[must_use]
    pub fn nic(wire: &Wire, address: impl Into<Peer>, pace: Pace) -> Self {
        let (wire, address) = (wire.clone(), address.into());
        Self(Over::Nic(Plug { wire, address, unit: 1_500, pace }))
    }

    /// What configuration says that it shall be.
    #[cfg(feature = "nic")]
    pub(crate) fn configured(self) -> io::Result<Self> {
        let Some(pace) = crate::nic::chosen()? else { return Ok(self) };
        Ok(match self.0 {
            Over::Way(way) => Self(match Plug::of_units(&way, pace) {
                Some(plug) => Over::Nic(plug),
                None => Over::Way(way),
            }),
            Over::Nic(plug) => Self(Over::Nic(plug)),
        })
    }

    /// Without the feature `nic` there is nothing to configure.
    #[cfg(not(feature = "nic"))]
    #[expect(clippy::unnecessary_wraps, reason = "with that feature it may fail")]
    pub(crate) const fn configured(self) -> io::Result<Self> {
        Ok(self)
    }

    /// Is it an adapter that takes Data off the engine?
    pub(crate) const fn is_adapter(&self) -> bool {
        match &self.0 {
            Over::Way(_) => false,
            #[cfg(feature = "nic")]
            Over::Nic(_) => true,
        }
    }

    /// Is it on a network that others share, so that it should yield to them?
    pub(crate) const fn is_shared(&self) -> bool {
        match &self.0 {
            Over::Way(way) => way.is_shared(),
            #[cfg(feature = "nic")]
            Over::Nic(_) => false,
        }
    }

    /// Opens it for an engine of this configuration.
    pub(crate) fn open(
        self,
        path: PathId,
        regions: &Regions,
        #[cfg_attr(
            not(feature = "nic"),
            expect(unused_variables, reason = "an adapter is like it")
        )]
        config: &Config,
    ) -> io::Result<Lane> {
        match self.0 {
            Over::Way(way) => way.open(path, regions),
            #[cfg(feature = "nic")]
            Over::Nic(plug) => open_nic(&plug, path, regions, config),
        }
    }
}

#[cfg(feature = "nic")]
fn open_nic(plug: &Plug, path: PathId, regions: &Regions, config: &Config) -> io::Result<Lane> {
    use nic_firmware_model::driver::{NicDriver, tigon};

    let port = plug.wire.plug(plug.address)?;
    let local = port.address();
    // Paths beyond the last adapter are on that one; it knows nothing of them.
    let number = u8::try_from(path.0).unwrap_or(u8::MAX);
    let card = tigon(config, plug.unit, plug.pace);
    let driver = Box::new(Nic(NicDriver::new(path, number, card, port, regions, plug.unit)));
    Ok(Lane { driver, kind: Kind::of(local), local: Some(local), is_up: true, broken: None })
}

const fn framing() -> Framing {
    Framing::Payload { ethertype: ETHERTYPE }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Over::Way(way) => way.fmt(f),
            #[cfg(feature = "nic")]
            Over::Nic(plug) => plug.fmt(f),
        }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Transport({self})")
    }
}
