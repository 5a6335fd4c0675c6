//! The same messages end as the same memory over every driver, however its path
//! behaves: loss, duplication, reordering and corruption in both directions.

use crate::support;
use crate::support::packet::xdp::require_xdp;
use std::net::Ipv4Addr;

use crate::support::packet::{EXPERIMENTAL, IPV4, PATH, cable, open_as};
use crate::support::transfer::{DEFAULT, End, messages, run_to_the_end, start};
use crate::support::{
    PATIENCE, Scripted, assert_same, carriage, contents, lent, pattern, turn_until,
};
use landfall_placement::{Duration, Engine, PathState, Peer, Refusal};
use landfall_testbed::{VethEnd, require_namespaces};
use landfall_testkit::engines::Area;
use landfall_testkit::engines::numbered::Config;
use landfall_testkit::engines::stream::{self, Event, Station, Stream};
use landfall_transport::channel::{ChannelConfig, channel};
use landfall_transport::fault::{Faults, Faulty};
use landfall_transport::memory::{Memory, Regions, Rights};
use landfall_transport::packet::{Filter, Framing};
use landfall_transport::{Clock, Driver};

const FAULTS: Faults = Faults {
    loss: 30_000,
    duplication: 20_000,
    reordering: 30_000,
    corruption: 10_000,
    delay: Duration::ZERO,
    loss_at_place: 5_000,
};

/// Carries all messages between two drivers, each of which uses its regions.
fn carry<A: Driver, B: Driver>(first: (A, Regions), second: (B, Regions), peer: Peer) {
    let clock = Clock::start();
    let config = Config { checksum: true, ..DEFAULT };
    let (from, to) = (faulty(first, 1), faulty(second, 2));
    let mut from = End::new(from.0, from.1, &messages(), config, 1, &clock);
    let mut to = End::new(to.0, to.1, &vec![0; messages().len()], config, 2, &clock);
    start(&mut from, &mut to, peer, &clock);
    run_to_the_end(&mut from, &mut to, &clock);
    let counts = from.driver.counts();
    assert!(counts.lost > 0 && counts.duplicated > 0 && counts.corrupted > 0, "{counts:?}");
    assert_same(&to.contents(), &messages());
}

fn faulty<D: Driver>((driver, regions): (D, Regions), seed: u8) -> (Faulty<D>, Regions) {
    (Faulty::new(driver, FAULTS, [seed; 32], &regions).unwrap(), regions)
}

#[test]
fn invariant_4_the_channel_survives_every_fault() {
    let (one, two) = (Regions::new(8), Regions::new(8));
    let config = ChannelConfig { unit: 2048, queue: 32 };
    let (a, b) = channel(config, (PATH, &one), (PATH, &two)).unwrap();
    carry((a, one), (b, two), Peer::Node(1));
}

#[cfg(feature = "io-uring")]
#[test]
fn invariant_4_udp_by_io_uring_survives_every_fault() {
    use landfall_transport::uring::{UringUdpConfig, UringUdpDriver};
    let open = || {
        let regions = Regions::new(8);
        let config = UringUdpConfig::new("127.0.0.1:0".parse().unwrap(), 1500);
        UringUdpDriver::open(PATH, config, &regions).map(|driver| (driver, regions))
    };
    let (first, second) = match (open(), open()) {
        (Ok(first), Ok(second)) => (first, second),
        (Err(error), _) | (_, Err(error)) => {
            return landfall_testbed::privileges::skip(
                "invariant_4_udp_by_io_uring_survives_every_fault",
                &error.to_string(),
            );
        }
    };
    let peer = second.0.local_address().into();
    carry(first, second, peer);
}

#[test]
fn invariant_4_packets_survive_every_fault() {
    require_namespaces!();
    let cable = cable();
    let open = |end: &VethEnd| {
        let regions = Regions::new(8);
        let framing = Framing::Payload { ethertype: EXPERIMENTAL };
        (open_as(end, framing, &regions, |config| config).unwrap(), regions)
    };
    let peer = Peer::Ethernet(cable.b.mac.0);
    carry(open(&cable.a), open(&cable.b), peer);
}

#[cfg(feature = "io-uring")]
#[test]
fn invariant_4_packets_by_io_uring_survive_every_fault() {
    use landfall_transport::packet::PacketConfig;
    use landfall_transport::uring::UringPacketDriver;
    require_namespaces!();
    let cable = cable();
    let open = |end: &VethEnd| {
        let regions = Regions::new(8);
        let framing = Framing::Payload { ethertype: EXPERIMENTAL };
        let config = PacketConfig::new(end.name.as_str(), framing);
        let open = || UringPacketDriver::open(PATH, &config, &regions);
        (end.namespace.enter(open).unwrap().unwrap(), regions.clone())
    };
    let peer = Peer::Ethernet(cable.b.mac.0);
    carry(open(&cable.a), open(&cable.b), peer);
}

#[test]
fn invariant_4_udp_by_packets_survives_every_fault() {
    require_namespaces!();
    let cable = cable();
    for version in support::packet::rawip::VERSIONS {
        carriage::messages_through_faults(support::packet::udp::pair(&cable, version), FAULTS);
    }
}

#[cfg(feature = "io-uring")]
#[test]
fn invariant_4_udp_by_packets_and_io_uring_survives_every_fault() {
    use std::net::SocketAddr;

    use landfall_transport::udp_packet::UdpPacketConfig;
    use landfall_transport::uring::UringUdpPacketDriver;

    use crate::support::packet::udp::MTU;
    require_namespaces!();
    let cable = cable();
    let open = |end: &VethEnd| {
        let regions = Regions::new(8);
        let config = UdpPacketConfig::new(SocketAddr::new(end.ipv4.into(), 0), MTU);
        let open = || UringUdpPacketDriver::open(PATH, &config, &regions);
        (end.namespace.enter(open).unwrap().unwrap(), regions.clone())
    };
    let (from, to) = (open(&cable.a), open(&cable.b));
    let peer = Peer::Socket(to.0.local_address());
    carry(from, to, peer);
}

#[test]
fn invariant_4_raw_ip_survives_every_fault() {
    require_namespaces!();
    let cable = cable();
    for version in support::packet::rawip::VERSIONS {
        carriage::messages_through_faults(support::packet::rawip::pair(&cable, version), FAULTS);
    }
}

#[test]
fn invariant_4_xdp_survives_every_fault() {
    require_xdp!();
    for mtu in [1500, 9000] {
        let cable = support::packet::cable_of(mtu);
        for attach in support::packet::xdp::MODES {
            carriage::messages_through_faults(support::packet::xdp::pair(&cable, attach), FAULTS);
        }
    }
}

/// Real headers: the device would fill checksums in, but a corrupted segment
/// has the checksum that it should have had, so that the receiver finds out.
#[test]
fn invariant_3_a_stream_in_frames_survives_every_fault() {
    require_namespaces!();
    let cable = cable();
    let clock = Clock::start();
    let message = pattern(300_000, 3);
    let station = |end: &VethEnd| {
        let ip = Ipv4Addr::from(end.ipv4.to_bits() | 0x80);
        Station { mac: end.mac.0, ip, port: 7000 }
    };
    let end = |local: &VethEnd, remote: &VethEnd, memory: &[u8], seed: u8| {
        let (regions, region) = lent(memory, Rights::READ | Rights::WRITE);
        let filter = Filter::ethertypes([IPV4]).ipv4_to(station(local).ip).port(7000);
        let framing = Framing::Ethernet { filter };
        let driver = open_as(local, framing, &regions, |config| config).unwrap();
        let (driver, regions) = faulty((driver, regions), seed);
        let framing =
            stream::Framing::EthernetIpv4Tcp { local: station(local), remote: station(remote) };
        let config = stream::Config {
            retransmit_after: Duration::from_millis(5),
            give_up_after: 100_000,
            ..stream::Config::new(framing, PATH)
        };
        let mut engine = match seed {
            1 => Stream::connect(config, [seed; 32]),
            _ => Stream::listen(config, [seed; 32]),
        };
        engine.handle_path(clock.now(), PATH, PathState::Up(driver.limits()));
        (engine, driver, regions, region)
    };
    let mut from = end(&cable.a, &cable.b, &message, 1);
    let mut to = end(&cable.b, &cable.a, &vec![0; message.len()], 2);
    let area = |region| Area::new(region, 0, message.len() as u64);
    to.0.receive_into(area(to.3)).unwrap();
    from.0.send(area(from.3)).unwrap();
    let deadline = clock.now() + PATIENCE;
    let (mut sent, mut received) = (false, false);
    while !(sent && received) {
        assert!(clock.now() < deadline, "stuck at {} bytes", to.0.received());
        from.1.turn(&mut from.0, clock.now()).unwrap();
        to.1.turn(&mut to.0, clock.now()).unwrap();
        while let Some(event) = from.0.poll_event() {
            sent |= matches!(event, Event::Sent { .. });
        }
        while let Some(event) = to.0.poll_event() {
            received |= matches!(event, Event::Received { .. });
        }
    }
    assert!(from.1.counts().corrupted > 0, "{:?}", from.1.counts());
    drop(to.1);
    assert_same(&contents(&to.2, to.3), &message);
}

#[test]
fn invariant_3_junk_through_a_channel_is_refused() {
    let (regions, target) = lent(&[0; 4096], Rights::WRITE);
    let source = regions.lend(Memory::from_bytes(&pattern(4096, 4)), Rights::READ).unwrap();
    let config = ChannelConfig { unit: 2048, queue: 4 };
    let (mut a, mut b) = channel(config, (PATH, &regions), (PATH, &regions)).unwrap();
    let (mut junk, mut engine) = (Scripted::sender(), Scripted::labelled(target));
    for len in [0, 1, 7, 8, 200, 1500] {
        junk.send(Peer::Node(1), vec![0xff; 9], &[source.span(0, len)]);
        junk.send(Peer::Node(1), vec![0x80; len.min(7) as usize], &[]);
    }
    turn_until(&mut a, &mut junk, |junk, _| {
        b.turn(&mut engine, landfall_placement::Instant::ZERO).unwrap();
        junk.sent.len() == 12
    });
    turn_until(&mut b, &mut engine, |engine, _| engine.seen.len() == 12);
    let refusals = engine.refusals();
    assert_eq!(refusals.of(Refusal::Malformed) + refusals.of(Refusal::Truncated), 12);
    assert!(engine.landings.is_empty());
    drop((a, b));
    assert_eq!(contents(&regions, target), [0; 4096]);
}
