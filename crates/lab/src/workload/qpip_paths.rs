//! What carries whole frames of queue pairs, beside AF_PACKET: a tunnel over
//! UDP, for everybody; and AF_PACKET as a station that others have to find.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use landfall_placement::Peer;
use landfall_testbed::VethPair;
use landfall_testbed::rivals::Side;
use landfall_transport::memory::Regions;
use landfall_transport::packet::{Filter, Framing, PacketConfig, PacketDriver};
use landfall_transport::tunnel::{TunnelConfig, TunnelDriver};

use super::transport::{PATH, Role, Transport, station};

const IPV4: u16 = 0x0800;
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
        let filter = Filter::ethertypes([IPV4, ARP]).station_and_groups(own.mac).ipv4_to(own.ip);
        let config = PacketConfig::new(end.name.as_str(), Framing::Ethernet { filter });
        let driver = PacketDriver::open(PATH, &config, regions)?;
        Ok((driver, Peer::Unaddressed))
    }
}
