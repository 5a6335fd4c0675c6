//! UDP by a packet socket: to its like and to ordinary sockets of the kernel, over both
//! versions of IP. As an ordinary user each test skips with one line.

use std::net::{SocketAddr, UdpSocket};
use std::thread;

use landfall_placement::{Ecn, Guess, PathId, Peer, Placement};
use landfall_testbed::{Namespace, VethConfig, VethEnd, VethPair, require_namespaces};
use landfall_testkit::engines::numbered::Config;
use landfall_transport::memory::{Regions, Rights};
use landfall_transport::udp_packet::{UdpPacketConfig, UdpPacketDriver};
use landfall_transport::{Clock, Driver, Feature, OpenError, Privilege};

use crate::support::packet::rawip::{VERSIONS, Version, address};
use crate::support::packet::udp::{MTU, open, open_as, opened, ordinary, pair};
use crate::support::packet::{cable, wait_for_link};
use crate::support::transfer::{PATIENT, messages, run_to_the_end, start};
use crate::support::{
    LABEL, PATIENCE, Scripted, Sending, assert_same, become_nobody, carriage, contents,
    labelled_head, lent, pattern, turn_until,
};

/// A cable whose kernels have yet to ask for each other's station.
fn unresolved_cable() -> VethPair {
    let config = VethConfig { static_neighbours: false, ..VethConfig::default() };
    let pair = VethPair::new(config).unwrap();
    wait_for_link(&pair);
    pair
}

/// Carries all messages from one driver to another of any kind.
fn carry<A: Driver, B: Driver>(from: carriage::Opened<A>, to: carriage::Opened<B>) {
    let clock = Clock::start();
    let (peer, config) = (to.name, Config { unit: 1400, ..PATIENT });
    let mut from = from.end(&messages(), config, 1, &clock);
    let mut to = to.end(&vec![0; messages().len()], config, 2, &clock);
    start(&mut from, &mut to, peer, &clock);
    run_to_the_end(&mut from, &mut to, &clock);
    assert_same(&to.contents(), &messages());
}

#[test]
fn it_carries_what_every_driver_does() {
    require_namespaces!();
    let cable = cable();
    for version in VERSIONS {
        carriage::messages_in_units(pair(&cable, version), 1400);
        carriage::stream(pair(&cable, version));
        carriage::messages_between_threads(pair(&cable, version), landfall_transport::Wait::Block);
    }
}

#[test]
fn it_speaks_with_ordinary_sockets_both_ways() {
    require_namespaces!();
    let cable = cable();
    for version in VERSIONS {
        carry(opened(&cable.a, version), ordinary(&cable.b, version));
        carry(ordinary(&cable.a, version), opened(&cable.b, version));
    }
}

#[test]
fn it_speaks_with_them_in_real_frames() {
    require_namespaces!();
    let cable = cable();
    cable.set_real_frames(true).unwrap();
    for version in VERSIONS {
        carry(opened(&cable.a, version), ordinary(&cable.b, version));
        carry(ordinary(&cable.a, version), opened(&cable.b, version));
        carry(opened(&cable.a, version), opened(&cable.b, version));
    }
}

/// Sends a message in labelled units, all of which are guessed.
fn carry_guessed(
    cable: &VethPair,
    version: Version,
    (len, unit): (usize, u32),
) -> [UdpPacketDriver; 2] {
    let message = pattern(len, 1);
    let (send_regions, source) = lent(&message, Rights::READ);
    let (regions, target) = lent(&vec![0; len], Rights::WRITE);
    let mut sender = open(&cable.a, version, &send_regions);
    let mut receiver = open(&cable.b, version, &regions);
    let (mut from, mut to) = (Scripted::sender(), Scripted::labelled(target));
    let span = target.span(0, len as u32);
    to.guesses = vec![Guess { span, head_len: LABEL as u16, payload_len: unit }];
    let units = len.div_ceil(unit as usize);
    from.send_labelled(receiver.local_address().into(), source.span(0, len as u32), unit);
    turn_until(&mut sender, &mut from, |from, _| from.sent.len() == units);
    turn_until(&mut receiver, &mut to, |to, _| to.landings.len() == units);
    let own = Peer::Socket(sender.local_address());
    assert!(to.seen.iter().all(|(from, ..)| *from == own));
    assert_same(&contents(&regions, target), &message);
    [sender, receiver]
}

#[test]
fn many_datagrams_leave_and_come_with_one_call_straight_into_place() {
    require_namespaces!();
    let cable = cable();
    for version in VERSIONS {
        let [sender, receiver] = carry_guessed(&cable, version, (40 * 1024 + 300, 1024));
        let counters = receiver.counters();
        assert_eq!((sender.counters().send_calls, counters.receive_calls), (1, 1));
        assert_eq!((counters.guessed_right, counters.guessed_wrong), (41, 0));
        assert_eq!((counters.bytes_copied, counters.bytes_summed), (0, 0));
        assert_eq!(sender.sent_by_kernel(), 0, "the neighbour is known for good");
        assert!(sender.capabilities().has(Feature::BatchedSend));
        assert!(sender.capabilities().require(Feature::ZeroCopySend).is_err());
    }
}

#[test]
fn no_call_has_more_than_a_receive_joins() {
    require_namespaces!();
    let cable = cable();
    let [sender, receiver] = carry_guessed(&cable, Version::Four, (128 * 100, 100));
    assert_eq!((sender.counters().send_calls, receiver.counters().receive_calls), (2, 2));
    assert_eq!(receiver.counters().units_received, 128);
}

#[test]
fn the_kernel_resolves_a_neighbour_and_is_not_needed_then() {
    require_namespaces!();
    let cable = unresolved_cable();
    for version in VERSIONS {
        let (regions, source) = lent(&pattern(1000, 1), Rights::READ);
        let mut sender = open(&cable.a, version, &regions);
        let mut receiver = open(&cable.b, version, &Regions::new(1));
        let mut to = Scripted::new(|_, _| Ok(Placement::Consumed));
        let (mut from, mut sent) = (Scripted::sender(), 0);
        let clock = Clock::start();
        // What was the kernel's comes as well: none is lost for it.
        let peer = Peer::Socket(receiver.local_address());
        while sender.sent_by_kernel() == sent {
            assert!(clock.now() < landfall_placement::Instant::ZERO + PATIENCE);
            from.send(peer, labelled_head(0), &[source.span(0, 1000)]);
            while from.sent.len() as u64 == sent {
                sender.turn(&mut from, clock.now()).unwrap();
            }
            sent += 1;
            turn_until(&mut receiver, &mut to, |to, _| to.seen.len() as u64 == sent);
        }
        assert!(sender.sent_by_kernel() > 0, "nobody knew the station at first");
        assert!(to.seen.iter().all(|(_, _, len)| *len == 1008));
    }
}

#[test]
fn what_cannot_be_reached_is_lost_and_harms_nothing() {
    require_namespaces!();
    let cable = cable();
    let (regions, source) = lent(&pattern(1000, 1), Rights::READ);
    let mut sender = open(&cable.a, Version::Four, &regions);
    let mut receiver = open(&cable.b, Version::Four, &Regions::new(1));
    let mut from = Scripted::sender();
    // No route, another version of IP, and no socket at all.
    let nowhere = [
        Peer::Socket("198.51.100.1:7".parse().unwrap()),
        Peer::Socket(SocketAddr::new(cable.b.ipv6.into(), 7)),
        Peer::Ethernet(cable.b.mac.0),
        Peer::Unaddressed,
    ];
    for peer in nowhere {
        from.send(peer, labelled_head(0), &[source.span(0, 1000)]);
    }
    from.send(receiver.local_address().into(), labelled_head(0), &[source.span(0, 1000)]);
    turn_until(&mut sender, &mut from, |from, _| from.sent.len() == 5);
    assert_eq!((sender.counters().send_failed, sender.counters().units_sent), (4, 1));
    let mut to = Scripted::new(|_, _| Ok(Placement::Consumed));
    turn_until(&mut receiver, &mut to, |to, _| to.seen.len() == 1);
}

/// A socket of the kernel at this end.
fn kernel_socket(end: &VethEnd) -> UdpSocket {
    let bind = || UdpSocket::bind(SocketAddr::new(end.ipv4.into(), 0)).unwrap();
    let socket = end.namespace.enter(bind).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

#[test]
fn nobody_hears_that_the_port_is_closed_and_nothing_waits_in_it() {
    require_namespaces!();
    let cable = cable();
    let mut receiver = open(&cable.b, Version::Four, &Regions::new(1));
    let socket = kernel_socket(&cable.a);
    let port = receiver.local_address();
    socket.connect(port).unwrap();
    // A second send would report what the first was answered.
    (0..100).for_each(|_| assert_eq!(socket.send(&[7; 100]).unwrap(), 100));
    let mut to = Scripted::new(|_, _| Ok(Placement::Consumed));
    turn_until(&mut receiver, &mut to, |to, _| to.seen.len() == 100);
    assert_eq!(socket.send(&[7; 100]).unwrap(), 100);
    let table = cable.b.namespace.enter(|| std::fs::read_to_string("/proc/thread-self/net/udp"));
    let table = table.unwrap().unwrap();
    let hex = format!(":{:04X} ", port.port());
    let row = table.lines().find(|row| row.contains(&hex)).expect("the port is held");
    assert!(row.contains(" 00000000:00000000 "), "both queues are empty: {row}");
    let again = cable.b.namespace.enter(|| UdpSocket::bind(port).map(drop)).unwrap();
    assert_eq!(again.unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
}

#[test]
fn congestion_marks_cross_both_ways() {
    require_namespaces!();
    let cable = cable();
    for version in VERSIONS {
        let (regions, source) = lent(&pattern(1000, 1), Rights::READ);
        let mut sender = open(&cable.a, version, &regions);
        let mut receiver = open(&cable.b, version, &Regions::new(1));
        let (mut from, mut to) =
            (Scripted::sender(), Scripted::new(|_, _| Ok(Placement::Consumed)));
        let marks = [Ecn::NotCapable, Ecn::Capable0, Ecn::CongestionExperienced, Ecn::Capable1];
        for ecn in marks {
            let (to, head) = (receiver.local_address().into(), labelled_head(0));
            let payload = vec![source.span(0, 1000)];
            let (segment, checksum, sum_only) = (None, None, 0);
            from.to_send.push_back(Sending { to, head, payload, segment, checksum, sum_only, ecn });
        }
        turn_until(&mut sender, &mut from, |from, _| from.sent.len() == 4);
        turn_until(&mut receiver, &mut to, |to, _| to.seen.len() == 4);
        assert_eq!(to.marks, marks);
    }
}

#[test]
fn peers_that_alternate_are_told_apart_by_their_first_head() {
    require_namespaces!();
    let cable = cable();
    let (regions, target) = lent(&[0; 64 << 10], Rights::WRITE);
    let mut receiver = open(&cable.b, Version::Four, &regions);
    let (one, two) = (kernel_socket(&cable.a), kernel_socket(&cable.a));
    let mut to = Scripted::labelled(target);
    // Always wrong: what comes belongs elsewhere.
    to.guesses = vec![Guess { span: target.span(60_000, 1000), head_len: 8, payload_len: 1000 }];
    let message = pattern(50_000, 4);
    for nth in 0..50usize {
        let mut datagram = labelled_head(nth as u32 * 1000);
        datagram.extend(&message[nth * 1000..][..1000]);
        let socket = if nth % 2 == 0 { &one } else { &two };
        socket.send_to(&datagram, receiver.local_address()).unwrap();
    }
    turn_until(&mut receiver, &mut to, |to, _| to.landings.len() == 50);
    let counters = *receiver.counters();
    assert!(counters.peeks > 40, "{counters:?}");
    drop(receiver);
    assert_same(&contents(&regions, target)[..50_000], &message);
}

#[test]
fn the_path_finds_its_mtu() {
    require_namespaces!();
    let cable = VethPair::new(VethConfig { mtu: 9000, ..VethConfig::default() }).unwrap();
    for (version, headers) in [(Version::Four, 28), (Version::Six, 48)] {
        let config = UdpPacketConfig::discover(SocketAddr::new(address(&cable.a, version), 0));
        let limits = open_as(&cable.a, &config, &Regions::new(1)).unwrap().limits();
        assert_eq!((limits.unit, limits.sure), (9000 - headers, 1200));
    }
}

#[test]
fn what_is_missing_is_said() {
    require_namespaces!();
    let namespace = Namespace::new().unwrap();
    let open = |bind: &str| {
        let config = UdpPacketConfig::new(bind.parse().unwrap(), MTU);
        let opened = UdpPacketDriver::open(PathId(0), &config, &Regions::new(1));
        opened.map(drop).unwrap_err()
    };
    let of = |bind: &'static str| namespace.enter(move || open(bind)).unwrap();
    assert!(matches!(of("127.0.0.1:0"), OpenError::NotOfOneWire(_)));
    assert!(of("0.0.0.0:0").to_string().contains("plain UDP"));
    assert!(matches!(of("192.0.2.1:0"), OpenError::NoAddress(_)));
    let cable = cable();
    let interface = Some("no-such".into());
    let bind = SocketAddr::new(cable.a.ipv4.into(), 0);
    let config = UdpPacketConfig { interface, ..UdpPacketConfig::new(bind, MTU) };
    let error = open_as(&cable.a, &config, &Regions::new(1)).unwrap_err();
    assert!(matches!(error, OpenError::NoInterface(_)), "{error}");
    let opened = cable.a.namespace.enter(|| {
        thread::spawn(move || {
            become_nobody();
            UdpPacketDriver::open(PathId(0), &UdpPacketConfig::new(bind, MTU), &Regions::new(1))
                .map(drop)
        })
        .join()
        .unwrap()
    });
    let error = opened.unwrap().unwrap_err();
    assert!(matches!(error, OpenError::NoPrivilege(Privilege::PacketSockets)), "{error}");
}

#[test]
fn an_interface_that_goes_breaks_the_path_and_one_that_is_down_does_not() {
    require_namespaces!();
    let cable = cable();
    let (regions, source) = lent(&pattern(1000, 1), Rights::READ);
    let mut sender = open(&cable.a, Version::Four, &regions);
    let mut from = Scripted::sender();
    let peer = Peer::Socket(SocketAddr::new(cable.b.ipv4.into(), 7));
    cable.a.set_up(false).unwrap();
    from.send(peer, labelled_head(0), &[source.span(0, 1000)]);
    turn_until(&mut sender, &mut from, |from, _| from.sent.len() == 1);
    drop(cable);
    let started = std::time::Instant::now();
    let error = loop {
        from.send(peer, labelled_head(0), &[source.span(0, 1000)]);
        if let Err(error) = sender.turn(&mut from, landfall_placement::Instant::ZERO) {
            break error;
        }
        assert!(started.elapsed() < PATIENCE, "{:?}", sender.counters());
    };
    assert!(matches!(error.raw_os_error(), Some(libc::ENXIO | libc::ENODEV)), "{error}");
}
