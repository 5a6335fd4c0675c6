//! [`Ethernet`]: the kinds of link that this machine has, and how each is opened.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use landfall_inet::ethernet::{ARP, IPV4, IPV6};
use landfall_placement::{Engine, PathId};
use landfall_transport::memory::Regions;
use landfall_transport::packet::{Filter, Framing, PacketConfig, PacketDriver};
use landfall_transport::tap::{TapConfig, TapDriver};
use landfall_transport::tunnel::{TunnelConfig, TunnelDriver};
#[cfg(feature = "io-uring")]
use landfall_transport::uring::UringPacketDriver;
use landfall_transport::xdp::{self, XdpConfig, XdpDriver};

use crate::runtime::AnyDriver;

/// See the module.
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
    /// Opens it for a station with this address.
    pub(super) fn open<E: Engine + 'static>(
        self,
        path: PathId,
        regions: &Regions,
        station: [u8; 6],
    ) -> io::Result<Found<E>> {
        Ok(match self {
            Self::Tap(config) => (Box::new(TapDriver::open(path, &config, regions)?), None),
            Self::Packet(config) => {
                let config = PacketConfig { framing: framing(station), ..config };
                (Box::new(PacketDriver::open(path, &config, regions)?), None)
            }
            #[cfg(feature = "io-uring")]
            Self::UringPacket(config) => {
                let config = PacketConfig { framing: framing(station), ..config };
                (Box::new(UringPacketDriver::open(path, &config, regions)?), None)
            }
            Self::Xdp(config) => {
                let groups = matches!(config.framing, xdp::Framing::Frames { groups: true, .. });
                let framing = xdp::Framing::Frames { station, groups };
                let config = XdpConfig { framing, ..config };
                (Box::new(XdpDriver::open(path, &config, regions)?), None)
            }
            Self::Tunnel(config) => {
                let driver = TunnelDriver::open(path, &config, regions)?;
                let carrier = driver.local_address();
                (Box::new(driver), Some(carrier))
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
