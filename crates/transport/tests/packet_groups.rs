//! Several packet sockets of one path (`PACKET_FANOUT`): who sent a frame decides which of
//! them gets it. As an ordinary user each test skips with one line.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};

use landfall_placement::{PathId, Peer, Placement};
use landfall_testbed::{VethEnd, require_namespaces};
use landfall_transport::Driver;
use landfall_transport::memory::Regions;
use landfall_transport::packet::{Framing, PacketConfig, PacketDriver};
use landfall_transport::udp_packet::{UdpPacketConfig, UdpPacketDriver};

use crate::support::packet::rawip::{VERSIONS, Version, address};
use crate::support::packet::udp::MTU;
use crate::support::packet::{EXPERIMENTAL, cable, numbered_frame, open_sender, send_frames};
use crate::support::{PATIENCE, Scripted};

const MEMBERS: usize = 4;

fn listeners() -> Vec<Scripted> {
    (0..MEMBERS).map(|_| Scripted::new(|_, _| Ok(Placement::Consumed))).collect()
}

/// Turns all until this many units were seen by all together, and then once more each.
fn hear<D: Driver>(drivers: &mut [D], engines: &mut [Scripted], count: usize) {
    let started = std::time::Instant::now();
    loop {
        let seen: usize = engines.iter().map(|engine| engine.seen.len()).sum();
        for (driver, engine) in drivers.iter_mut().zip(engines.iter_mut()) {
            driver.turn(engine, landfall_placement::Instant::ZERO).unwrap();
        }
        if seen >= count {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{seen} of {count}");
    }
}

/// How many units of each peer each member saw.
fn seen_by_peer(engines: &[Scripted]) -> BTreeMap<String, Vec<(usize, usize)>> {
    let mut all: BTreeMap<String, Vec<(usize, usize)>> = BTreeMap::new();
    for (nth, engine) in engines.iter().enumerate() {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for (from, ..) in &engine.seen {
            *counts.entry(format!("{from:?}")).or_default() += 1;
        }
        for (peer, count) in counts {
            all.entry(peer).or_default().push((nth, count));
        }
    }
    all
}

fn group_at(end: &VethEnd) -> Vec<PacketDriver> {
    let framing = Framing::Payload { ethertype: EXPERIMENTAL };
    let config = PacketConfig::new(end.name.as_str(), framing);
    let regions = Regions::new(1);
    let open = || PacketDriver::open_group(PathId(0), &config, &regions, MEMBERS);
    end.namespace.enter(open).unwrap().unwrap()
}

/// Three frames from each of this many stations.
fn frames_of(end: &VethEnd, stations: u8) -> Vec<Vec<u8>> {
    let from = |station: u8| {
        let mut frame = numbered_frame(end, EXPERIMENTAL, station.into());
        frame[6..12].copy_from_slice(&[2, 0, 0, 0, 3, station]);
        frame
    };
    (0..3).flat_map(|_| (0..stations).map(from)).collect()
}

#[test]
fn all_frames_of_a_station_come_to_the_member_that_is_known_beforehand() {
    require_namespaces!();
    let cable = cable();
    let (mut drivers, mut engines) = (group_at(&cable.b), listeners());
    let (mut sender, mut from) = open_sender(&cable.a);
    send_frames(&mut sender, &mut from, frames_of(&cable.b, 64));
    hear(&mut drivers, &mut engines, 3 * 64);
    let mut shares = [0; MEMBERS];
    for station in 0..64 {
        let name = format!("{:?}", Peer::Ethernet([2, 0, 0, 0, 3, station]));
        let member = PacketDriver::member_of([2, 0, 0, 0, 3, station], MEMBERS).unwrap();
        assert_eq!(seen_by_peer(&engines)[&name], [(member, 3)], "{name}");
        shares[member] += 1;
    }
    assert!(shares.iter().all(|share| *share > 4), "{shares:?}");
    assert_eq!(PacketDriver::member_of([0; 6], 0), None);
}

#[test]
fn peers_stay_where_they_are_when_a_driver_of_the_group_goes() {
    require_namespaces!();
    let cable = cable();
    let (mut drivers, mut engines) = (group_at(&cable.b), listeners());
    let (mut sender, mut from) = open_sender(&cable.a);
    drivers.remove(0);
    engines.remove(0);
    send_frames(&mut sender, &mut from, frames_of(&cable.b, 32));
    let member = |station| PacketDriver::member_of([2, 0, 0, 0, 3, station], MEMBERS).unwrap();
    let left = (0..32).filter(|station| member(*station) != 0).count();
    hear(&mut drivers, &mut engines, 3 * left);
    let seen = seen_by_peer(&engines);
    assert_eq!(seen.len(), left);
    for (peer, seen) in seen {
        let station =
            (0..32).find(|nth| peer == format!("{:?}", Peer::Ethernet([2, 0, 0, 0, 3, *nth])));
        assert_eq!(seen, [(member(station.unwrap()) - 1, 3)], "{peer}");
    }
}

#[test]
fn datagrams_of_a_socket_come_to_one_member_and_sockets_are_spread() {
    require_namespaces!();
    let cable = cable();
    for version in VERSIONS {
        let bind = SocketAddr::new(address(&cable.b, version), 0);
        let config = UdpPacketConfig::new(bind, MTU);
        let regions = Regions::new(1);
        let open = || UdpPacketDriver::open_group(PathId(0), &config, &regions, MEMBERS);
        let mut drivers = cable.b.namespace.enter(open).unwrap().unwrap();
        let port = drivers[0].local_address();
        assert!(drivers.iter().all(|driver| driver.local_address() == port));
        let sockets: Vec<UdpSocket> = cable
            .a
            .namespace
            .enter(|| {
                let from = SocketAddr::new(address(&cable.a, version), 0);
                (0..48).map(|_| UdpSocket::bind(from).unwrap()).collect()
            })
            .unwrap();
        for _ in 0..3 {
            sockets
                .iter()
                .for_each(|socket| assert_eq!(socket.send_to(&[7; 50], port).unwrap(), 50));
        }
        let mut engines = listeners();
        hear(&mut drivers, &mut engines, 3 * 48);
        let seen = seen_by_peer(&engines);
        assert_eq!(seen.len(), 48);
        assert!(seen.values().all(|of_one| matches!(of_one[..], [(_, 3)])), "{seen:?}");
        assert!(engines.iter().all(|engine| engine.seen.len() >= 9), "{seen:?}");
        let taken = cable.b.namespace.enter(|| UdpSocket::bind(port).map(drop)).unwrap();
        assert_eq!(taken.unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    }
}

#[test]
fn more_members_than_the_kernel_takes_are_an_error_that_says_what_was_to_be_done() {
    require_namespaces!();
    let cable = cable();
    let framing = Framing::Payload { ethertype: EXPERIMENTAL };
    let config = PacketConfig::new(cable.b.name.as_str(), framing);
    let regions = Regions::new(1);
    let open = || PacketDriver::open_group(PathId(0), &config, &regions, 257).map(drop);
    let error = cable.b.namespace.enter(open).unwrap().unwrap_err();
    assert!(error.to_string().contains("PACKET_FANOUT"), "{error}");
    let none = cable.b.namespace.enter(|| {
        let bind = SocketAddr::new(address(&cable.b, Version::Four), 0);
        UdpPacketDriver::open_group(PathId(0), &UdpPacketConfig::new(bind, MTU), &regions, 0)
    });
    assert!(none.unwrap().unwrap().is_empty());
}
