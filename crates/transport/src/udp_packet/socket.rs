//! The sockets of a path: one for packets that carries its datagrams, and one of the kernel
//! that holds its port.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::{fs, io};

use landfall_placement::{PathId, PathLimits};
use socket2::Socket;

use super::UdpPacketConfig;
use super::frame::Framing;
use super::neighbours::Neighbours;
use super::netlink::Netlink;
use super::receive::FrameReceiver;
use super::send::Exit;
use crate::capability::{Capabilities, Feature};
use crate::interfaces::interface_at;
use crate::memory::Regions;
use crate::packet::{self, Filter, Interface, Link, PacketConfig, attach_filter};
use crate::{OpenError, udp};

/// What was opened.
pub(crate) struct Opened {
    pub(super) packets: Socket,
    pub(super) kernel: Socket,
    pub(super) framing: Framing,
    pub(super) neighbours: Neighbours,
    pub(crate) limits: PathLimits,
    pub(crate) capabilities: Capabilities,
    /// All packet sockets of the port, if they are several.
    group: Option<Arc<[Socket]>>,
}

impl Opened {
    /// One more packet socket at the same port, which the same socket of the kernel holds.
    fn joining(&self, config: &UdpPacketConfig, driver: &'static str) -> Result<Self, OpenError> {
        let Framing { link, local } = self.framing;
        let packets = packet_config(config, link.interface.index.into(), local);
        let packet::Opened { socket, .. } = packet::open(&packets, driver)?;
        let kernel = self.kernel.try_clone();
        Ok(Self {
            packets: socket,
            kernel: kernel.map_err(OpenError::system("share the socket that holds the port"))?,
            framing: self.framing,
            neighbours: neighbours(link, local)?,
            limits: self.limits,
            capabilities: self.capabilities.clone(),
            group: None,
        })
    }

    /// The two halves of a path over them.
    pub(crate) fn halves(
        self,
        path: PathId,
        config: &UdpPacketConfig,
        regions: &Regions,
    ) -> (FrameReceiver, Exit) {
        let receiver = FrameReceiver::new(self.framing, path, regions, config.udp.peek);
        let sockets = (self.packets, self.kernel, self.group);
        (receiver, Exit::new(sockets, self.framing, self.neighbours))
    }
}

/// Opens both, in the name of this driver.
pub(crate) fn open(config: &UdpPacketConfig, driver: &'static str) -> Result<Opened, OpenError> {
    check_kernel()?;
    let interface = interface_of(config)?;
    let (kernel, mut capabilities) = udp::open(&config.udp, driver, udp::Sharing::Alone)
        .map_err(|error| why_no_port(error, config.udp.bind))?;
    // What came before is left in the queue; nothing joins it.
    attach_filter(kernel.as_raw_fd(), &[NOTHING])
        .map_err(OpenError::system("keep the queue of the UDP socket empty"))?;
    let local = udp::bound_to(&kernel).map_err(OpenError::system("ask for the port"))?;
    let limits = config.udp.limits(&kernel).map_err(OpenError::system("ask for the MTU"))?;
    let packets = packet_config(config, interface, local);
    let packet::Opened { socket, link, capabilities: found } = packet::open(&packets, driver)?;
    if let Err(missing) = found.require(Feature::ChecksumOffload) {
        return Err(OpenError::system("send many datagrams at once")(io::Error::other(missing)));
    }
    capabilities.add(Feature::ChecksumOffload);
    capabilities.lack(
        Feature::ZeroCopySend,
        "the kernel copies what is sent through a packet socket; use uring-udp",
    );
    let neighbours = neighbours(link, local)?;
    let framing = Framing { link, local };
    Ok(Opened { packets: socket, kernel, framing, neighbours, limits, capabilities, group: None })
}

/// Opens this many packet sockets at one port, over which peers are spread by their address and
/// port.
pub(super) fn open_group(
    config: &UdpPacketConfig,
    driver: &'static str,
    count: usize,
) -> Result<Vec<Opened>, OpenError> {
    let Some(more) = count.checked_sub(1) else { return Ok(Vec::new()) };
    let first = open(config, driver)?;
    let local = first.framing.local;
    let mut all = vec![first];
    for _ in 0..more {
        let joining = all[0].joining(config, driver)?;
        all.push(joining);
    }
    let sockets: Vec<&Socket> = all.iter().map(|opened| &opened.packets).collect();
    let group = packet::spread(&sockets, packet::SpreadBy::socket(local.ip()))?;
    for opened in &mut all {
        opened.group = Some(Arc::clone(&group));
    }
    Ok(all)
}

fn packet_config(config: &UdpPacketConfig, interface: Interface, at: SocketAddr) -> PacketConfig {
    PacketConfig {
        socket_buffer: config.udp.socket_buffer,
        ..PacketConfig::new(interface, packet::Framing::Ethernet { filter: Filter::udp_to(at) })
    }
}

fn neighbours(link: Link, local: SocketAddr) -> Result<Neighbours, OpenError> {
    let netlink = Netlink::open().map_err(OpenError::system("ask for routes (AF_NETLINK)"))?;
    Ok(Neighbours::new(netlink, link.interface.index, local.ip()))
}

/// The program that lets nothing through.
const NOTHING: libc::sock_filter =
    libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };

fn why_no_port(error: io::Error, bind: SocketAddr) -> OpenError {
    match error.raw_os_error() {
        Some(libc::EADDRNOTAVAIL) => OpenError::NoAddress(bind.ip()),
        _ => OpenError::system("hold the UDP port")(error),
    }
}

/// The interface that was named, or the one that has the address.
fn interface_of(config: &UdpPacketConfig) -> Result<Interface, OpenError> {
    let address = config.udp.bind.ip();
    let is_single = !address.is_unspecified() && !address.is_loopback();
    if !is_single || address.is_multicast() || address.to_canonical() != address {
        return Err(OpenError::NotOfOneWire(address));
    }
    if let Some(interface) = &config.interface {
        return Ok(interface.clone());
    }
    // An address of a link says which by its scope.
    if let SocketAddr::V6(address) = config.udp.bind
        && address.scope_id() != 0
    {
        return Ok(address.scope_id().into());
    }
    let found = interface_at(address).map_err(OpenError::system("list the interfaces"))?;
    found.as_deref().map(Interface::from).ok_or(OpenError::NoAddress(address))
}

/// Older kernels neither cut datagrams of a packet socket nor hand joined ones to it.
fn check_kernel() -> Result<(), OpenError> {
    let release = release();
    if is_new_enough(&release) {
        return Ok(());
    }
    let what = "send and receive joined datagrams of UDP through packet sockets";
    Err(OpenError::OldKernel { release, what, since: "6.2" })
}

/// What is no number is no reason to refuse.
fn is_new_enough(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let mut number = || numbers.next().and_then(Result::ok);
    match (number(), number()) {
        (Some(major), Some(minor)) => (major, minor) >= (6, 2),
        _ => true,
    }
}

/// What the kernel says of itself; nothing where `/proc` is not to be read.
fn release() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim().to_owned()
}

/// The addresses of both ends are of one version of IP.
pub(super) fn is_reachable(local: SocketAddr, peer: SocketAddr) -> bool {
    matches!(
        (local.ip(), peer.ip()),
        (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_told_apart_by_their_release() {
        for (release, new_enough) in [
            ("5.15.0-91-generic", false),
            ("6.1.9", false),
            ("6.2.0-rc1", true),
            ("6.18.44-x", true),
            ("7.0", true),
            ("strange", true),
        ] {
            assert_eq!(is_new_enough(release), new_enough, "{release}");
        }
        assert!(!release().is_empty());
    }

    #[test]
    fn only_the_address_of_a_wire_is_one_of_a_path() {
        for bind in ["127.0.0.1:0", "0.0.0.0:7", "[::]:7", "[::1]:7", "224.0.0.1:7"] {
            let config = UdpPacketConfig::discover(bind.parse().unwrap());
            let error = interface_of(&config).unwrap_err();
            assert!(matches!(error, OpenError::NotOfOneWire(_)), "{bind}: {error}");
        }
        let config = UdpPacketConfig::discover("192.0.2.77:7".parse().unwrap());
        assert!(matches!(interface_of(&config), Err(OpenError::NoAddress(_))));
    }
}
