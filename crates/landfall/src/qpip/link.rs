//! Over what an adapter is on the network: [`Link`].

use std::fmt;
use std::io;
use std::net::SocketAddr;

#[cfg(feature = "nic")]
use landfall_placement::Peer;
use landfall_placement::{PathId, Seed};
use landfall_transport::Driver;
use landfall_transport::memory::Regions;
use landfall_transport::packet::{Filter, Framing, Interface, PacketConfig, PacketDriver};
use landfall_transport::tap::{TapConfig, TapDriver};
use landfall_transport::tunnel::{TunnelConfig, TunnelDriver};
#[cfg(feature = "io-uring")]
use landfall_transport::uring::UringPacketDriver;
use landfall_transport::xdp::{self, XdpConfig, XdpDriver};
#[cfg(feature = "nic")]
use nic_firmware_model::driver::{NicDriver, lanai};
#[cfg(feature = "nic")]
use nic_firmware_model::lanai::Lanai;
use qpip::Adapter;

use crate::drive::AnyDriver;
#[cfg(feature = "nic")]
use crate::drive::plug::{Nic, Plug};
#[cfg(feature = "nic")]
use crate::nic::{Pace, Wire};

/// An Ethernet that an adapter is a station of. All of them carry whole frames;
/// the adapter has a station address and IP addresses of its own there, and
/// answers ARP, neighbour discovery and echoes itself.
///
/// | link | who is at the other end | privileges |
/// | --- | --- | --- |
/// | [`tap`](Self::tap) | the kernel of this machine, and whatever it forwards to | `CAP_NET_ADMIN`, or an interface that root made for you |
/// | [`packet`](Self::packet), [`packet_uring`](Self::packet_uring) | whoever is on that interface's network; not this machine's kernel | `CAP_NET_RAW` |
/// | [`tunnel`](Self::tunnel) | other tunnels: frames inside of UDP | none |
/// | [`Builder::pair`](super::Builder::pair) | another adapter of this process | none |
/// | [`xdp`](Self::xdp) | as with `packet` | `CAP_NET_RAW`, `CAP_NET_ADMIN`, `CAP_BPF` |
/// | [`driver`](Self::driver) | as it says | as it says |
#[cfg_attr(
    feature = "nic",
    doc = "| [`nic`](Self::nic) | the other cards on that wire, in this process | none |"
)]
pub struct Link(Way);

type Open = dyn FnOnce(PathId, &Regions) -> io::Result<Box<dyn AnyDriver<Adapter>>> + Send;

enum Way {
    Tap(TapConfig),
    Packet(PacketConfig),
    #[cfg(feature = "io-uring")]
    UringPacket(PacketConfig),
    Xdp(XdpConfig),
    Tunnel(TunnelConfig),
    #[cfg(feature = "nic")]
    Nic(Plug),
    Driver(&'static str, Box<Open>),
}

/// A link that is open.
pub(crate) struct Opened {
    pub(crate) driver: Box<dyn AnyDriver<Adapter>>,
    /// Where the other ends of a tunnel send to.
    pub(crate) carrier: Option<SocketAddr>,
}

impl Link {
    /// A virtual cable to the kernel of this machine: an interface of this name
    /// is made, or taken if it is there. With all offloads: super-packets and
    /// frames without checksums pass.
    #[must_use]
    pub fn tap(name: impl Into<String>) -> Self {
        Self::tap_with(TapConfig::new(name))
    }

    /// The same with all that can be chosen, such as the kernel's own address on
    /// that cable.
    #[must_use]
    pub const fn tap_with(config: TapConfig) -> Self {
        Self(Way::Tap(config))
    }

    /// Frames of an Ethernet interface that others use, too, with the device's
    /// segmentation and checksums.
    #[must_use]
    pub fn packet(interface: impl Into<Interface>) -> Self {
        Self::packet_with(PacketConfig::new(interface, framing([0; 6])))
    }

    /// The same with all that can be chosen; the framing is what an adapter's
    /// must be.
    #[must_use]
    pub const fn packet_with(config: PacketConfig) -> Self {
        Self(Way::Packet(config))
    }

    /// Frames of an Ethernet interface by way of `io_uring`.
    #[cfg(feature = "io-uring")]
    #[must_use]
    pub fn packet_uring(interface: impl Into<Interface>) -> Self {
        Self(Way::UringPacket(PacketConfig::new(interface, framing([0; 6]))))
    }

    /// Frames of an Ethernet interface by AF_XDP: rings that are mapped into this
    /// process, with the first queue of the interface.
    ///
    /// What is for all stations stays with the kernel, so that the machine is
    /// still found there. The adapter can connect to others; who shall connect
    /// to it has to know its station address, or [`xdp_with`](Self::xdp_with)
    /// takes the frames for groups away from the kernel. No device verifies
    /// checksums here; a kernel at the other end of a virtual cable has to
    /// compute them (`ethtool -K IFACE tx off` there).
    #[must_use]
    pub fn xdp(interface: impl Into<Interface>) -> Self {
        Self(Way::Xdp(XdpConfig::station(interface, [0; 6])))
    }

    /// The same with all that can be chosen; the station is the adapter's.
    #[must_use]
    pub const fn xdp_with(config: XdpConfig) -> Self {
        Self(Way::Xdp(config))
    }

    /// Whole frames inside of UDP, from a local address (port 0: any) to these
    /// peers, over interfaces with an MTU of 1500. Without peers, whoever sends
    /// becomes one. For networks that are trusted: nothing is encrypted.
    #[must_use]
    pub fn tunnel(local: SocketAddr, peers: impl IntoIterator<Item = SocketAddr>) -> Self {
        let peers: Vec<_> = peers.into_iter().collect();
        let learn_peers = peers.is_empty();
        Self::tunnel_with(TunnelConfig { peers, learn_peers, ..TunnelConfig::new(local, 1500) })
    }

    /// The same with all that can be chosen.
    #[must_use]
    pub const fn tunnel_with(config: TunnelConfig) -> Self {
        Self(Way::Tunnel(config))
    }

    /// A driver of your own, or one that is wrapped, as by
    /// `landfall_transport::fault::Faulty`: opened with the adapter, for a path
    /// with this number and memory of this table. Its units are whole frames.
    #[must_use]
    pub fn driver<D: Driver + Send + 'static>(
        open: impl FnOnce(PathId, &Regions) -> io::Result<D> + Send + 'static,
    ) -> Self {
        Self::named("a driver that was handed in", open)
    }

    /// A LANai 9 of this process, plugged into a wire under its adapter's station
    /// address: see [`nic`](crate::nic). As the first link of an adapter it takes payloads
    /// off it.
    #[cfg(feature = "nic")]
    #[must_use]
    pub fn nic(wire: &Wire, frame: u32, pace: Pace) -> Self {
        let (wire, address) = (wire.clone(), Peer::Unaddressed);
        Self(Way::Nic(Plug { wire, address, unit: frame, pace }))
    }

    /// What configuration says that it shall be.
    #[cfg(feature = "nic")]
    pub(super) fn configured(self) -> io::Result<Self> {
        let Some(pace) = crate::nic::chosen()? else { return Ok(self) };
        let (name, frame) = match &self.0 {
            Way::Tap(config) => (config.name.clone(), None),
            Way::Packet(config) => (config.interface.to_string(), None),
            #[cfg(feature = "io-uring")]
            Way::UringPacket(config) => (config.interface.to_string(), None),
            Way::Xdp(config) => (config.interface.to_string(), None),
            Way::Tunnel(config) => ("inside of tunnels".to_owned(), Some(config.frame)),
            Way::Nic(_) | Way::Driver(..) => return Ok(self),
        };
        Ok(Self(Way::Nic(Plug::of_frames(&name, frame, pace))))
    }

    /// Without the feature `nic` there is nothing to configure.
    #[cfg(not(feature = "nic"))]
    #[expect(clippy::unnecessary_wraps, reason = "with that feature it may fail")]
    pub(super) const fn configured(self) -> io::Result<Self> {
        Ok(self)
    }

    /// Is it an adapter that takes payloads off the engine?
    pub(super) const fn is_adapter(&self) -> bool {
        match &self.0 {
            #[cfg(feature = "nic")]
            Way::Nic(_) => true,
            _ => false,
        }
    }

    pub(super) fn named<D: Driver + Send + 'static>(
        what: &'static str,
        open: impl FnOnce(PathId, &Regions) -> io::Result<D> + Send + 'static,
    ) -> Self {
        Self(Way::Driver(what, Box::new(move |path, regions| Ok(Box::new(open(path, regions)?)))))
    }

    /// Opens it for a station with this address, in an adapter with this seed.
    pub(super) fn open(
        self,
        path: PathId,
        regions: &Regions,
        station: [u8; 6],
        #[cfg_attr(
            not(feature = "nic"),
            expect(unused_variables, reason = "what an adapter finds things by")
        )]
        seed: &Seed,
    ) -> io::Result<Opened> {
        let mut carrier = None;
        let driver: Box<dyn AnyDriver<Adapter>> = match self.0 {
            Way::Tap(config) => Box::new(TapDriver::open(path, &config, regions)?),
            Way::Packet(config) => {
                let config = PacketConfig { framing: framing(station), ..config };
                Box::new(PacketDriver::open(path, &config, regions)?)
            }
            #[cfg(feature = "io-uring")]
            Way::UringPacket(config) => {
                let config = PacketConfig { framing: framing(station), ..config };
                Box::new(UringPacketDriver::open(path, &config, regions)?)
            }
            Way::Xdp(config) => {
                let groups = matches!(config.framing, xdp::Framing::Frames { groups: true, .. });
                let framing = xdp::Framing::Frames { station, groups };
                Box::new(XdpDriver::open(path, &XdpConfig { framing, ..config }, regions)?)
            }
            Way::Tunnel(config) => {
                let driver = TunnelDriver::open(path, &config, regions)?;
                carrier = Some(driver.local_address());
                Box::new(driver)
            }
            #[cfg(feature = "nic")]
            Way::Nic(plug) => Box::new(open_nic(&plug, path, regions, station, seed)?),
            Way::Driver(_, open) => open(path, regions)?,
        };
        Ok(Opened { driver, carrier })
    }
}

#[cfg(feature = "nic")]
fn open_nic(
    Plug { wire, unit, pace, .. }: &Plug,
    path: PathId,
    regions: &Regions,
    station: [u8; 6],
    seed: &Seed,
) -> io::Result<Nic<Lanai<'static>>> {
    let port = wire.plug(Peer::Ethernet(station))?;
    // Where a connection is found in the card's index nobody else has to know.
    let mut random = super::builder::random_for(seed, path.0, b"the card");
    let card = lanai((random.next_u64(), random.next_u64()), *unit, *pace);
    Ok(Nic(NicDriver::new(path, path.0.min(255) as u8, card, port, regions, *unit)))
}

/// Frames of IP and ARP for a station of its own, and what is for all.
fn framing(station: [u8; 6]) -> Framing {
    const IPV4: u16 = 0x0800;
    const ARP: u16 = 0x0806;
    const IPV6: u16 = 0x86dd;
    Framing::Ethernet { filter: Filter::ethertypes([IPV4, ARP, IPV6]).station_and_groups(station) }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Way::Tap(config) if config.name.is_empty() => f.write_str("a TAP interface"),
            Way::Tap(config) => write!(f, "TAP interface {}", config.name),
            Way::Packet(config) => write!(f, "Ethernet on {}", config.interface),
            #[cfg(feature = "io-uring")]
            Way::UringPacket(config) => write!(f, "Ethernet on {} by io_uring", config.interface),
            Way::Xdp(config) => write!(f, "AF_XDP on {}", config.interface),
            Way::Tunnel(config) => write!(f, "a tunnel from {}", config.bind),
            #[cfg(feature = "nic")]
            Way::Nic(plug) => plug.fmt(f),
            Way::Driver(what, _) => f.write_str(what),
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({self})")
    }
}
