//! Raw sockets at the ends of a cable, or several in one namespace.
use std::net::IpAddr;

use landfall_placement::Peer;
use landfall_testbed::{Namespace, VethEnd, VethPair};
use landfall_transport::OpenError;
use landfall_transport::memory::Regions;
use landfall_transport::rawip::{RawIpConfig, RawIpDriver};

use crate::support::carriage::Opened;
use crate::support::transfer::PATH;

/// For experiments (RFC 3692).
pub const PROTOCOL: u8 = 253;
pub const MTU: u32 = 1500;

/// The versions of IP.
pub const VERSIONS: [Version; 2] = [Version::Four, Version::Six];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Four,
    Six,
}

/// The address of an end.
pub fn address(end: &VethEnd, version: Version) -> IpAddr {
    match version {
        Version::Four => end.ipv4.into(),
        Version::Six => end.ipv6.into(),
    }
}

/// A driver in this namespace, as configured.
pub fn open_in(
    namespace: &Namespace,
    config: &RawIpConfig,
    regions: &Regions,
) -> Result<RawIpDriver, OpenError> {
    namespace.enter(|| RawIpDriver::open(PATH, config, regions)).unwrap()
}

/// A driver at an end of a cable.
pub fn open(end: &VethEnd, version: Version, regions: &Regions) -> RawIpDriver {
    let config = RawIpConfig::new(address(end, version), PROTOCOL, MTU);
    open_in(&end.namespace, &config, regions).unwrap()
}

/// Drivers at both ends, with tables of their own, each connected to the other.
pub fn pair(cable: &VethPair, version: Version) -> [Opened<RawIpDriver>; 2] {
    let opened = |end: &VethEnd, other: &VethEnd| {
        let regions = Regions::new(8);
        let mut driver = open(end, version, &regions);
        driver.connect(address(other, version)).unwrap();
        Opened { driver, regions, name: Peer::Ip(address(end, version)) }
    };
    [opened(&cable.a, &cable.b), opened(&cable.b, &cable.a)]
}
