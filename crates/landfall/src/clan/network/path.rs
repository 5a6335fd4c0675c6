//! [`Transport`]: the paths that a node opens.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

use clan_dsm::HostId;
use landfall_placement::PathId;
use landfall_placement::Peer;
#[cfg(feature = "faults")]
use landfall_placement::Seed;
use landfall_transport::Driver;
#[cfg(feature = "faults")]
use landfall_transport::fault::Faults;
use landfall_transport::memory::Regions;
use landfall_transport::packet::{Framing, Interface, PacketConfig};
use landfall_transport::udp::UdpConfig;
#[cfg(feature = "io-uring")]
use landfall_transport::uring::UringUdpConfig;
use landfall_transport::xdp::XdpConfig;
#[cfg(feature = "nic")]
use nic_firmware_model::driver::clan as card;

use super::state::Engine;
#[cfg(feature = "nic")]
use crate::nic::{Pace, Wire};
#[cfg(feature = "nic")]
use crate::runtime::AdapterSource;
use crate::runtime::{DriverSource, Member, Path, PathSource, Reach, SharedPath};

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
#[cfg_attr(feature = "nic", doc = "| [`nic`](Self::nic) | as its address | none |")]
///
/// Two nodes of one process are joined by
/// [`Builder::open_pair`](super::Builder::open_pair).
pub struct Transport(PathSource<Engine>);

impl Transport {
    /// UDP on a local address, for an MTU of 1500. Port 0 lets the kernel choose.
    #[must_use]
    pub const fn udp(address: SocketAddr) -> Self {
        Self::udp_with(UdpConfig::new(address, 1500))
    }

    /// UDP with all that can be chosen: `UdpConfig::new(address, mtu)`.
    #[must_use]
    pub const fn udp_with(config: UdpConfig) -> Self {
        Self(PathSource::Driver(DriverSource::Udp(config)))
    }

    /// Frames of ethertype 0x88b5 on an Ethernet interface.
    #[must_use]
    pub fn ethernet(interface: impl Into<Interface>) -> Self {
        Self::ethernet_with(PacketConfig::new(interface, framing()))
    }

    /// The same with all that can be chosen; the framing is what CLAN's must be.
    #[must_use]
    pub fn ethernet_with(config: PacketConfig) -> Self {
        Self(PathSource::Driver(DriverSource::ethernet(config, ETHERTYPE)))
    }

    /// Frames of ethertype 0x88b5 by AF_XDP, with the first queue of the interface.
    #[must_use]
    pub fn xdp(interface: impl Into<Interface>) -> Self {
        Self(PathSource::Driver(DriverSource::xdp(XdpConfig::new(interface, ETHERTYPE), ETHERTYPE)))
    }

    /// UDP by way of `io_uring`.
    #[cfg(feature = "io-uring")]
    #[must_use]
    pub const fn udp_uring(config: UringUdpConfig) -> Self {
        Self(PathSource::Driver(DriverSource::UringUdp(config)))
    }

    /// Frames of ethertype 0x88b5 by way of `io_uring`.
    #[cfg(feature = "io-uring")]
    #[must_use]
    pub fn ethernet_uring(interface: impl Into<Interface>) -> Self {
        Self(PathSource::Driver(DriverSource::ethernet_uring(
            PacketConfig::new(interface, framing()),
            ETHERTYPE,
        )))
    }

    /// A driver of your own, or one that is wrapped, as by
    /// `landfall_transport::fault::Faulty`: opened with the node, for a path with
    /// this number and memory of this table. It leads to every kind of peer.
    #[must_use]
    pub fn driver<D: Driver + Send + 'static>(
        open: impl FnOnce(PathId, &Regions) -> io::Result<D> + Send + 'static,
    ) -> Self {
        Self(PathSource::Driver(DriverSource::driver(open)))
    }

    /// The same path with faults on purpose, drawn from this seed: loss, repetition,
    /// reordering, corruption, delay. For tests of what is built on a node; all else is as it
    /// was. A simulated adapter has the faults of its wire instead.
    ///
    /// ```
    /// use landfall::clan::network::{Faults, HostId, Node, Transport};
    ///
    /// let path = Transport::udp("127.0.0.1:0".parse()?);
    /// let lossy = path.with_faults(Faults::loss(10_000), [7; 32]);
    /// let node = Node::open(HostId::new(1).unwrap(), lossy)?;
    /// # drop(node);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "faults")]
    #[must_use]
    pub fn with_faults(self, faults: Faults, seed: Seed) -> Self {
        Self(self.0.impaired(faults, seed))
    }

    /// A driver that is open, between two nodes of this process.
    pub(crate) fn joined(driver: impl Driver + Send + 'static) -> Self {
        Self(PathSource::Driver(DriverSource::joined(driver)))
    }

    /// Lets a path hear what is sent to a group. Gives one more path, where it takes a socket of
    /// its own to hear it. Nothing: this path cannot.
    pub(crate) fn join(&mut self, group: Peer) -> Option<Option<Self>> {
        match group {
            Peer::Ethernet(group) => self.0.hear_group(group).then_some(None),
            Peer::Socket(group) => {
                let config = self.0.udp().filter(|config| {
                    config.bind.is_ipv4() == group.is_ipv4() && !config.bind.ip().is_multicast()
                })?;
                let interface = match config.bind.ip() {
                    IpAddr::V4(ip) if !ip.is_unspecified() => Some(ip),
                    _ => None,
                };
                let config = UdpConfig { bind: group, interface, ..config };
                Some(Some(Self::udp_with(UdpConfig { same_host: false, ..config })))
            }
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

    /// How far what is sent over it gets.
    pub(crate) fn reach(&self) -> Reach {
        self.0.reach()
    }

    /// Is it on a network that others share, so that it should yield to them?
    pub(crate) const fn is_shared(&self) -> bool {
        self.0.is_shared()
    }

    /// A CLAN adapter of this process, plugged into a wire under an address: see
    /// [`nic`](crate::nic).
    #[cfg(feature = "nic")]
    #[must_use]
    pub fn nic(wire: &Wire, address: impl Into<Peer>, pace: Pace) -> Self {
        Self(PathSource::Adapter(AdapterSource::on(wire.clone(), address.into(), 1_500, pace)))
    }

    /// The same path with a CLAN adapter in front of it: its frames go through the card, and
    /// peers are who they were. A driver that was handed in stays what it is.
    #[cfg(feature = "nic")]
    #[must_use]
    pub fn behind_nic(self, pace: Pace) -> Self {
        Self(self.0.behind(pace))
    }

    /// The transport, changed as the configuration asks.
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

    /// Opens it for the engine of this host.
    #[cfg(feature = "nic")]
    pub(crate) fn open(
        self,
        path: PathId,
        regions: &Regions,
        host: HostId,
    ) -> io::Result<Path<Engine>> {
        self.0.open(path, regions, |unit, pace| card(host, unit, pace))
    }

    /// Opens it.
    #[cfg(not(feature = "nic"))]
    pub(crate) fn open(
        self,
        path: PathId,
        regions: &Regions,
        _: HostId,
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
