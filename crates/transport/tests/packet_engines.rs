//! Packet sockets carry both test engines: the same bytes arrive, and in
//! steady flow no byte is copied in user space. As an ordinary user each test
//! skips with one line.

use std::net::Ipv4Addr;

use crate::support::packet::{EXPERIMENTAL, IPV4, PATH, cable, open_as};
use crate::support::{PATIENCE, assert_same, contents, lent, pattern};
use landfall_placement::{Engine, PathState, Peer, RegionId};
use landfall_testbed::{VethPair, require_namespaces};
use landfall_testkit::engines::stream::{self, Station};
use landfall_testkit::engines::{Area, Numbered, Stream, numbered};
use landfall_transport::memory::{Regions, Rights};
use landfall_transport::packet::{Filter, Framing, PacketConfig, PacketDriver};
use landfall_transport::{Clock, Driver};

/// TCP tells large windows in steps (RFC 7323, 2.2): what is posted beyond the
/// last whole step is not offered.
const LARGEST_STEP: u64 = 1 << 14;

/// An engine with its driver and memory.
struct End<E> {
    engine: E,
    driver: PacketDriver,
    regions: Regions,
    region: RegionId,
}

impl<E: Engine> End<E> {
    fn turn(&mut self, clock: &Clock) {
        self.driver.turn(&mut self.engine, clock.now()).unwrap();
    }

    fn contents(&self) -> Vec<u8> {
        contents(&self.regions, self.region)
    }
}

/// One end of a stream: `a` connects.
fn stream_end(
    cable: &VethPair,
    at_a: bool,
    memory: &[u8],
    adjust: fn(PacketConfig) -> PacketConfig,
    clock: &Clock,
) -> End<Stream> {
    let [local, remote] = if at_a { [&cable.a, &cable.b] } else { [&cable.b, &cable.a] };
    let station = |end: &landfall_testbed::VethEnd| Station {
        mac: end.mac.0,
        ip: Ipv4Addr::from(end.ipv4.to_bits() | 0x80),
        port: 7000,
    };
    let (regions, region) = lent(memory, Rights::READ | Rights::WRITE);
    let filter = Filter::ethertypes([IPV4]).ipv4_to(station(local).ip).port(7000);
    let driver = open_as(local, Framing::Ethernet { filter }, &regions, adjust).unwrap();
    let framing =
        stream::Framing::EthernetIpv4Tcp { local: station(local), remote: station(remote) };
    let config = stream::Config::new(framing, PATH).steady();
    let mut engine =
        if at_a { Stream::connect(config, [1; 32]) } else { Stream::listen(config, [2; 32]) };
    engine.handle_path(clock.now(), PATH, PathState::Up(driver.limits()));
    End { engine, driver, regions, region }
}

/// Streams a message of so many full units, and gives both ends.
fn carry_stream(
    cable: &VethPair,
    units: u64,
    adjust: fn(PacketConfig) -> PacketConfig,
) -> [End<Stream>; 2] {
    let clock = Clock::start();
    let unit = stream_end(cable, true, &[0], adjust, &clock).engine.unit_payload();
    let len = units * u64::from(unit);
    let message = pattern(len as usize, 11);
    let mut from = stream_end(cable, true, &message, adjust, &clock);
    let room = len + LARGEST_STEP;
    let mut to = stream_end(cable, false, &vec![0; room as usize], adjust, &clock);
    from.engine.send(Area::new(from.region, 0, len)).unwrap();
    from.engine.close();
    to.engine.receive_into(Area::new(to.region, 0, room)).unwrap();
    let deadline = clock.now() + PATIENCE;
    while to.engine.received() < len || from.engine.acknowledged() < len {
        let counters = [from.driver.counters(), to.driver.counters()];
        assert!(clock.now() < deadline, "{} of {len}: {counters:?}", to.engine.received());
        from.turn(&clock);
        to.turn(&clock);
    }
    assert_same(&to.contents()[..len as usize], &message);
    [from, to]
}

#[test]
fn a_stream_in_super_packets_lands_in_place_without_a_copy() {
    require_namespaces!();
    let cable = cable();
    let [from, to] = carry_stream(&cable, 64, |config| config);
    let (sent, received) = (from.driver.counters(), to.driver.counters());
    assert_eq!(from.engine.retransmitted(), 0);
    assert_eq!((received.guessed_right, received.guessed_wrong), (64, 0));
    assert_eq!((received.bytes_copied, sent.bytes_copied), (0, 0));
    assert_eq!((received.bytes_summed, sent.bytes_summed), (0, 0));
}

#[test]
fn a_stream_without_offloads_arrives_all_the_same() {
    require_namespaces!();
    let cable = cable();
    let [_, to] = carry_stream(&cable, 200, PacketConfig::without_offload);
    assert_eq!(to.driver.counters().corrupt, 0);
    assert!(to.driver.counters().guessed_right > 0);
}

#[test]
fn a_stream_in_real_frames_arrives_whatever_the_receiver_joins() {
    require_namespaces!();
    let cable = cable();
    cable.set_real_frames(true).unwrap();
    let [_, to] = carry_stream(&cable, 64, |config| config);
    assert_eq!(to.driver.counters().corrupt, 0);
}

#[test]
fn numbered_units_cross_as_payloads_of_an_ethertype() {
    require_namespaces!();
    let cable = cable();
    let clock = Clock::start();
    let sizes = [1u64, 1023, 1024, 1025, 300_000];
    let message = pattern(sizes.iter().sum::<u64>() as usize, 12);
    let end = |at_a: bool, memory: &[u8]| {
        let (regions, region) = lent(memory, Rights::READ | Rights::WRITE);
        let framing = Framing::Payload { ethertype: EXPERIMENTAL };
        let local = if at_a { &cable.a } else { &cable.b };
        let driver = open_as(local, framing, &regions, |config| config).unwrap();
        let config = numbered::Config::with_unit(1024).with_checksum();
        let mut engine = Numbered::new(config, [u8::from(at_a); 32]);
        engine.handle_path(clock.now(), PATH, PathState::Up(driver.limits()));
        End { engine, driver, regions, region }
    };
    let (mut from, mut to) = (end(true, &message), end(false, &vec![0; message.len()]));
    let mut at = 0;
    for size in sizes {
        to.engine.receive_into(Area::new(to.region, at, size)).unwrap();
        let area = Area::new(from.region, at, size);
        from.engine.send(clock.now(), PATH, Peer::Ethernet(cable.b.mac.0), area).unwrap();
        at += size;
    }
    let (mut delivered, mut sent) = (0, 0);
    let deadline = clock.now() + PATIENCE;
    while delivered < sizes.len() || sent < sizes.len() {
        let counters = [from.driver.counters(), to.driver.counters()];
        assert!(clock.now() < deadline, "{delivered} delivered: {counters:?}");
        from.turn(&clock);
        to.turn(&clock);
        while let Some(event) = to.engine.poll_event() {
            assert!(matches!(event, numbered::Event::Delivered { .. }), "{event:?}");
            delivered += 1;
        }
        while let Some(event) = from.engine.poll_event() {
            assert!(matches!(event, numbered::Event::Sent { .. }), "{event:?}");
            sent += 1;
        }
    }
    assert_same(&to.contents(), &message);
    assert!(to.driver.counters().guessed_right > 0);
    assert_eq!(to.driver.counters().corrupt, 0);
}
