//! Over what an adapter is on the network: [`Link`]; and [`Ethernet`]: the kinds of link that
//! this machine has, and how each is opened.

use std::net::SocketAddr;
use std::str::FromStr;
use std::{fmt, io};

use landfall_inet::ethernet::{ARP, IPV4, IPV6};
use landfall_placement::{Engine, PathId, Peer, Seed};
#[cfg(feature = "faults")]
use landfall_transport::fault::Faults;
use landfall_transport::memory::Regions;
use landfall_transport::packet::{Filter, Framing, Interface, PacketConfig, PacketDriver};
use landfall_transport::tap::{TapConfig, TapDriver};
use landfall_transport::tunnel::{TunnelConfig, TunnelDriver};
#[cfg(feature = "io-uring")]
use landfall_transport::uring::UringPacketDriver;
use landfall_transport::xdp::{XdpConfig, XdpDriver};
use landfall_transport::{Driver, member, xdp};
#[cfg(feature = "nic")]
use nic_firmware_model::driver::{Cable, NicDriver, lanai};
use qpip::Adapter;
#[cfg(feature = "nic")]
use qpip::offload::HashSecret;

use super::error::OpenError;
#[cfg(feature = "nic")]
use crate::nic::{Pace, Wire};
#[cfg(feature = "nic")]
use crate::runtime::adapter_source::{AdapterDriver, AdapterSource, far, number};
use crate::runtime::{AnyDriver, Impairment, Path, PeerKind};

/// An Ethernet that an adapter is a station of. All of them carry whole frames;
/// the adapter has a station address and IP addresses of its own there, and
/// answers ARP, neighbour discovery and echoes itself.
///
/// | link | who is at the other end | privileges |
/// | --- | --- | --- |
/// | [`tap`](Self::tap) | the kernel of this machine, and whatever it forwards to | `CAP_NET_ADMIN`, or an interface that root made for you |
/// | [`packet`](Self::packet), [`packet_uring`](Self::packet_uring) | anyone who is on that interface's network; not this machine's kernel | `CAP_NET_RAW` |
/// | [`tunnel`](Self::tunnel) | other tunnels: frames inside of UDP | none |
/// | [`Builder::pair`](super::Builder::pair) | another adapter of this process | none |
/// | [`xdp`](Self::xdp) | as with `packet` | `CAP_NET_RAW`, `CAP_NET_ADMIN`, `CAP_BPF` |
/// | [`driver`](Self::driver) | as it says | as it says |
#[cfg_attr(
    feature = "nic",
    doc = "| [`nic`](Self::nic) | the other cards on that wire, in this process | none |"
)]
pub struct Link(FrameSource);

type Open = dyn FnOnce(PathId, &Regions) -> io::Result<Box<dyn AnyDriver<Adapter>>> + Send;

enum FrameSource {
    Ethernet(Ethernet),
    #[cfg(feature = "nic")]
    Adapter(AdapterSource),
    /// A card in front of an Ethernet.
    #[cfg(feature = "nic")]
    Behind(Ethernet, Pace),
    HandedIn(&'static str, Box<Open>),
    /// An Ethernet on which things go wrong.
    #[cfg(feature = "faults")]
    Impaired(Ethernet, Impairment),
}

/// What is known of a link that is open, beside its path.
#[derive(Debug)]
pub(crate) struct LinkInfo {
    pub(crate) what: String,
    pub(crate) station: [u8; 6],
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
        Self(FrameSource::Ethernet(Ethernet::Tap(config)))
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
        Self(FrameSource::Ethernet(Ethernet::Packet(config)))
    }

    /// Frames of an Ethernet interface by way of `io_uring`.
    #[cfg(feature = "io-uring")]
    #[must_use]
    pub fn packet_uring(interface: impl Into<Interface>) -> Self {
        let config = PacketConfig::new(interface, framing([0; 6]));
        Self(FrameSource::Ethernet(Ethernet::UringPacket(config)))
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
        Self::xdp_with(XdpConfig::station(interface, [0; 6]))
    }

    /// The same with all that can be chosen; the station is the adapter's.
    #[must_use]
    pub const fn xdp_with(config: XdpConfig) -> Self {
        Self(FrameSource::Ethernet(Ethernet::Xdp(config)))
    }

    /// Whole frames inside of UDP, from a local address (port 0: any) to these
    /// peers, over interfaces with an MTU of 1500. Without peers, anyone who sends
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
        Self(FrameSource::Ethernet(Ethernet::Tunnel(config)))
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
        Self(FrameSource::Adapter(AdapterSource::on(wire.clone(), Peer::Unaddressed, frame, pace)))
    }

    /// The same link with a LANai 9 in front of it: its frames go through the card, and
    /// others are where they were. A driver that was handed in stays what it is.
    #[cfg(feature = "nic")]
    #[must_use]
    pub fn behind_nic(self, pace: Pace) -> Self {
        Self(match self.0 {
            FrameSource::Ethernet(ethernet) => FrameSource::Behind(ethernet, pace),
            other => other,
        })
    }

    /// The same link with faults on purpose, drawn from this seed, for tests: see
    /// [`Transport::with_faults`](crate::stp::Transport::with_faults). Adapters of this
    /// process have the faults of their wire instead, and a driver of your own is wrapped
    /// before it is handed in.
    #[cfg(feature = "faults")]
    #[must_use]
    pub fn with_faults(self, faults: Faults, seed: Seed) -> Self {
        Self(match self.0 {
            FrameSource::Ethernet(ethernet) | FrameSource::Impaired(ethernet, _) => {
                FrameSource::Impaired(ethernet, Impairment::new(faults, seed))
            }
            other => other,
        })
    }

    /// What configuration says that it shall be.
    #[cfg(feature = "nic")]
    pub(super) fn configured(self) -> io::Result<Self> {
        let Some(chosen) = crate::nic::chosen()? else { return Ok(self) };
        Ok(match self.0 {
            FrameSource::Ethernet(ethernet) if chosen.alone => {
                let (name, frame) = ethernet.wire();
                Self(FrameSource::Adapter(AdapterSource::of_frames(&name, frame, chosen.pace)))
            }
            other => Self(other).behind_nic(chosen.pace),
        })
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
            FrameSource::Adapter(_) | FrameSource::Behind(..) => true,
            _ => false,
        }
    }

    /// Do frames have their tags of VLANs there? The kernel takes them off what comes over an
    /// interface of its own.
    pub(super) const fn carries_tags(&self) -> bool {
        match &self.0 {
            FrameSource::Ethernet(ethernet) => ethernet.carries_tags(),
            #[cfg(feature = "nic")]
            FrameSource::Behind(ethernet, _) => ethernet.carries_tags(),
            #[cfg(feature = "faults")]
            FrameSource::Impaired(ethernet, _) => ethernet.carries_tags(),
            #[cfg(feature = "nic")]
            FrameSource::Adapter(_) => true,
            FrameSource::HandedIn(..) => true,
        }
    }

    pub(super) fn named<D: Driver + Send + 'static>(
        what: &'static str,
        open: impl FnOnce(PathId, &Regions) -> io::Result<D> + Send + 'static,
    ) -> Self {
        Self(FrameSource::HandedIn(
            what,
            Box::new(move |path, regions| Ok(Box::new(open(path, regions)?))),
        ))
    }

    /// Can several adapters be one station there?
    pub(super) const fn is_shareable(&self) -> bool {
        match &self.0 {
            FrameSource::Ethernet(ethernet) => ethernet.is_shareable(),
            #[cfg(feature = "faults")]
            FrameSource::Impaired(ethernet, _) => ethernet.is_shareable(),
            #[cfg(feature = "nic")]
            FrameSource::Adapter(_) | FrameSource::Behind(..) => false,
            FrameSource::HandedIn(..) => false,
        }
    }

    /// Opens it for a station with this address, in this many adapters of one with this seed.
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
        count: usize,
    ) -> io::Result<Vec<(Path<Adapter>, LinkInfo)>> {
        let what = self.to_string();
        let drivers: Vec<Found<Adapter>> = match self.0 {
            FrameSource::Ethernet(ethernet) => {
                ethernet.open_all(path, regions, station, &Impairment::default(), count)?
            }
            #[cfg(feature = "faults")]
            FrameSource::Impaired(ethernet, impairment) => {
                ethernet.open_all(path, regions, station, &impairment, count)?
            }
            #[cfg(feature = "nic")]
            FrameSource::Adapter(adapter) => {
                let (cable, unit) = adapter.port(station)?;
                vec![(behind_card(cable, (unit, adapter.pace), path, regions, seed), None)]
            }
            #[cfg(feature = "nic")]
            FrameSource::Behind(ethernet, pace) => {
                let (far, carrier) = far(path, |regions| {
                    ethernet.open(path, regions, station, &Impairment::default())
                })?;
                let how = (far.unit(), pace);
                vec![(behind_card(Box::new(far), how, path, regions, seed), carrier)]
            }
            FrameSource::HandedIn(_, open) => vec![(open(path, regions)?, None)],
        };
        let opened = drivers.into_iter().map(|(driver, carrier)| {
            let path = Path::new(driver, PeerKind::Station, Some(Peer::Ethernet(station)));
            (path, LinkInfo { what: what.clone(), station, carrier })
        });
        Ok(opened.collect())
    }
}

/// A card on this cable, for frames of such a length and of such a pace, in front of an
/// adapter with this seed.
#[cfg(feature = "nic")]
fn behind_card(
    cable: Box<dyn Cable>,
    (frame, pace): (u32, Pace),
    path: PathId,
    regions: &Regions,
    seed: &Seed,
) -> Box<dyn AnyDriver<Adapter>> {
    // Where a connection is found in the card's index nobody else has to know.
    let mut random = super::builder::random_for(seed, path.0, b"the card");
    let card = lanai(HashSecret::new(random.next_u64(), random.next_u64()), frame, pace);
    Box::new(AdapterDriver(NicDriver::new(path, number(path), card, cable, regions, frame)))
}

/// As users write it where they choose a link: `tap:lf0`, `packet:eth0`, `xdp:eth0`; a tunnel
/// with its own end, and the other ends where they are known: `udp:192.0.2.1:8182,192.0.2.2:8182`.
///
/// ```
/// use landfall::qpip::Link;
///
/// assert_eq!("packet:eth0".parse::<Link>()?.to_string(), "Ethernet on eth0");
/// assert!("eth0".parse::<Link>().is_err());
/// # Ok::<(), landfall::qpip::OpenError>(())
/// ```
impl FromStr for Link {
    type Err = OpenError;

    fn from_str(text: &str) -> Result<Self, OpenError> {
        let bad = || OpenError::BadLink(text.to_owned());
        let (kind, name) =
            text.split_once(':').filter(|(_, name)| !name.is_empty()).ok_or_else(bad)?;
        match kind {
            "tap" => Ok(Self::tap(name)),
            "packet" => Ok(Self::packet(name)),
            "xdp" => Ok(Self::xdp(name)),
            "udp" => {
                let ends: Result<Vec<SocketAddr>, _> = name.split(',').map(str::parse).collect();
                let ends = ends.map_err(|_| bad())?;
                let (local, peers) = ends.split_first().ok_or_else(bad)?;
                Ok(Self::tunnel(*local, peers.iter().copied()))
            }
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            FrameSource::Ethernet(ethernet) => ethernet.fmt(f),
            #[cfg(feature = "nic")]
            FrameSource::Adapter(adapter) => adapter.fmt(f),
            #[cfg(feature = "nic")]
            FrameSource::Behind(ethernet, _) => write!(f, "a simulated adapter before {ethernet}"),
            FrameSource::HandedIn(what, _) => f.write_str(what),
            #[cfg(feature = "faults")]
            FrameSource::Impaired(ethernet, _) => write!(f, "{ethernet}, with faults"),
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({self})")
    }
}

/// A kind of Ethernet link, with what it takes to open one.
pub(super) enum Ethernet {
    Tap(TapConfig),
    Packet(PacketConfig),
    #[cfg(feature = "io-uring")]
    UringPacket(PacketConfig),
    Xdp(XdpConfig),
    Tunnel(TunnelConfig),
}

/// A driver, and where the other ends of a tunnel send to.
type Found<E> = (Box<dyn AnyDriver<E>>, Option<SocketAddr>);

impl Ethernet {
    const fn carries_tags(&self) -> bool {
        matches!(self, Self::Tap(_) | Self::Tunnel(_))
    }

    const fn is_shareable(&self) -> bool {
        matches!(self, Self::Tap(_) | Self::Packet(_) | Self::Xdp(_))
    }

    /// Opens it for a station with this address, which this many adapters are.
    fn open_all<E: Engine + 'static>(
        self,
        path: PathId,
        regions: &Regions,
        station: [u8; 6],
        impairment: &Impairment,
        count: usize,
    ) -> io::Result<Vec<Found<E>>> {
        if count == 1 {
            return Ok(vec![self.open(path, regions, station, impairment)?]);
        }
        match self {
            Self::Tap(config) => {
                let queues = TapDriver::open_group(path, &config, regions, count)?;
                among_members(queues, station, regions, impairment)
            }
            Self::Packet(config) => {
                let config = PacketConfig { framing: framing(station), ..config };
                let sockets = PacketDriver::open_by_flow(path, &config, regions, count)?;
                among_members(sockets, station, regions, impairment)
            }
            Self::Xdp(config) => {
                let config = Self::xdp_for(config, station);
                let queues = XdpDriver::open_group(path, &config, regions, count as u32)?;
                among_members(queues, station, regions, impairment)
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn xdp_for(config: XdpConfig, station: [u8; 6]) -> XdpConfig {
        let groups = matches!(config.framing, xdp::Framing::Frames { groups: true, .. });
        XdpConfig { framing: xdp::Framing::Frames { station, groups }, ..config }
    }

    /// Opens it for a station with this address.
    pub(super) fn open<E: Engine + 'static>(
        self,
        path: PathId,
        regions: &Regions,
        station: [u8; 6],
        impairment: &Impairment,
    ) -> io::Result<Found<E>> {
        Ok(match self {
            Self::Tap(config) => {
                (impairment.around(TapDriver::open(path, &config, regions)?, regions)?, None)
            }
            Self::Packet(config) => {
                let config = PacketConfig { framing: framing(station), ..config };
                (impairment.around(PacketDriver::open(path, &config, regions)?, regions)?, None)
            }
            #[cfg(feature = "io-uring")]
            Self::UringPacket(config) => {
                let config = PacketConfig { framing: framing(station), ..config };
                (
                    impairment.around(UringPacketDriver::open(path, &config, regions)?, regions)?,
                    None,
                )
            }
            Self::Xdp(config) => {
                let config = Self::xdp_for(config, station);
                (impairment.around(XdpDriver::open(path, &config, regions)?, regions)?, None)
            }
            Self::Tunnel(config) => {
                let driver = TunnelDriver::open(path, &config, regions)?;
                let carrier = driver.local_address();
                (impairment.around(driver, regions)?, Some(carrier))
            }
        })
    }

    /// The wire that stands in for it where cards of this process are alone, and the
    /// longest frame, if it says so.
    #[cfg(feature = "nic")]
    pub(super) fn wire(&self) -> (String, Option<u32>) {
        match self {
            Self::Tap(config) => (config.name.clone(), None),
            Self::Packet(config) => (config.interface.to_string(), None),
            #[cfg(feature = "io-uring")]
            Self::UringPacket(config) => (config.interface.to_string(), None),
            Self::Xdp(config) => (config.interface.to_string(), None),
            Self::Tunnel(config) => ("inside of tunnels".to_owned(), Some(config.frame)),
        }
    }
}

/// Makes drivers of one station members, each with what impairs its path around it.
fn among_members<E: Engine + 'static, D: Driver + Send + 'static>(
    drivers: Vec<D>,
    station: [u8; 6],
    regions: &Regions,
    impairment: &Impairment,
) -> io::Result<Vec<Found<E>>> {
    let members = member::members(drivers, station, regions)?;
    members.into_iter().map(|member| Ok((impairment.around(member, regions)?, None))).collect()
}

/// Frames of IP and ARP for a station of its own, and what is for all.
pub(super) fn framing(station: [u8; 6]) -> Framing {
    Framing::Ethernet { filter: Filter::ethertypes([IPV4, ARP, IPV6]).station_and_groups(station) }
}

impl fmt::Display for Ethernet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tap(config) if config.name.is_empty() => f.write_str("a TAP interface"),
            Self::Tap(config) => write!(f, "TAP interface {}", config.name),
            Self::Packet(config) => write!(f, "Ethernet on {}", config.interface),
            #[cfg(feature = "io-uring")]
            Self::UringPacket(config) => write!(f, "Ethernet on {} by io_uring", config.interface),
            Self::Xdp(config) => write!(f, "AF_XDP on {}", config.interface),
            Self::Tunnel(config) => write!(f, "a tunnel from {}", config.bind),
        }
    }
}
