//! AF_XDP with whole frames: a path is a station beside the kernel, or in its
//! place. As an ordinary user each test skips with one line.

use crate::support;
use std::net::Ipv4Addr;

use crate::support::packet::xdp::{MODES, require_xdp};
use crate::support::packet::{
    EXPERIMENTAL, IPV4, cable, cable_of, numbered_frame, open_sender, send_frames,
};
use crate::support::streams::carry_stream;
use crate::support::transfer::PATH;
use crate::support::{Scripted, turn_until};
use landfall_placement::{Peer, Placement};
use landfall_testbed::VethEnd;
use landfall_testkit::engines::stream::Station;
use landfall_transport::memory::Regions;
use landfall_transport::packet::{Filter, Framing, PacketDriver};
use landfall_transport::xdp::{Attach, XdpConfig, XdpDriver};
use landfall_transport::{Driver, Feature, OpenError};

const OWN: [u8; 6] = [2, 0x44, 0, 0, 0, 0x81];
const LEN: usize = 1_000_000;

const STATIONS: [Station<Ipv4Addr>; 2] = [
    Station { mac: [2, 0x44, 0, 0, 0, 0x80], ip: Ipv4Addr::new(10, 80, 0, 1), port: 7000 },
    Station { mac: OWN, ip: Ipv4Addr::new(10, 80, 0, 2), port: 7000 },
];

fn try_open(end: &VethEnd, regions: &Regions, config: &XdpConfig) -> Result<XdpDriver, OpenError> {
    end.namespace.enter(|| XdpDriver::open(PATH, config, regions)).unwrap()
}

/// A path that is this station.
fn open(end: &VethEnd, station: [u8; 6], attach: Attach) -> (XdpDriver, Regions) {
    let regions = Regions::new(8);
    let config = XdpConfig { attach, ..XdpConfig::station(end.name.as_str(), station) };
    (try_open(end, &regions, &config).unwrap(), regions)
}

#[test]
fn a_stream_in_whole_frames_crosses() {
    require_xdp!();
    for mtu in [1500, 9000] {
        let cable = cable_of(mtu);
        for attach in MODES {
            let from = open(&cable.a, STATIONS[0].mac, attach);
            let to = open(&cable.b, STATIONS[1].mac, attach);
            assert_eq!(from.0.limits().unit, mtu + 14);
            assert_eq!(to.0.station(), OWN);
            assert!(to.0.capabilities().has(Feature::RawFrames));
            let (from, to) = carry_stream(from, to, STATIONS, LEN);
            let received = to.driver.counters();
            assert_eq!((received.corrupt, received.guessed_right), (0, 0));
            assert_eq!(from.driver.counters().send_failed, 0);
        }
    }
}

/// A packet socket that is a station of its own, and fills sums in itself: no
/// device would, on its way to another socket of this machine.
fn open_packet(end: &VethEnd, station: [u8; 6]) -> (PacketDriver, Regions) {
    let regions = Regions::new(8);
    let framing = Framing::Ethernet { filter: Filter::ethertypes([IPV4]).station(station) };
    let adjust = |config: landfall_transport::packet::PacketConfig| config.without_offload();
    (support::packet::open_as(end, framing, &regions, adjust).unwrap(), regions)
}

#[test]
fn packet_sockets_and_xdp_sockets_understand_each_other() {
    require_xdp!();
    let cable = cable();
    let one = || open_packet(&cable.a, STATIONS[0].mac);
    for attach in MODES {
        let two = || open(&cable.b, STATIONS[1].mac, attach);
        carry_stream(one(), two(), STATIONS, LEN);
        carry_stream(two(), one(), [STATIONS[1], STATIONS[0]], LEN);
    }
}

fn to(station: [u8; 6], end: &VethEnd, number: u32) -> Vec<u8> {
    let mut frame = numbered_frame(end, EXPERIMENTAL, number);
    frame[..6].copy_from_slice(&station);
    frame
}

/// The numbers in whole frames.
fn numbers(engine: &Scripted) -> Vec<u32> {
    support::packet::numbers_seen(engine)
}

#[test]
fn the_path_gets_what_is_for_its_station_and_the_kernel_all_else() {
    require_xdp!();
    let cable = cable();
    for attach in MODES {
        for groups in [false, true] {
            let regions = Regions::new(8);
            let name = cable.b.name.as_str();
            let config = if groups {
                XdpConfig::station_and_groups(name, OWN)
            } else {
                XdpConfig::station(name, OWN)
            };
            let mut path = try_open(&cable.b, &regions, &XdpConfig { attach, ..config }).unwrap();
            // What the kernel gets, its packet sockets hear.
            let filter = Filter::ethertypes([EXPERIMENTAL]);
            let mut kernel = support::packet::open(&cable.b, filter, &regions);
            let (mut driver, mut engine) = open_sender(&cable.a);
            let frames = [
                to(OWN, &cable.b, 1),
                to([0xff; 6], &cable.b, 2),
                to([0x33, 0x33, 0, 0, 0, 1], &cable.b, 3),
                to([2, 0x44, 0, 0, 0, 9], &cable.b, 4),
                to(cable.b.mac.0, &cable.b, 5),
                to(OWN, &cable.b, 6),
            ];
            send_frames(&mut driver, &mut engine, frames);
            let (at_path, at_kernel): (&[u32], &[u32]) =
                if groups { (&[1, 2, 3, 6], &[5]) } else { (&[1, 6], &[2, 3, 5]) };
            let listener = || Scripted::new(|_, _| Ok(Placement::Consumed));
            let (mut own, mut other) = (listener(), listener());
            turn_until(&mut path, &mut own, |own, _| numbers(own).contains(&6));
            turn_until(&mut kernel, &mut other, |other, _| numbers(other).contains(&5));
            assert_eq!((&numbers(&own)[..], &numbers(&other)[..]), (at_path, at_kernel));
            assert!(own.seen.iter().all(|(from, ..)| *from == Peer::Unaddressed));
        }
    }
}

#[test]
fn frames_that_are_none_are_lost_and_groups_are_no_stations() {
    require_xdp!();
    let cable = cable();
    let (mut driver, regions) = open(&cable.a, cable.a.mac.0, Attach::Auto);
    let mut engine = Scripted::sender();
    for len in [0, 13] {
        engine.send(Peer::Unaddressed, vec![2; len], &[]);
    }
    turn_until(&mut driver, &mut engine, |engine, _| engine.sent.len() == 2);
    assert_eq!((driver.counters().send_failed, driver.counters().units_sent), (2, 0));
    let group = XdpConfig::station(cable.b.name.as_str(), [1, 0, 0x5e, 0, 0, 1]);
    let error = try_open(&cable.b, &regions, &group).unwrap_err();
    assert!(matches!(error, OpenError::NotAStation(_)), "{error}");
}
