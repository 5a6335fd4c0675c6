//! Over what an endpoint is reached: [`Transport`].

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

use landfall_placement::PathId;
#[cfg(any(doc, feature = "nic"))]
use landfall_placement::Peer;
#[cfg(feature = "faults")]
use landfall_placement::Seed;
use landfall_transport::Driver;
#[cfg(feature = "faults")]
use landfall_transport::fault::Faults;
use landfall_transport::memory::Regions;
use landfall_transport::packet::{Framing, Interface, PacketConfig};
use landfall_transport::rawip::RawIpConfig;
use landfall_transport::udp::UdpConfig;
use landfall_transport::udp_packet::UdpPacketConfig;
#[cfg(feature = "io-uring")]
use landfall_transport::uring::UringUdpConfig;
use landfall_transport::xdp::XdpConfig;
#[cfg(feature = "nic")]
use nic_firmware_model::driver::tigon;
use stp_core::Config;
use stp_core::wire::carrier::{ETHERTYPE, IP_PROTOCOL};

use super::state::Engine;
#[cfg(feature = "nic")]
use crate::nic::{Pace, Wire};
#[cfg(feature = "nic")]
use crate::runtime::AdapterSource;
use crate::runtime::{DriverSource, Member, Path, PathSource, Reach, SharedPath};

/// A path that an endpoint opens.
///
/// | path | peers | privileges |
/// | --- | --- | --- |
/// | [`udp`](Self::udp) | [`SocketAddr`] | none |
/// | [`udp_packet`](Self::udp_packet) | [`SocketAddr`] | `CAP_NET_RAW` |
/// | [`ethernet`](Self::ethernet), ethertype 0x8181 | [`Peer::Ethernet`] | `CAP_NET_RAW` |
/// | [`ip`](Self::ip), protocol 118 | [`Peer::Ip`] | `CAP_NET_RAW` |
/// | [`xdp`](Self::xdp), ethertype 0x8181 | [`Peer::Ethernet`] | `CAP_NET_RAW`, `CAP_NET_ADMIN`, `CAP_BPF` |
/// | [`udp_uring`](Self::udp_uring), [`udp_packet_uring`](Self::udp_packet_uring), [`ethernet_uring`](Self::ethernet_uring) | as without | as without |
/// | [`driver`](Self::driver) | as it says | as it says |
#[cfg_attr(feature = "nic", doc = "| [`nic`](Self::nic) | as its address | none |")]
///
/// Two endpoints of one process are joined by
/// [`Builder::bind_pair`](super::Builder::bind_pair).
pub struct Transport(PathSource<Engine>);

impl Transport {
    /// UDP on a local address, which finds out by itself how long packets may be: on
    /// loopback from the interface, elsewhere by trying, peer by peer. Port 0 lets the
    /// kernel choose.
    #[must_use]
    pub const fn udp(address: SocketAddr) -> Self {
        Self::udp_with(UdpConfig::discover(address))
    }

    /// UDP with all that can be chosen: `UdpConfig::discover(address)`, or
    /// `UdpConfig::new(address, mtu)` for an MTU that is known.
    #[must_use]
    pub const fn udp_with(config: UdpConfig) -> Self {
        Self(PathSource::Driver(DriverSource::Udp(config)))
    }

    /// UDP on the address of an Ethernet interface, by a packet socket: as fast as frames, to
    /// the same peers as [`udp`](Self::udp), which need nothing for it. Peers that are not
    /// reached over that interface do not hear from it: those of this host use `udp`.
    ///
    /// ```no_run
    /// use landfall::stp::{Endpoint, Transport};
    ///
    /// # fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let fast = Transport::udp_packet("192.0.2.7:0".parse()?);
    /// let endpoint = Endpoint::bind(fast)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn udp_packet(address: SocketAddr) -> Self {
        Self::udp_packet_with(UdpPacketConfig::discover(address))
    }

    /// The same with all that can be chosen: the interface, where several have the address,
    /// and what [`udp_with`](Self::udp_with) has.
    #[must_use]
    pub const fn udp_packet_with(config: UdpPacketConfig) -> Self {
        Self(PathSource::Driver(DriverSource::UdpPacket(config)))
    }

    /// Frames of ethertype 0x8181 on an Ethernet interface.
    #[must_use]
    pub fn ethernet(interface: impl Into<Interface>) -> Self {
        Self::ethernet_with(PacketConfig::new(interface, framing()))
    }

    /// The same with all that can be chosen; the framing is what STP's must be.
    #[must_use]
    pub fn ethernet_with(config: PacketConfig) -> Self {
        Self(PathSource::Driver(DriverSource::ethernet(config, ETHERTYPE)))
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
        Self(PathSource::Driver(DriverSource::RawIp(config)))
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
        Self(PathSource::Driver(DriverSource::xdp(config, ETHERTYPE)))
    }

    /// UDP by way of `io_uring`.
    #[cfg(feature = "io-uring")]
    #[must_use]
    pub const fn udp_uring(config: UringUdpConfig) -> Self {
        Self(PathSource::Driver(DriverSource::UringUdp(config)))
    }

    /// UDP by a packet socket, as [`udp_packet`](Self::udp_packet), by way of `io_uring`:
    /// `UdpPacketConfig::discover(address)`.
    #[cfg(feature = "io-uring")]
    #[must_use]
    pub const fn udp_packet_uring(config: UdpPacketConfig) -> Self {
        Self(PathSource::Driver(DriverSource::UringUdpPacket(config)))
    }

    /// Frames of ethertype 0x8181 by way of `io_uring`.
    #[cfg(feature = "io-uring")]
    #[must_use]
    pub fn ethernet_uring(interface: impl Into<Interface>) -> Self {
        Self(PathSource::Driver(DriverSource::ethernet_uring(
            PacketConfig::new(interface, framing()),
            ETHERTYPE,
        )))
    }

    /// A driver of your own, or one that is wrapped, as by
    /// `landfall_transport::fault::Faulty`: opened when the endpoint is bound,
    /// for a path with this number and memory of this table. It leads to every
    /// kind of peer.
    #[must_use]
    pub fn driver<D: Driver + Send + 'static>(
        open: impl FnOnce(PathId, &Regions) -> io::Result<D> + Send + 'static,
    ) -> Self {
        Self(PathSource::Driver(DriverSource::driver(open)))
    }

    /// The same path with faults on purpose, drawn from this seed: loss, repetition,
    /// reordering, corruption, delay. For tests of what is built on an endpoint; all else
    /// is as it was, the default configuration included. Segmentation by the device is off,
    /// so that a fault hits one packet. A simulated adapter has the faults of its wire
    /// instead.
    ///
    /// ```
    /// use landfall::stp::{Endpoint, Faults, Transport};
    ///
    /// let lossy = Transport::udp("127.0.0.1:0".parse()?).with_faults(Faults::loss(10_000), [7; 32]);
    /// let endpoint = Endpoint::bind(lossy)?;
    /// # drop(endpoint);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "faults")]
    #[must_use]
    pub fn with_faults(self, faults: Faults, seed: Seed) -> Self {
        Self(self.0.impaired(faults, seed))
    }

    /// What it is, if it is plain UDP: then several engines can share its port.
    pub(crate) const fn as_udp(&self) -> Option<UdpConfig> {
        match &self.0 {
            PathSource::Driver(DriverSource::Udp(config)) => Some(*config),
            _ => None,
        }
    }

    /// What it is, if several engines can share it.
    pub(super) fn as_shared(&self) -> Option<SharedPath> {
        self.0.as_shared()
    }

    /// One engine's part of a path that several share.
    pub(super) fn member(member: Member) -> Self {
        Self(PathSource::Driver(DriverSource::Member(Box::new(member))))
    }

    /// A driver that is open, between two endpoints of this process.
    pub(crate) fn joined(driver: impl Driver + Send + 'static) -> Self {
        Self(PathSource::Driver(DriverSource::joined(driver)))
    }

    /// A Tigon-II of this process, plugged into a wire under an address: see
    /// [`nic`](crate::nic). If all paths of an endpoint are such, its Data is taken off it.
    #[cfg(feature = "nic")]
    #[must_use]
    pub fn nic(wire: &Wire, address: impl Into<Peer>, pace: Pace) -> Self {
        Self(PathSource::Adapter(AdapterSource::on(wire.clone(), address.into(), 1_500, pace)))
    }

    /// The same path with a Tigon-II in front of it: its frames go through the card, and
    /// peers are who they were. A driver that was handed in stays what it is.
    #[cfg(feature = "nic")]
    #[must_use]
    pub fn behind_nic(self, pace: Pace) -> Self {
        Self(self.0.behind(pace))
    }

    /// What configuration says that it shall be.
    #[cfg(feature = "nic")]
    pub(crate) fn configured(self) -> io::Result<Self> {
        self.0.configured().map(Self)
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
            PathSource::Driver(_) => false,
            #[cfg(feature = "nic")]
            PathSource::Adapter(_) => true,
        }
    }

    /// Is it on a network that others share, so that it should yield to them?
    pub(crate) const fn is_shared(&self) -> bool {
        self.0.is_shared()
    }

    /// How far what is sent over it gets.
    pub(crate) fn reach(&self) -> Reach {
        self.0.reach()
    }

    /// Opens it for an engine of this configuration.
    #[cfg(feature = "nic")]
    pub(crate) fn open(
        self,
        path: PathId,
        regions: &Regions,
        config: &Config,
    ) -> io::Result<Path<Engine>> {
        self.0.open(path, regions, |unit, pace| tigon(config, unit, pace))
    }

    /// Opens it.
    #[cfg(not(feature = "nic"))]
    pub(crate) fn open(
        self,
        path: PathId,
        regions: &Regions,
        _: &Config,
    ) -> io::Result<Path<Engine>> {
        let PathSource::Driver(driver) = self.0;
        driver.open(path, regions)
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
