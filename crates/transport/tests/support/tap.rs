//! TAP interfaces in namespaces of their own, for tests.
use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use landfall_placement::PathId;
use landfall_testbed::Namespace;
use landfall_transport::OpenError;
use landfall_transport::memory::Regions;
use landfall_transport::packet::{Filter, Framing, PacketConfig, PacketDriver};
use landfall_transport::tap::{TapConfig, TapDriver};

use crate::support::PATIENCE;
use crate::support::datagram::{Datagram, TO_PORT};

pub const PATH: PathId = PathId(4);
pub const NAME: &str = "lftap0";
/// The engine's station, which no kernel is.
pub const STATION: [u8; 6] = [2, 0, 0, 0, 0, 9];
pub const KERNEL: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
pub const ENGINE: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);
pub const IPV4: u16 = 0x0800;

/// An interface as configured, whose kernel side has an address.
pub fn open_as(
    namespace: &Namespace,
    regions: &Regions,
    adjust: impl FnOnce(TapConfig) -> TapConfig + Send,
) -> Result<TapDriver, OpenError> {
    let kernel_address = Some((IpAddr::from(KERNEL), 24));
    let config = adjust(TapConfig { kernel_address, ..TapConfig::new(NAME) });
    namespace.enter(|| TapDriver::open(PATH, &config, regions)).unwrap()
}

pub fn open(namespace: &Namespace, regions: &Regions) -> TapDriver {
    open_as(namespace, regions, |config| config).unwrap()
}

/// A packet socket on the kernel's side.
pub fn open_packet(namespace: &Namespace, regions: &Regions, ethertype: u16) -> PacketDriver {
    let framing = Framing::Ethernet { filter: Filter::ethertypes([ethertype]) };
    let config = PacketConfig::new(NAME, framing);
    namespace.enter(|| PacketDriver::open(PATH, &config, regions)).unwrap().unwrap()
}

/// A socket of the kernel that hears the datagrams below.
pub fn socket(namespace: &Namespace) -> UdpSocket {
    let bind = || UdpSocket::bind((KERNEL, TO_PORT)).unwrap();
    let socket = namespace.enter(bind).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// From the engine to the kernel.
pub fn datagram(driver: &TapDriver) -> Datagram {
    Datagram { to: (driver.kernel_station(), KERNEL), from: ENGINE }
}
