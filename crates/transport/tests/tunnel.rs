//! Frames inside of UDP: an engine of whole frames speaks over it, as an
//! ordinary user, and frames find their stations.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use crate::support::streams::carry_stream;
use crate::support::{PATIENCE, Scripted, become_nobody, lent, turn_until};
use landfall_placement::{Instant, PathId, Peer, Placement, Refusal};
use landfall_testbed::privileges;
use landfall_testkit::engines::stream::Station;
use landfall_transport::memory::{Regions, Rights};
use landfall_transport::tunnel::{TooManyPeers, TunnelConfig, TunnelCounts, TunnelDriver};
use landfall_transport::{Driver, Feature};

const PATH: PathId = PathId(5);
const ALL: [u8; 6] = [0xff; 6];
const EXPERIMENTAL: [u8; 2] = [0x88, 0xb5];

fn here() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

fn open_as(regions: &Regions, adjust: impl FnOnce(TunnelConfig) -> TunnelConfig) -> TunnelDriver {
    let config = adjust(TunnelConfig::new(here(), 1500));
    TunnelDriver::open(PATH, &config, regions).unwrap()
}

/// Tunnels, each of which has all others as peers.
fn mesh<const N: usize>(adjust: fn(TunnelConfig) -> TunnelConfig) -> [(TunnelDriver, Regions); N] {
    let mut mesh = [(); N].map(|()| {
        let regions = Regions::new(8);
        (open_as(&regions, adjust), regions)
    });
    let addresses = mesh.each_ref().map(|(driver, _)| driver.local_address());
    for (driver, _) in &mut mesh {
        let own = driver.local_address();
        let others = addresses.iter().filter(|address| **address != own);
        others.for_each(|address| driver.add_peer(*address).unwrap());
    }
    mesh
}

const STATIONS: [Station<Ipv4Addr>; 2] = [
    Station { mac: [2, 0, 0, 0, 0, 1], ip: Ipv4Addr::new(10, 79, 0, 1), port: 7000 },
    Station { mac: [2, 0, 0, 0, 0, 2], ip: Ipv4Addr::new(10, 79, 0, 2), port: 7000 },
];

/// Streams between two tunnels, and checks how.
fn carry_a_stream(adjust: fn(TunnelConfig) -> TunnelConfig, in_batches: bool) {
    let [from, to] = mesh(adjust);
    let (from, to) = carry_stream(from, to, STATIONS, 3_000_000);
    let (sent, received) = (from.driver.counters(), to.driver.counters());
    assert!(sent.units_sent > 2000, "whole frames, one a datagram: {sent:?}");
    assert_eq!(in_batches, sent.units_sent > 4 * sent.send_calls, "{sent:?}");
    assert!(sent.bytes_summed > 3_000_000 && received.bytes_summed > 3_000_000);
    assert!(received.guessed_right > 0 && received.corrupt == 0, "{received:?}");
    // Once each has heard the other, each knows where it is.
    assert!(from.driver.counts().to_all <= 2, "{:?}", from.driver.counts());
}

#[test]
fn an_ordinary_user_streams_in_frames() {
    let user = std::thread::spawn(|| {
        if privileges::is_root() {
            become_nobody();
        }
        carry_a_stream(|config| config, true);
    });
    user.join().unwrap();
}

#[test]
fn frames_cross_one_by_one_where_batches_are_switched_off() {
    carry_a_stream(|config| TunnelConfig { batch: false, ..config }, false);
}

fn station(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 1, number]
}

fn frame(to: [u8; 6], from: [u8; 6], text: &[u8]) -> Vec<u8> {
    [&to[..], &from[..], &EXPERIMENTAL[..], text].concat()
}

/// A station that notes all frames it gets.
struct Host {
    driver: TunnelDriver,
    engine: Scripted,
    number: u8,
}

impl Host {
    fn send(&mut self, to: [u8; 6], text: &[u8]) {
        let sent = self.engine.sent.len();
        self.engine.send(Peer::Unaddressed, frame(to, station(self.number), text), &[]);
        turn_until(&mut self.driver, &mut self.engine, |engine, _| engine.sent.len() == sent + 1);
    }

    /// Waits for this text, and gives all that came until then.
    fn hears(&mut self, text: &[u8]) -> Vec<Vec<u8>> {
        turn_until(&mut self.driver, &mut self.engine, |engine, _| {
            engine.seen.iter().any(|(_, head, _)| &head[14..] == text)
        });
        let seen = self.engine.seen.drain(..);
        seen.map(|(from, head, _)| {
            assert_eq!(from, Peer::Unaddressed, "the addresses are in the head");
            head[14..].to_vec()
        })
        .collect()
    }
}

fn hosts<const N: usize>() -> [Host; N] {
    let mut number = 0;
    mesh(|config| config).map(|(driver, _)| {
        number += 1;
        Host { driver, engine: Scripted::sender(), number }
    })
}

#[test]
fn three_stations_find_each_other() {
    let [mut one, mut two, mut three] = hosts();
    one.send(ALL, b"who is two?");
    assert_eq!(two.hears(b"who is two?").len(), 1);
    assert_eq!(three.hears(b"who is two?").len(), 1);
    // Two has heard one, and knows where it is; three hears nothing of this.
    two.send(station(1), b"I am");
    assert_eq!(one.hears(b"I am").len(), 1);
    one.send(station(2), b"hello, two");
    two.hears(b"hello, two");
    // A station that nobody has heard of may be anywhere.
    one.send(station(3), b"hello, three?");
    two.hears(b"hello, three?");
    let heard = three.hears(b"hello, three?");
    assert_eq!(heard, [b"hello, three?".to_vec()], "nothing of what was for others");
    assert_eq!(one.driver.counts(), TunnelCounts { to_all: 2, ..Default::default() });
    assert_eq!(two.driver.counts(), TunnelCounts::default());
    assert_eq!(one.engine.sent.len(), 3, "each is reported once, however often it was sent");
    assert_eq!(one.driver.counters().units_sent, 5);
}

#[test]
fn a_station_that_moves_is_found_again() {
    let [mut one, mut two, mut three] = hosts();
    two.send(ALL, b"here");
    one.hears(b"here");
    three.hears(b"here");
    three.number = 2;
    three.send(ALL, b"now here");
    one.hears(b"now here");
    one.send(station(2), b"there");
    three.hears(b"there");
    assert_eq!(one.driver.counts().to_all, 0);
}

#[test]
fn invariant_3_strangers_are_refused() {
    let regions = Regions::new(8);
    let mut driver = open_as(&regions, |config| config);
    let mut engine = Scripted::sender();
    let stranger = UdpSocket::bind(here()).unwrap();
    let hello = frame(ALL, station(7), b"let me in");
    stranger.send_to(&hello, driver.local_address()).unwrap();
    turn_until(&mut driver, &mut engine, |_, driver| driver.counts().strangers == 1);
    assert!(engine.seen.is_empty());
    assert_eq!(driver.counters().refused, 1);
    // What a stranger says of its station is not believed either.
    engine.send(Peer::Unaddressed, frame(station(7), station(1), b"secret"), &[]);
    turn_until(&mut driver, &mut engine, |engine, _| engine.sent.len() == 1);
    assert_eq!(driver.counts().to_nobody, 1);
    // As a peer it is let in.
    driver.add_peer(stranger.local_addr().unwrap()).unwrap();
    stranger.send_to(&hello, driver.local_address()).unwrap();
    turn_until(&mut driver, &mut engine, |engine, _| engine.seen.len() == 1);
    assert!(driver.remove_peer(stranger.local_addr().unwrap()));
    stranger.send_to(&hello, driver.local_address()).unwrap();
    turn_until(&mut driver, &mut engine, |_, driver| driver.counts().strangers == 2);
    assert_eq!(engine.seen.len(), 1);
}

#[test]
fn peers_are_learned_where_that_is_asked_for_up_to_a_bound() {
    let regions = Regions::new(8);
    let mut driver =
        open_as(&regions, |config| TunnelConfig { learn_peers: true, most_peers: 2, ..config });
    let mut engine = Scripted::sender();
    let sockets = [(); 3].map(|()| UdpSocket::bind(here()).unwrap());
    for (n, socket) in sockets.iter().enumerate() {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let hello = frame(ALL, station(n as u8), b"hello");
        socket.send_to(&hello, driver.local_address()).unwrap();
        turn_until(&mut driver, &mut engine, |engine, driver| {
            engine.seen.len() as u64 + driver.counts().strangers == n as u64 + 1
        });
    }
    assert_eq!((engine.seen.len(), driver.counts().strangers), (2, 1));
    let known: Vec<_> = sockets[..2].iter().map(|socket| socket.local_addr().unwrap()).collect();
    assert!(driver.peers().eq(known));
    engine.send(Peer::Unaddressed, frame(station(1), station(9), b"you"), &[]);
    turn_until(&mut driver, &mut engine, |engine, _| engine.sent.len() == 1);
    let mut bytes = [0; 100];
    let len = sockets[1].recv(&mut bytes).unwrap();
    assert_eq!(&bytes[14..len], b"you");
    assert_eq!(driver.add_peer(here()), Err(TooManyPeers { most: 2 }));
}

#[test]
fn invariant_8_datagrams_that_are_no_frames_are_refused() {
    let regions = Regions::new(8);
    let mut driver = open_as(&regions, |config| config);
    let peer = UdpSocket::bind(here()).unwrap();
    driver.add_peer(peer.local_addr().unwrap()).unwrap();
    let mut engine = Scripted::new(|_, _| Err(Refusal::Unsupported));
    for len in 0..30 {
        peer.send_to(&vec![0x55; len], driver.local_address()).unwrap();
    }
    turn_until(&mut driver, &mut engine, |_, driver| driver.counters().refused == 30);
    assert_eq!(driver.counts().no_frames, 14);
    assert!(engine.seen.iter().all(|(_, head, len)| head.len() >= 14 && *len >= 14));
    // Nor are units without addresses sent anywhere.
    engine.send(Peer::Unaddressed, vec![0; 5], &[]);
    turn_until(&mut driver, &mut engine, |engine, _| engine.sent.len() == 1);
    assert_eq!(driver.counts().to_nobody, 1);
}

#[test]
fn payloads_go_to_all_from_where_they_lie() {
    let [(one, regions), (two, _), (three, _)] = mesh(|config| config);
    let memory = regions
        .lend(landfall_transport::memory::Memory::from_bytes(b"everybody hears"), Rights::READ)
        .unwrap();
    let mut hosts = [one, two, three].map(|driver| {
        let engine = Scripted::new(|unit, _| match unit.head.len() == unit.len as usize {
            true => Ok(Placement::Consumed),
            false => Ok(Placement::NeedHead(unit.len as u16)),
        });
        Host { driver, engine, number: 1 }
    });
    let head = frame(ALL, station(1), b"");
    for _ in 0..200 {
        hosts[0].engine.send(Peer::Unaddressed, head.clone(), &[memory.span(0, 15)]);
    }
    let Host { driver, engine, .. } = &mut hosts[0];
    turn_until(driver, engine, |engine, _| engine.sent.len() == 200);
    assert_eq!(driver.counters().units_sent, 400);
    for host in &mut hosts[1..] {
        let Host { driver, engine, .. } = host;
        turn_until(driver, engine, |engine, _| engine.seen.len() >= 200);
        let heard = engine.seen.iter().filter(|(_, head, _)| head[14..] == *b"everybody hears");
        assert_eq!(heard.count(), 200);
    }
}

#[test]
fn a_tunnel_says_what_it_is() {
    let (regions, _) = lent(&[0], Rights::READ);
    let driver = open_as(&regions, |config| config);
    let limits = driver.limits();
    assert_eq!((limits.unit, limits.super_unit, limits.segments), (1472, 1472, 1));
    assert!(!limits.offloads.sum_send && !limits.offloads.segment_tcp4);
    let capabilities = driver.capabilities();
    assert_eq!(capabilities.driver(), "tunnel");
    assert!(capabilities.has(Feature::RawFrames));
    let missing = capabilities.require(Feature::TcpSegmentation).unwrap_err();
    assert!(missing.to_string().contains("tunnelled"), "{missing}");
    let open = |config: TunnelConfig| TunnelDriver::open(PATH, &config, &regions);
    for frame in [0, 13, 65_508] {
        let error = open(TunnelConfig { frame, ..TunnelConfig::new(here(), 1500) }).unwrap_err();
        assert!(error.to_string().contains("between 14 and 65507"), "{error}");
    }
    let peers = vec![(Ipv4Addr::LOCALHOST, 1).into(), (Ipv4Addr::LOCALHOST, 2).into()];
    let error = open(TunnelConfig { peers, most_peers: 1, ..TunnelConfig::new(here(), 1500) });
    assert!(error.unwrap_err().to_string().contains("1 peers at most"));
}

#[test]
fn peers_of_both_families_share_one_socket() {
    let regions = Regions::new(8);
    let any: SocketAddr = "[::]:0".parse().unwrap();
    let Ok(mut driver) = TunnelDriver::open(PATH, &TunnelConfig::new(any, 1500), &regions) else {
        return privileges::skip("peers_of_both_families", "there is no IPv6 here");
    };
    let peer = UdpSocket::bind(here()).unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    driver.add_peer(peer.local_addr().unwrap()).unwrap();
    let mut engine = Scripted::sender();
    engine.send(Peer::Unaddressed, frame(ALL, station(1), b"hello"), &[]);
    driver.turn(&mut engine, Instant::ZERO).unwrap();
    let mut bytes = [0; 100];
    let (len, from) = peer.recv_from(&mut bytes).unwrap();
    assert_eq!(&bytes[14..len], b"hello");
    peer.send_to(&frame(station(1), station(2), b"and you"), from).unwrap();
    turn_until(&mut driver, &mut engine, |engine, _| engine.seen.len() == 1);
}
