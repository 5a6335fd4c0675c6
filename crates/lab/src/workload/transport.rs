//! How the two ends of a path are opened; what carries frames of queue pairs beside AF_PACKET
//! (a tunnel over UDP, for everybody; AF_PACKET as a station that others have to find); and
//! the encapsulations of STP (an ethertype and an IP protocol number).

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use landfall_placement::{PathId, Peer, Seed};
use landfall_testbed::privileges::{self, Privilege};
use landfall_testbed::rivals::Side;
use landfall_testbed::{VethEnd, VethPair};
use landfall_testkit::engines::stream::Station;
use landfall_transport::Driver;
use landfall_transport::channel::{ChannelConfig, ChannelDriver, channel};
use landfall_transport::fault::{Faults, Faulty};
use landfall_transport::memory::Regions;
use landfall_transport::packet::{Filter, Framing, PacketConfig, PacketDriver};
use landfall_transport::rawip::{RawIpConfig, RawIpDriver};
use landfall_transport::tunnel::{TunnelConfig, TunnelDriver};
use landfall_transport::udp::{UdpConfig, UdpDriver};
use landfall_transport::uring::{UringPacketDriver, UringUdpConfig, UringUdpDriver};
use landfall_transport::xdp::{XdpConfig, XdpDriver};
use stp_core::wire::carrier;

use crate::machine;

/// Every path of this program has this number: each engine has one path.
pub const PATH: PathId = PathId(0);

const ETHERTYPE_IPV4: u16 = 0x0800;

/// How large a socket's receive buffer will be. Without privilege it is at most
/// twice `rmem_max` (`sock_setsockopt` doubles), and over loopback nobody paces a
/// sender but its window: more under way than fits the buffer is lost.
pub fn receive_buffer() -> u32 {
    const PLENTY: u32 = 32 << 20;
    if privileges::has(Privilege::NetAdmin) {
        return PLENTY;
    }
    let most = machine::number("/proc/sys/net/core/rmem_max").unwrap_or(208 << 10);
    u32::try_from(most).map_or(PLENTY, |most| most.saturating_mul(2).min(PLENTY))
}

/// Which end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Where messages come from, or who asks.
    Send,
    /// Where they go, or who answers.
    Receive,
}

/// Opens the ends of a path.
pub trait Transport: Sync {
    /// What moves the units.
    type Driver: Driver;

    /// Opens one end, on the thread that will drive it and in its namespace.
    /// Gives the driver, and the name by which the other end reaches it.
    fn open(&self, role: Role, side: &Side, regions: &Regions) -> Result<(Self::Driver, Peer)>;

    /// Tells the driver who is at the other end, where that helps.
    fn meet(&self, _driver: &mut Self::Driver, _peer: Peer) -> Result<()> {
        Ok(())
    }
}

/// UDP, for links of this MTU.
#[derive(Clone, Copy, Debug)]
pub struct Udp {
    /// The MTU of the link.
    pub mtu: u32,
}

impl Transport for Udp {
    type Driver = UdpDriver;

    fn open(&self, _role: Role, side: &Side, regions: &Regions) -> Result<(UdpDriver, Peer)> {
        let config = UdpConfig::new(SocketAddr::new(side.address, 0), self.mtu);
        let driver = UdpDriver::open(PATH, config, regions)
            .with_context(|| format!("cannot open a UDP path at {}", side.address))?;
        let peer = driver.local_address().into();
        Ok((driver, peer))
    }

    fn meet(&self, driver: &mut UdpDriver, peer: Peer) -> Result<()> {
        let Peer::Socket(peer) = peer else { return Ok(()) };
        driver.connect(peer).context("cannot connect a UDP path")
    }
}

/// UDP by io_uring, for links of this MTU.
#[derive(Clone, Copy, Debug)]
pub struct UringUdp {
    /// The MTU of the link.
    pub mtu: u32,
}

impl Transport for UringUdp {
    type Driver = UringUdpDriver;

    fn open(&self, _role: Role, side: &Side, regions: &Regions) -> Result<(UringUdpDriver, Peer)> {
        let config = UringUdpConfig::new(SocketAddr::new(side.address, 0), self.mtu);
        let driver = UringUdpDriver::open(PATH, config, regions)
            .with_context(|| format!("cannot open an io_uring path at {}", side.address))?;
        let peer = driver.local_address().into();
        Ok((driver, peer))
    }
}

/// Whole frames between the two ends of a cable.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The cable.
    pub pair: &'a VethPair,
}

/// A station at an end of a cable, with addresses that the kernel does not
/// have: to its own IP address it would answer that nobody listens, and frames
/// to its own Ethernet address go through its IP stack before they are dropped.
pub fn station(end: &VethEnd) -> Station<Ipv4Addr> {
    let [a, b, c, d] = end.ipv4.octets();
    let mut mac = end.mac.0;
    mac[5] ^= 0x80;
    Station { mac, ip: Ipv4Addr::new(a, b, c, d ^ 0x80), port: 7000 }
}

impl Packet<'_> {
    fn config(&self, role: Role) -> PacketConfig {
        let end = if role == Role::Send { &self.pair.a } else { &self.pair.b };
        let Station { mac, ip, port } = station(end);
        let filter = Filter::ethertypes([ETHERTYPE_IPV4]).station(mac).ipv4_to(ip).port(port);
        PacketConfig::new(end.name.as_str(), Framing::Ethernet { filter })
    }
}

impl Transport for Packet<'_> {
    type Driver = PacketDriver;

    fn open(&self, role: Role, _side: &Side, regions: &Regions) -> Result<(PacketDriver, Peer)> {
        let driver = PacketDriver::open(PATH, &self.config(role), regions)?;
        Ok((driver, Peer::Unaddressed))
    }
}

/// The same by io_uring.
#[derive(Clone, Copy, Debug)]
pub struct UringPacket<'a> {
    /// The cable.
    pub pair: &'a VethPair,
}

impl Transport for UringPacket<'_> {
    type Driver = UringPacketDriver;

    fn open(
        &self,
        role: Role,
        _side: &Side,
        regions: &Regions,
    ) -> Result<(UringPacketDriver, Peer)> {
        let config = Packet { pair: self.pair }.config(role);
        let driver = UringPacketDriver::open(PATH, &config, regions)
            .context("cannot open an io_uring path for frames")?;
        Ok((driver, Peer::Unaddressed))
    }
}

/// A protocol number of its own directly on IP, for links of this MTU.
#[derive(Clone, Copy, Debug)]
pub struct RawIp {
    /// The MTU of the link.
    pub mtu: u32,
}

/// For experiments (RFC 3692): nobody else speaks it on our own cable.
const IP_PROTOCOL: u8 = 253;

impl Transport for RawIp {
    type Driver = RawIpDriver;

    fn open(&self, _role: Role, side: &Side, regions: &Regions) -> Result<(RawIpDriver, Peer)> {
        let config = RawIpConfig::new(side.address, IP_PROTOCOL, self.mtu);
        let driver = RawIpDriver::open(PATH, &config, regions)?;
        let peer = Peer::Ip(driver.local_address());
        Ok((driver, peer))
    }

    fn meet(&self, driver: &mut RawIpDriver, peer: Peer) -> Result<()> {
        let Peer::Ip(peer) = peer else { return Ok(()) };
        driver.connect(peer).context("cannot connect a raw IP path")
    }
}

/// Frames of an ethertype between the two ends of a cable, through mapped rings.
#[derive(Clone, Copy, Debug)]
pub struct Xdp<'a> {
    /// The cable.
    pub pair: &'a VethPair,
}

/// For experiments on one's own network (RFC 9542).
const ETHERTYPE: u16 = 0x88b5;

impl Transport for Xdp<'_> {
    type Driver = XdpDriver;

    fn open(&self, role: Role, _side: &Side, regions: &Regions) -> Result<(XdpDriver, Peer)> {
        let end = if role == Role::Send { &self.pair.a } else { &self.pair.b };
        let config = XdpConfig::new(end.name.as_str(), ETHERTYPE);
        let driver = XdpDriver::open(PATH, &config, regions)?;
        let peer = Peer::Ethernet(driver.station());
        Ok((driver, peer))
    }
}

/// Within this process.
#[derive(Debug)]
pub struct Channel {
    ends: Mutex<[Option<ChannelDriver>; 2]>,
}

impl Channel {
    /// A channel between engines that use these regions.
    pub fn new(send: &Regions, receive: &Regions) -> io::Result<Self> {
        let (one, two) = channel(ChannelConfig::default(), (PATH, send), (PATH, receive))?;
        Ok(Self { ends: Mutex::new([Some(one), Some(two)]) })
    }
}

impl Transport for Channel {
    type Driver = ChannelDriver;

    fn open(&self, role: Role, _side: &Side, _regions: &Regions) -> Result<(ChannelDriver, Peer)> {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let end = ends[role as usize].take().context("this end of the channel is in use")?;
        Ok((end, Peer::Node(role as u32)))
    }
}

/// Another transport, on which things go wrong in both directions.
#[derive(Clone, Copy, Debug)]
pub struct WithFaults<T> {
    /// The path without faults.
    pub inner: T,
    /// What goes wrong.
    pub faults: Faults,
    /// When it does.
    pub seed: Seed,
}

impl<T: Transport> Transport for WithFaults<T> {
    type Driver = Faulty<T::Driver>;

    fn open(&self, role: Role, side: &Side, regions: &Regions) -> Result<(Self::Driver, Peer)> {
        let (driver, peer) = self.inner.open(role, side, regions)?;
        let mut seed = self.seed;
        seed[0] ^= role as u8; // each direction has its own bad luck
        let faulty = Faulty::new(driver, self.faults, seed, regions)
            .context("cannot put faults around a path")?;
        Ok((faulty, peer))
    }
}

const ARP: u16 = 0x0806;

/// Frames inside of UDP, for a link of this MTU.
#[derive(Clone, Copy, Debug)]
pub struct Tunnel {
    /// The MTU of the link.
    pub mtu: u32,
}

impl Transport for Tunnel {
    type Driver = TunnelDriver;

    fn open(&self, _role: Role, side: &Side, regions: &Regions) -> Result<(TunnelDriver, Peer)> {
        let here = SocketAddr::new(side.address, 0);
        let driver = TunnelDriver::open(PATH, &TunnelConfig::new(here, self.mtu), regions)
            .with_context(|| format!("cannot open a tunnel at {}", side.address))?;
        let peer = driver.local_address().into();
        Ok((driver, peer))
    }

    fn meet(&self, driver: &mut TunnelDriver, peer: Peer) -> Result<()> {
        let Peer::Socket(peer) = peer else { return Ok(()) };
        Ok(driver.add_peer(peer)?)
    }
}

/// A station at the end of a cable that answers when the kernel at the other
/// end asks who has its address.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// The cable.
    pub pair: &'a VethPair,
}

impl Transport for Found<'_> {
    type Driver = PacketDriver;

    fn open(&self, role: Role, _side: &Side, regions: &Regions) -> Result<(PacketDriver, Peer)> {
        let end = if role == Role::Send { &self.pair.a } else { &self.pair.b };
        let own = station(end);
        let filter =
            Filter::ethertypes([ETHERTYPE_IPV4, ARP]).station_and_groups(own.mac).ipv4_to(own.ip);
        let config = PacketConfig::new(end.name.as_str(), Framing::Ethernet { filter });
        let driver = PacketDriver::open(PATH, &config, regions)?;
        Ok((driver, Peer::Unaddressed))
    }
}

fn interface(pair: &VethPair, role: Role) -> &str {
    if role == Role::Send { &pair.a.name } else { &pair.b.name }
}

/// Frames of ethertype 0x8181 by plain calls.
#[derive(Clone, Copy, Debug)]
pub struct Ethertype<'a> {
    /// The cable.
    pub pair: &'a VethPair,
}

impl Transport for Ethertype<'_> {
    type Driver = PacketDriver;

    fn open(&self, role: Role, _side: &Side, regions: &Regions) -> Result<(PacketDriver, Peer)> {
        let framing = Framing::Payload { ethertype: carrier::ETHERTYPE };
        let config = PacketConfig::new(interface(self.pair, role), framing);
        let driver = PacketDriver::open(PATH, &config, regions)?;
        let peer = Peer::Ethernet(driver.station());
        Ok((driver, peer))
    }
}

/// The same through mapped rings.
#[derive(Clone, Copy, Debug)]
pub struct Rings<'a> {
    /// The cable.
    pub pair: &'a VethPair,
}

impl Transport for Rings<'_> {
    type Driver = XdpDriver;

    fn open(&self, role: Role, _side: &Side, regions: &Regions) -> Result<(XdpDriver, Peer)> {
        let config = XdpConfig::new(interface(self.pair, role), carrier::ETHERTYPE);
        let driver = XdpDriver::open(PATH, &config, regions)?;
        let peer = Peer::Ethernet(driver.station());
        Ok((driver, peer))
    }
}

/// Packets of IP protocol 118, for links of this MTU.
#[derive(Clone, Copy, Debug)]
pub struct OverIp {
    /// The MTU of the link.
    pub mtu: u32,
}

impl Transport for OverIp {
    type Driver = RawIpDriver;

    fn open(&self, _role: Role, side: &Side, regions: &Regions) -> Result<(RawIpDriver, Peer)> {
        let config = RawIpConfig::new(side.address, carrier::IP_PROTOCOL, self.mtu);
        let driver = RawIpDriver::open(PATH, &config, regions)?;
        let peer = Peer::Ip(driver.local_address());
        Ok((driver, peer))
    }

    fn meet(&self, driver: &mut RawIpDriver, peer: Peer) -> Result<()> {
        let Peer::Ip(peer) = peer else { return Ok(()) };
        driver.connect(peer).context("cannot connect a raw IP path")
    }
}
