//! Frames, cables and drivers at their ends, for the tests of packet sockets.

use std::net::Ipv4Addr;

use landfall_placement::checksum::checksum;
use landfall_placement::{
    Check, Ecn, InternetSum, PathId, Peer, Placement, Refusal, RegionId, Segment, SegmentKind,
    Span, Spans, SumSlot, Ticket, Unit,
};
use landfall_testbed::{Namespace, VethConfig, VethEnd, VethPair};
use landfall_transport::memory::{Regions, Rights};
use landfall_transport::packet::{Filter, Framing, PacketConfig, PacketDriver};
use landfall_transport::{Driver, OpenError};

use crate::support::{Scripted, Sending, lent, turn_until};

pub const PATH: PathId = PathId(3);
/// For experiments (IEEE 802, local experimental ethertype 1).
pub const EXPERIMENTAL: u16 = 0x88b5;
/// What says that a cable works.
const PROBE: u16 = 0x88b8;
const IPV6: u16 = 0x86dd;
pub const IPV4: u16 = 0x0800;
pub const ETHERNET: usize = 14;
/// Ethernet, IPv4 and TCP with timestamps.
pub const TCP_HEAD: usize = ETHERNET + 20 + 32;

/// Addresses that no kernel has, so that none answers.
const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const DESTINATION: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);

/// A cable between two namespaces of its own.
pub fn cable() -> VethPair {
    cable_as(VethConfig::default())
}

/// A cable of this MTU.
pub fn cable_of(mtu: u32) -> VethPair {
    cable_as(VethConfig { mtu, ..VethConfig::default() })
}

fn cable_as(config: VethConfig) -> VethPair {
    connected(&Namespace::new().unwrap(), &Namespace::new().unwrap(), config)
}

/// One more between the same two.
pub fn cable_between(a: &Namespace, b: &Namespace, number: u8) -> VethPair {
    connected(a, b, VethConfig { cable: number, ..VethConfig::default() })
}

fn connected(a: &Namespace, b: &Namespace, config: VethConfig) -> VethPair {
    let pair = VethPair::between(a, b, config).unwrap();
    wait_for_link(&pair);
    pair
}

/// Sends from `a` until `b` hears it: an interface that was switched on drops
/// what it shall send, without a word, until its queue is there.
pub fn wait_for_link(pair: &VethPair) {
    let (regions, _) = lent(&[0], Rights::WRITE);
    let mut at_b = open(&pair.b, Filter::ethertypes([PROBE]), &regions);
    let mut engine = Scripted::sender();
    let (mut at_a, mut probe) = open_sender(&pair.a);
    turn_until(&mut at_b, &mut engine, |engine, _| {
        send_frames(&mut at_a, &mut probe, [numbered_frame(&pair.b, PROBE, 0)]);
        !engine.seen.is_empty()
    });
}

/// A driver at one end, as configured.
pub fn open_as(
    end: &VethEnd,
    framing: Framing,
    regions: &Regions,
    adjust: impl FnOnce(PacketConfig) -> PacketConfig + Send,
) -> Result<PacketDriver, OpenError> {
    let config = adjust(PacketConfig::new(end.name.as_str(), framing));
    end.namespace.enter(|| PacketDriver::open(PATH, &config, regions)).unwrap()
}

/// A driver of whole frames, with offloads.
pub fn open(end: &VethEnd, filter: Filter, regions: &Regions) -> PacketDriver {
    open_as(end, Framing::Ethernet { filter }, regions, |config| config).unwrap()
}

/// One that only sends, from an empty region.
pub fn open_sender(end: &VethEnd) -> (PacketDriver, Scripted) {
    let (regions, _) = lent(&[0], Rights::READ);
    // It hears what nobody says.
    (open(end, Filter::ethertypes([0xffff]), &regions), Scripted::sender())
}

/// Frames with a header and a number behind it.
pub fn numbered_frame(to: &VethEnd, ethertype: u16, number: u32) -> Vec<u8> {
    let mut frame = to.mac.0.to_vec();
    frame.extend([2, 0, 0, 0, 0, 9]);
    frame.extend(ethertype.to_be_bytes());
    frame.extend(number.to_be_bytes());
    frame.resize(60, 0);
    frame
}

/// Sends frames, all of them.
pub fn send_frames(
    driver: &mut PacketDriver,
    engine: &mut Scripted,
    frames: impl IntoIterator<Item = Vec<u8>>,
) {
    let before = driver.counters().units_sent;
    for frame in frames {
        engine.send(Peer::Unaddressed, frame, &[]);
    }
    let count = engine.to_send.len() as u64;
    turn_until(driver, engine, |_, driver| driver.counters().units_sent == before + count);
}

/// The numbers of the frames that were seen. What the kernel says of itself
/// over IPv6 is not of interest.
pub fn numbers_seen(engine: &Scripted) -> Vec<u32> {
    let heads = engine.seen.iter().map(|(_, head, _)| head);
    let numbered = heads.filter(|head| head[12..14] != IPV6.to_be_bytes());
    numbered.map(|head| u32::from_be_bytes(head[14..18].try_into().unwrap())).collect()
}

/// The head of a TCP frame whose payload belongs at `offset`: its sequence
/// number. The sum over the pseudo-header is in the checksum's slot.
pub fn tcp_head(to: &VethEnd, offset: u32, payload: usize) -> Vec<u8> {
    let mut head = to.mac.0.to_vec();
    head.extend([2, 0, 0, 0, 0, 9]);
    head.extend(IPV4.to_be_bytes());
    let total = (TCP_HEAD - ETHERNET + payload) as u16;
    // Version and header length, length, not to be fragmented, 64 hops, TCP.
    head.extend([0x45, 0]);
    head.extend(total.to_be_bytes());
    head.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
    head.extend(SOURCE.octets());
    head.extend(DESTINATION.octets());
    let sum = checksum(&head[ETHERNET..ETHERNET + 20]);
    head[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&sum.to_be_bytes());
    head.extend([0x17, 0x70, 0x17, 0x71]);
    head.extend(offset.to_be_bytes());
    head.extend([0, 0, 0, 1]);
    // 32 bytes of header, ACK, a window, no urgent data.
    head.extend([0x80, 0x10, 0xff, 0xff]);
    head.extend(pseudo_header(total - 20).to_be_bytes());
    head.extend([0, 0]);
    // Two no-operations and a timestamp.
    head.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 1]);
    head
}

/// The sum of the pseudo-header of this many bytes of TCP.
pub fn pseudo_header(tcp_len: u16) -> u16 {
    let mut sum = InternetSum::new();
    sum.add(&SOURCE.octets());
    sum.add(&DESTINATION.octets());
    sum.add(&[0, 6]);
    sum.add(&tcp_len.to_be_bytes());
    sum.sum()
}

/// Where the sum of a TCP frame goes.
pub const TCP_SUM: SumSlot = SumSlot { start: (ETHERNET + 20) as u16, offset: 16 };

/// A TCP frame; with a segment size, one that the device cuts.
pub fn tcp_frame(to: &VethEnd, payload: Span, offset: u32, segment: Option<u16>) -> Sending {
    Sending {
        to: Peer::Unaddressed,
        head: tcp_head(to, offset, payload.len as usize),
        payload: vec![payload],
        segment: segment.map(|size| Segment { kind: SegmentKind::Tcp4, size }),
        checksum: Some(TCP_SUM),
        sum_only: 0,
        ecn: Ecn::NotCapable,
    }
}

/// Where a TCP frame's payload belongs: its offset in the region, its place in
/// the frame and the check of its sum.
pub fn place_tcp(
    region: RegionId,
    unit: &Unit<'_>,
    into: &mut Spans,
) -> Result<Placement, Refusal> {
    let head: &[u8; TCP_HEAD] = match unit.head.first_chunk() {
        Some(head) => head,
        None if unit.head.len() < unit.len as usize => {
            return Ok(Placement::NeedHead(TCP_HEAD as u16));
        }
        None => return Err(Refusal::Truncated),
    };
    let total = u16::from_be_bytes([head[16], head[17]]);
    let offset = u32::from_be_bytes(head[38..42].try_into().unwrap());
    let payload = u32::from(total) - 52;
    into.push(region.span(u64::from(offset), payload)).unwrap();
    let check = Check::InternetSum {
        from: 34,
        len: u32::from(total) - 20,
        seed: pseudo_header(total - 20),
    };
    Ok(Placement::Into { at: TCP_HEAD as u16, check, ticket: Ticket::from_raw(offset.into()) })
}

/// TAP interfaces in namespaces of their own, for tests.
pub mod tap {
    use std::net::{IpAddr, Ipv4Addr, UdpSocket};

    use landfall_placement::PathId;
    use landfall_testbed::Namespace;
    use landfall_transport::OpenError;
    use landfall_transport::memory::Regions;
    use landfall_transport::packet::{Filter, Framing, PacketConfig, PacketDriver};
    use landfall_transport::tap::{TapConfig, TapDriver};

    use crate::support::PATIENCE;
    use crate::support::streams::{Datagram, TO_PORT};

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
}

/// Raw sockets at the ends of a cable, or several in one namespace.
pub mod rawip {
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
}

/// UDP by packet sockets at the ends of a cable.
pub mod udp {
    use std::net::SocketAddr;

    use landfall_placement::Peer;
    use landfall_testbed::{VethEnd, VethPair};
    use landfall_transport::OpenError;
    use landfall_transport::memory::Regions;
    use landfall_transport::udp::{UdpConfig, UdpDriver};
    use landfall_transport::udp_packet::{UdpPacketConfig, UdpPacketDriver};

    use super::rawip::{Version, address};
    use crate::support::carriage::Opened;
    use crate::support::transfer::PATH;

    pub const MTU: u32 = 1500;

    /// A driver at an end of a cable, as configured.
    pub fn open_as(
        end: &VethEnd,
        config: &UdpPacketConfig,
        regions: &Regions,
    ) -> Result<UdpPacketDriver, OpenError> {
        end.namespace.enter(|| UdpPacketDriver::open(PATH, config, regions)).unwrap()
    }

    /// A driver at an end of a cable, with a port that the kernel chooses.
    pub fn open(end: &VethEnd, version: Version, regions: &Regions) -> UdpPacketDriver {
        let bind = SocketAddr::new(address(end, version), 0);
        open_as(end, &UdpPacketConfig::new(bind, MTU), regions).unwrap()
    }

    /// One with a table of its own.
    pub fn opened(end: &VethEnd, version: Version) -> Opened<UdpPacketDriver> {
        let regions = Regions::new(8);
        let driver = open(end, version, &regions);
        let name = Peer::Socket(driver.local_address());
        Opened { driver, regions, name }
    }

    /// Drivers at both ends.
    pub fn pair(cable: &VethPair, version: Version) -> [Opened<UdpPacketDriver>; 2] {
        [opened(&cable.a, version), opened(&cable.b, version)]
    }

    /// The ordinary driver at an end, with a table of its own.
    pub fn ordinary(end: &VethEnd, version: Version) -> Opened<UdpDriver> {
        let regions = Regions::new(8);
        let config = UdpConfig::new(SocketAddr::new(address(end, version), 0), MTU);
        let driver = end.namespace.enter(|| UdpDriver::open(PATH, config, &regions));
        let driver = driver.unwrap().unwrap();
        let name = Peer::Socket(driver.local_address());
        Opened { driver, regions, name }
    }
}

/// XDP sockets at the ends of a cable.
pub mod xdp {
    use landfall_placement::Peer;
    use landfall_testbed::{Namespace, VethEnd, VethPair};
    use landfall_transport::memory::Regions;
    use landfall_transport::xdp::{Attach, XdpConfig, XdpDriver};
    use landfall_transport::{OpenError, Privilege};

    use crate::support::carriage::Opened;
    use crate::support::packet::EXPERIMENTAL;
    use crate::support::transfer::PATH;

    pub const MODES: [Attach; 2] = [Attach::Driver, Attach::Generic];

    /// Why this machine cannot do it; none if it can.
    pub fn why_no_xdp() -> Option<String> {
        let namespace = Namespace::new().ok()?;
        let config = XdpConfig { frames: 64, ..XdpConfig::new("lo", EXPERIMENTAL) };
        let open = || XdpDriver::open(PATH, &config, &Regions::new(1)).map(drop);
        match namespace.enter(open).ok()? {
            Err(error @ (OpenError::NoXdpSockets | OpenError::NoPrivilege(Privilege::Xdp))) => {
                Some(error.to_string())
            }
            _ => None,
        }
    }

    /// Leaves a test with one clear line where there are no XDP sockets.
    macro_rules! require_xdp {
        () => {
            landfall_testbed::require_namespaces!();
            landfall_testbed::skip_unless!($crate::support::packet::xdp::why_no_xdp());
        };
    }
    pub(crate) use require_xdp;

    /// A driver at one end, as configured.
    pub fn open_as(
        end: &VethEnd,
        regions: &Regions,
        adjust: impl FnOnce(XdpConfig) -> XdpConfig + Send,
    ) -> Result<XdpDriver, OpenError> {
        let config = adjust(XdpConfig::new(end.name.as_str(), EXPERIMENTAL));
        end.namespace.enter(|| XdpDriver::open(PATH, &config, regions)).unwrap()
    }

    /// A driver at one end, whose program runs there.
    pub fn open(end: &VethEnd, attach: Attach, regions: &Regions) -> XdpDriver {
        open_as(end, regions, |config| XdpConfig { attach, ..config }).unwrap()
    }

    /// Drivers at both ends, with tables of their own.
    pub fn pair(cable: &VethPair, attach: Attach) -> [Opened<XdpDriver>; 2] {
        [&cable.a, &cable.b].map(|end| {
            let regions = Regions::new(8);
            let driver = open(end, attach, &regions);
            Opened { driver, regions, name: Peer::Ethernet(end.mac.0) }
        })
    }
}

/// Tests of rings skip where there are none.
#[cfg(feature = "io-uring")]
pub mod uring {
    use landfall_placement::PathId;
    use landfall_transport::memory::Regions;
    use landfall_transport::uring::{Unavailable, UringUdpConfig, UringUdpDriver};

    /// Why this machine has no `io_uring`; none if it has.
    pub(crate) fn why_no_uring() -> Option<String> {
        let config = UringUdpConfig::new("127.0.0.1:0".parse().unwrap(), 1500);
        let error = UringUdpDriver::open(PathId(0), config, &Regions::new(1)).err()?;
        let why = error.get_ref()?.downcast_ref::<Unavailable>()?;
        Some(why.to_string())
    }
}
