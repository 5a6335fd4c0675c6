//! STP's own encapsulations: an ethertype and an IP protocol number.

use anyhow::{Context, Result};
use landfall_placement::Peer;
use landfall_testbed::VethPair;
use landfall_testbed::rivals::Side;
use landfall_transport::memory::Regions;
use landfall_transport::packet::{Framing, PacketConfig, PacketDriver};
use landfall_transport::rawip::{RawIpConfig, RawIpDriver};
use landfall_transport::xdp::{XdpConfig, XdpDriver};

use super::transport::{PATH, Role, Transport};

/// The ethertype of the standard.
const ETHERTYPE: u16 = 0x8181;
/// Its protocol number on IP.
const IP_PROTOCOL: u8 = 118;

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
        let framing = Framing::Payload { ethertype: ETHERTYPE };
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
        let config = XdpConfig::new(interface(self.pair, role), ETHERTYPE);
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
