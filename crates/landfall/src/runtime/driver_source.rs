//! How a path is opened: one of the drivers of `landfall-transport`, or one that
//! is handed in.

use std::fmt;
use std::io;
#[cfg(any(feature = "clan", feature = "stp"))]
use std::net::IpAddr;

#[cfg(feature = "faults")]
use landfall_placement::Seed;
use landfall_placement::{Engine, PathId, Peer};
use landfall_transport::Driver;
#[cfg(feature = "faults")]
use landfall_transport::fault::Faults;
use landfall_transport::memory::Regions;
use landfall_transport::packet::{Framing, PacketConfig, PacketDriver};
use landfall_transport::rawip::{RawIpConfig, RawIpDriver};
use landfall_transport::udp::{UdpConfig, UdpDriver};
use landfall_transport::udp_packet::{UdpPacketConfig, UdpPacketDriver};
#[cfg(feature = "io-uring")]
use landfall_transport::uring::{
    UringPacketDriver, UringUdpConfig, UringUdpDriver, UringUdpPacketDriver,
};
use landfall_transport::xdp::{self, XdpConfig, XdpDriver};

use super::shared_path::SharedPath;
use super::{AnyDriver, Impairment, Path, PeerKind, Reach};

type Open<E> =
    dyn FnOnce(PathId, &Regions, &Impairment) -> io::Result<Box<dyn AnyDriver<E>>> + Send;

/// Which driver a path has.
pub(crate) enum DriverSource<E> {
    Udp(UdpConfig),
    #[cfg_attr(
        not(any(feature = "nic", feature = "stp")),
        expect(dead_code, reason = "only STP goes this way")
    )]
    UdpPacket(UdpPacketConfig),
    /// One of several sockets of a path, which are opened together.
    Member(Box<Member>),
    Packet(PacketConfig),
    #[cfg_attr(
        not(any(feature = "nic", feature = "stp")),
        expect(dead_code, reason = "only STP goes this way")
    )]
    RawIp(RawIpConfig),
    Xdp(XdpConfig),
    #[cfg(feature = "io-uring")]
    UringUdp(UringUdpConfig),
    #[cfg(feature = "io-uring")]
    #[cfg_attr(
        not(any(feature = "nic", feature = "stp")),
        expect(dead_code, reason = "only STP goes this way")
    )]
    UringUdpPacket(UdpPacketConfig),
    #[cfg(feature = "io-uring")]
    UringPacket(PacketConfig),
    HandedIn(PeerKind, Box<Open<E>>),
    /// Any of these, on which things go wrong.
    #[cfg(feature = "faults")]
    Impaired(Box<Self>, Impairment),
}

/// One of several drivers of one path, each for an engine of its own.
pub(crate) enum Member {
    Udp(UdpDriver),
    UdpPacket(UdpPacketDriver),
    Packet(PacketDriver),
}

impl Member {
    /// Where peers reach all of them.
    fn local(&self) -> Peer {
        match self {
            Self::Udp(driver) => Peer::Socket(driver.local_address()),
            Self::UdpPacket(driver) => Peer::Socket(driver.local_address()),
            Self::Packet(driver) => Peer::Ethernet(driver.station()),
        }
    }
}

impl<E: Engine + 'static> DriverSource<E> {
    /// Frames whose payload is a unit, of this ethertype.
    pub(crate) fn ethernet(config: PacketConfig, ethertype: u16) -> Self {
        Self::Packet(PacketConfig { framing: Framing::Payload { ethertype }, ..config })
    }

    /// The same by AF_XDP.
    pub(crate) fn xdp(config: XdpConfig, ethertype: u16) -> Self {
        let framing = xdp::Framing::Payload { ethertype };
        Self::Xdp(XdpConfig { framing, ..config })
    }

    /// The same by `io_uring`.
    #[cfg(feature = "io-uring")]
    pub(crate) fn ethernet_uring(config: PacketConfig, ethertype: u16) -> Self {
        Self::UringPacket(PacketConfig { framing: Framing::Payload { ethertype }, ..config })
    }

    /// A driver that is opened with the others.
    pub(crate) fn driver<D: Driver + Send + 'static>(
        open: impl FnOnce(PathId, &Regions) -> io::Result<D> + Send + 'static,
    ) -> Self {
        Self::HandedIn(
            PeerKind::Other,
            Box::new(move |path, regions, impairment| {
                impairment.around(open(path, regions)?, regions)
            }),
        )
    }

    /// A driver that is open, between two engines of this process.
    pub(crate) fn joined(driver: impl Driver + Send + 'static) -> Self {
        let open = move |_: PathId, regions: &Regions, impairment: &Impairment| {
            impairment.around(driver, regions)
        };
        Self::HandedIn(PeerKind::Node, Box::new(open))
    }

    /// Where it is bound, if it is UDP by a socket, and how.
    #[cfg(feature = "clan")]
    pub(crate) fn udp(&self) -> Option<UdpConfig> {
        match self {
            Self::Udp(config) => Some(*config),
            #[cfg(feature = "io-uring")]
            Self::UringUdp(config) => Some(config.udp),
            #[cfg(feature = "faults")]
            Self::Impaired(source, _) => source.udp(),
            _ => None,
        }
    }

    /// What it is, if several engines can share it.
    pub(crate) fn as_shared(&self) -> Option<SharedPath> {
        match self {
            Self::Udp(config) => Some(SharedPath::Udp(*config)),
            Self::UdpPacket(config) => Some(SharedPath::UdpPacket(config.clone())),
            Self::Packet(config) => Some(SharedPath::Ethernet(config.clone())),
            _ => None,
        }
    }

    /// It hears this group of stations, too. Says whether it can.
    #[cfg(feature = "clan")]
    pub(crate) fn hear_group(&mut self, group: [u8; 6]) -> bool {
        match self {
            Self::Packet(config) => config.group = Some(group),
            #[cfg(feature = "io-uring")]
            Self::UringPacket(config) => config.group = Some(group),
            #[cfg(feature = "faults")]
            Self::Impaired(source, _) => return source.hear_group(group),
            _ => return false,
        }
        true
    }

    /// The same way for another engine; a driver that was handed in is for this one.
    #[cfg(feature = "nic")]
    pub(crate) fn for_other<O>(self) -> Result<DriverSource<O>, Box<Self>> {
        Ok(match self {
            Self::Udp(config) => DriverSource::Udp(config),
            Self::UdpPacket(config) => DriverSource::UdpPacket(config),
            Self::Member(driver) => DriverSource::Member(driver),
            Self::Packet(config) => DriverSource::Packet(config),
            Self::RawIp(config) => DriverSource::RawIp(config),
            Self::Xdp(config) => DriverSource::Xdp(config),
            #[cfg(feature = "io-uring")]
            Self::UringUdp(config) => DriverSource::UringUdp(config),
            #[cfg(feature = "io-uring")]
            Self::UringUdpPacket(config) => DriverSource::UringUdpPacket(config),
            #[cfg(feature = "io-uring")]
            Self::UringPacket(config) => DriverSource::UringPacket(config),
            Self::HandedIn(..) => return Err(Box::new(self)),
            #[cfg(feature = "faults")]
            Self::Impaired(..) => return Err(Box::new(self)),
        })
    }

    /// How far what is sent over it gets. Of a driver that was handed in nothing is known.
    #[cfg(any(feature = "clan", feature = "stp"))]
    pub(crate) fn reach(&self) -> Reach {
        let ip = match self {
            // What is heard of a group comes from where its interface leads.
            Self::Udp(UdpConfig { interface: Some(interface), .. }) => IpAddr::V4(*interface),
            Self::Udp(config) => config.bind.ip(),
            Self::Member(member) => match member.local() {
                Peer::Socket(local) => local.ip(),
                _ => return Reach::Network,
            },
            Self::RawIp(config) => config.bind,
            #[cfg(feature = "io-uring")]
            Self::UringUdp(config) => config.udp.bind.ip(),
            Self::HandedIn(PeerKind::Node, _) => return Reach::Process,
            #[cfg(feature = "faults")]
            Self::Impaired(source, _) => return source.reach(),
            _ => return Reach::Network,
        };
        if ip.to_canonical().is_loopback() { Reach::Host } else { Reach::Network }
    }

    /// Is it on a network that others share, so that it should yield to them?
    pub(crate) const fn is_shared(&self) -> bool {
        match self {
            Self::Udp(_) | Self::UdpPacket(_) | Self::RawIp(_) => true,
            Self::Member(member) => !matches!(**member, Member::Packet(_)),
            #[cfg(feature = "io-uring")]
            Self::UringUdp(_) | Self::UringUdpPacket(_) => true,
            #[cfg(feature = "faults")]
            Self::Impaired(source, _) => source.is_shared(),
            _ => false,
        }
    }

    /// The same path, on which things go wrong.
    #[cfg(feature = "faults")]
    pub(crate) fn impaired(self, faults: Faults, seed: Seed) -> Self {
        Self::Impaired(Box::new(self), Impairment::new(faults, seed))
    }

    pub(crate) fn open(self, path: PathId, regions: &Regions) -> io::Result<Path<E>> {
        match self {
            #[cfg(feature = "faults")]
            Self::Impaired(source, impairment) => source.open_with(path, regions, &impairment),
            source => source.open_with(path, regions, &Impairment::default()),
        }
    }

    fn open_with(
        self,
        path: PathId,
        regions: &Regions,
        impairment: &Impairment,
    ) -> io::Result<Path<E>> {
        let (driver, kind, local): (Box<dyn AnyDriver<E>>, _, _) = match self {
            Self::Udp(config) => {
                let driver = UdpDriver::open(path, config, regions)?;
                let local = Peer::Socket(driver.local_address());
                (impairment.around(driver, regions)?, PeerKind::Socket, Some(local))
            }
            Self::UdpPacket(config) => {
                let driver = UdpPacketDriver::open(path, &config, regions)?;
                let local = Peer::Socket(driver.local_address());
                (impairment.around(driver, regions)?, PeerKind::Socket, Some(local))
            }
            Self::Member(member) => {
                let local = Some(member.local());
                match *member {
                    Member::Udp(driver) => {
                        (impairment.around(driver, regions)?, PeerKind::Socket, local)
                    }
                    Member::UdpPacket(driver) => {
                        (impairment.around(driver, regions)?, PeerKind::Socket, local)
                    }
                    Member::Packet(driver) => {
                        (impairment.around(driver, regions)?, PeerKind::Station, local)
                    }
                }
            }
            Self::Packet(config) => {
                let driver = PacketDriver::open(path, &config, regions)?;
                let local = Peer::Ethernet(driver.station());
                (impairment.around(driver, regions)?, PeerKind::Station, Some(local))
            }
            Self::RawIp(config) => {
                let driver = RawIpDriver::open(path, &config, regions)?;
                let local = Peer::Ip(driver.local_address());
                (impairment.around(driver, regions)?, PeerKind::Host, Some(local))
            }
            Self::Xdp(config) => {
                let driver = XdpDriver::open(path, &config, regions)?;
                let local = Peer::Ethernet(driver.station());
                (impairment.around(driver, regions)?, PeerKind::Station, Some(local))
            }
            #[cfg(feature = "io-uring")]
            Self::UringUdp(config) => {
                let driver = UringUdpDriver::open(path, config, regions)?;
                let local = Peer::Socket(driver.local_address());
                (impairment.around(driver, regions)?, PeerKind::Socket, Some(local))
            }
            #[cfg(feature = "io-uring")]
            Self::UringUdpPacket(config) => {
                let driver = UringUdpPacketDriver::open(path, &config, regions)?;
                let local = Peer::Socket(driver.local_address());
                (impairment.around(driver, regions)?, PeerKind::Socket, Some(local))
            }
            #[cfg(feature = "io-uring")]
            Self::UringPacket(config) => {
                let driver = UringPacketDriver::open(path, &config, regions)?;
                let local = Peer::Ethernet(driver.station());
                (impairment.around(driver, regions)?, PeerKind::Station, Some(local))
            }
            Self::HandedIn(kind, open) => (open(path, regions, impairment)?, kind, None),
            #[cfg(feature = "faults")]
            Self::Impaired(source, first) => return source.open_with(path, regions, &first),
        };
        Ok(Path::new(driver, kind, local))
    }
}

impl<E> fmt::Display for DriverSource<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(config) => write!(f, "UDP on {}", config.bind),
            Self::UdpPacket(config) => write!(f, "UDP on {} by packets", config.udp.bind),
            Self::Member(member) => match **member {
                Member::Udp(ref driver) => write!(f, "UDP on {}", driver.local_address()),
                Member::UdpPacket(ref driver) => {
                    write!(f, "UDP on {} by packets", driver.local_address())
                }
                Member::Packet(_) => f.write_str("Ethernet"),
            },
            Self::Packet(config) => write!(f, "Ethernet on {}", config.interface),
            Self::RawIp(config) => write!(f, "IP on {}", config.bind),
            Self::Xdp(config) => write!(f, "AF_XDP on {}", config.interface),
            #[cfg(feature = "io-uring")]
            Self::UringUdp(_) => f.write_str("UDP by io_uring"),
            #[cfg(feature = "io-uring")]
            Self::UringUdpPacket(config) => {
                write!(f, "UDP on {} by packets and io_uring", config.udp.bind)
            }
            #[cfg(feature = "io-uring")]
            Self::UringPacket(config) => write!(f, "Ethernet on {} by io_uring", config.interface),
            Self::HandedIn(..) => f.write_str("a driver that was handed in"),
            #[cfg(feature = "faults")]
            Self::Impaired(source, _) => write!(f, "{source}, with faults"),
        }
    }
}
