//! What a TAP interface does, and what the driver makes of it. As an ordinary
//! user each test skips with one line.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use crate::support::packet::tap::{
    ENGINE, IPV4, KERNEL, NAME, PATH, datagram, open, open_as, open_packet, socket,
};
use crate::support::streams::{self, TO_PORT};
use crate::support::{
    PATIENCE, Scripted, assert_same, become_nobody, contents, lent, pattern, turn_until,
};
use landfall_placement::{Check, Instant, Landing, Peer, Placement, Refusal, Spans, Ticket, Unit};
use landfall_testbed::{Namespace, VethPair, privileges, require_namespaces, skip_unless};
use landfall_transport::memory::{Regions, Rights};
use landfall_transport::packet::{Framing, PacketConfig, PacketDriver};
use landfall_transport::tap::{TapConfig, TapDriver};
use landfall_transport::{Clock, Driver, Feature, OpenError, Privilege, Wait, Waiter};

fn namespace() -> Namespace {
    Namespace::new().unwrap()
}

#[test]
fn the_kernel_gets_datagrams_with_right_checksums() {
    require_namespaces!();
    for offload in [true, false] {
        let namespace = namespace();
        let message = pattern(1201, 1);
        let (regions, source) = lent(&message, Rights::READ);
        let adjust = |config| TapConfig { offload, ..config };
        let mut driver = open_as(&namespace, &regions, adjust).unwrap();
        let socket = socket(&namespace);
        let mut engine = Scripted::sender();
        // The kernel looks: one that is wrong does not arrive.
        let mut wrong = datagram(&driver).whole(source.span(0, 1000));
        wrong.head[streams::HEAD - 1] ^= 1;
        wrong.checksum = None;
        let right = datagram(&driver).whole(source.span(0, 1201));
        engine.to_send.extend([wrong, right]);
        turn_until(&mut driver, &mut engine, |engine, _| engine.sent.len() == 2);
        let mut arrived = [0; 2000];
        let (len, from) = socket.recv_from(&mut arrived).unwrap();
        assert_same(&arrived[..len], &message);
        assert_eq!(from, SocketAddr::from((ENGINE, streams::FROM_PORT)));
        let counters = driver.counters();
        assert_eq!((counters.units_sent, counters.send_failed), (2, 0));
        let summed = if offload { 0 } else { (1201 + streams::HEAD) as u64 };
        assert_eq!(counters.bytes_summed, summed);
    }
}

#[test]
fn the_kernel_joins_fragments_whose_sum_the_driver_filled_in() {
    require_namespaces!();
    for offload in [true, false] {
        let namespace = namespace();
        let message = pattern(1472 + 301, 2);
        let (regions, source) = lent(&message, Rights::READ);
        let adjust = |config| TapConfig { offload, ..config };
        let mut driver = open_as(&namespace, &regions, adjust).unwrap();
        let socket = socket(&namespace);
        let mut engine = Scripted::sender();
        let fragments = datagram(&driver).in_two(source.span(0, 1472), source.span(1472, 301));
        engine.to_send.extend(fragments);
        turn_until(&mut driver, &mut engine, |engine, _| engine.sent.len() == 2);
        let mut arrived = [0; 2000];
        let len = socket.recv(&mut arrived).unwrap();
        assert_same(&arrived[..len], &message);
    }
}

/// Asks for the sum of a datagram that the kernel sent, and for its payload.
fn place_datagram(
    region: landfall_placement::RegionId,
    unit: &Unit<'_>,
    into: &mut Spans,
) -> Result<Placement, Refusal> {
    if unit.head[12..14] != IPV4.to_be_bytes() {
        return Err(Refusal::Unsupported);
    }
    let payload = unit.len - streams::HEAD as u32;
    into.push(region.span(0, payload)).unwrap();
    let mut pseudo = landfall_placement::InternetSum::new();
    pseudo.add(&unit.head[26..34]);
    pseudo.add_word(17);
    pseudo.add_word(8 + payload as u16);
    let check = Check::InternetSum { from: 34, len: 8 + payload, seed: pseudo.sum() };
    Ok(Placement::Into { at: streams::HEAD as u16, check, ticket: Ticket::from_raw(1) })
}

#[test]
fn the_engine_gets_what_the_kernel_sends_and_nobody_sums_it() {
    require_namespaces!();
    for offload in [true, false] {
        let namespace = namespace();
        let message = pattern(1200, 3);
        let (regions, target) = lent(&[0; 1200], Rights::WRITE);
        let adjust = |config| TapConfig { offload, ..config };
        let mut driver = open_as(&namespace, &regions, adjust).unwrap();
        let socket = socket(&namespace);
        socket.set_broadcast(true).unwrap();
        let mut engine = Scripted::new(move |unit, into| place_datagram(target, unit, into));
        let everybody = std::net::Ipv4Addr::from(KERNEL.to_bits() | 0xff);
        assert_eq!(socket.send_to(&message, (everybody, TO_PORT)).unwrap(), 1200);
        turn_until(&mut driver, &mut engine, |engine, _| !engine.landings.is_empty());
        assert_eq!(engine.landings, [(Ticket::from_raw(1), Landing::Verified)]);
        let head = engine.seen.iter().map(|(_, head, _)| head).find(|head| head[12] == 8).unwrap();
        assert_eq!(head[6..12], driver.kernel_station());
        let summed = if offload { 0 } else { 1208 };
        assert_eq!(driver.counters().bytes_summed, summed);
        assert_same(&contents(&regions, target), &message);
    }
}

#[test]
fn what_is_configured_is_so() {
    require_namespaces!();
    let namespace = namespace();
    let regions = Regions::new(8);
    let driver = open_as(&namespace, &regions, |config| TapConfig {
        mtu: Some(9000),
        kernel_station: Some([2, 0, 0, 1, 2, 3]),
        kernel_address: Some(("fd00:78::1".parse().unwrap(), 64)),
        ..config
    })
    .unwrap();
    assert_eq!((driver.name(), driver.mtu()), (NAME, 9000));
    assert_eq!(driver.kernel_station(), [2, 0, 0, 1, 2, 3]);
    let limits = driver.limits();
    assert_eq!((limits.unit, limits.super_unit), (9014, 65_549));
    assert!(limits.offloads.sum_send && limits.offloads.segment_tcp6);
    for feature in [Feature::TcpSegmentation, Feature::ChecksumOffload, Feature::RawFrames] {
        driver.capabilities().require(feature).unwrap();
    }
    let packet = open_packet(&namespace, &regions, IPV4);
    assert_eq!((packet.mtu(), packet.station()), (9000, [2, 0, 0, 1, 2, 3]));
    let bind = |address: IpAddr| namespace.enter(move || UdpSocket::bind((address, 0))).unwrap();
    // The kernel says later that nobody else has it, and until then nobody can use it.
    let started = std::time::Instant::now();
    while let Err(error) = bind("fd00:78::1".parse().unwrap()) {
        assert!(started.elapsed() < PATIENCE, "{error}");
        std::thread::yield_now();
    }
    assert!(bind(KERNEL.into()).is_err(), "it was not asked for");
}

#[test]
fn without_offload_nothing_is_offered() {
    require_namespaces!();
    let driver = open_as(&namespace(), &Regions::new(8), TapConfig::without_offload).unwrap();
    let limits = driver.limits();
    assert_eq!((limits.unit, limits.super_unit, limits.segments), (1514, 1514, 1));
    assert!(!limits.offloads.sum_send && !limits.offloads.sum_receive);
    let missing = driver.capabilities().require(Feature::TcpSegmentation).unwrap_err();
    assert!(missing.to_string().contains("configuration"));
}

#[test]
fn a_name_is_taken_once_and_free_when_its_driver_is_dropped() {
    require_namespaces!();
    let namespace = namespace();
    let regions = Regions::new(8);
    let first = open(&namespace, &regions);
    let again = open_as(&namespace, &regions, |config| config);
    assert!(matches!(again, Err(OpenError::NameInUse(name)) if name == NAME));
    drop(first);
    let framing = Framing::Payload { ethertype: 0x88b5 };
    let config = PacketConfig::new(NAME, framing);
    let is_gone = || {
        let opened = namespace.enter(|| PacketDriver::open(PATH, &config, &regions)).unwrap();
        matches!(opened, Err(OpenError::NoInterface(_)))
    };
    // Another test may just start a program, which has a copy of the descriptor until then.
    let began = std::time::Instant::now();
    while !is_gone() {
        assert!(began.elapsed() < Duration::from_secs(20), "it stays");
        std::thread::sleep(Duration::from_millis(10));
    }
    open(&namespace, &regions);
}

#[test]
fn an_interface_of_another_kind_is_not_taken() {
    require_namespaces!();
    let cable = VethPair::new(Default::default()).unwrap();
    let name = cable.a.name.clone();
    let opened =
        open_as(&cable.a.namespace, &Regions::new(8), |config| TapConfig { name, ..config });
    let error = opened.unwrap_err();
    assert!(matches!(error, OpenError::NameInUse(_)), "{error}");
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::AddrInUse);
}

#[test]
fn without_a_name_the_kernel_chooses_one() {
    require_namespaces!();
    let namespace = namespace();
    let regions = Regions::new(8);
    let unnamed = |config| TapConfig { name: String::new(), kernel_address: None, ..config };
    let one = open_as(&namespace, &regions, unnamed).unwrap();
    let two = open_as(&namespace, &regions, unnamed).unwrap();
    assert!(!one.name().is_empty() && one.name() != two.name());
    assert_ne!(one.index(), two.index());
}

#[test]
fn what_no_interface_can_have_is_said() {
    require_namespaces!();
    let namespace = namespace();
    let regions = Regions::new(8);
    for name in ["sixteen-bytes-00", "a/b", "a b", "a:1", "a\0"] {
        let named =
            open_as(&namespace, &regions, |config| TapConfig { name: name.into(), ..config });
        assert!(matches!(named, Err(OpenError::BadName(_))), "{name:?}: {named:?}");
    }
    let address = |text: &str, prefix| Some((text.parse().unwrap(), prefix));
    let bad: [fn(TapConfig) -> TapConfig; 2] = [
        |config| TapConfig { mtu: Some(10), ..config },
        |config| TapConfig { kernel_station: Some([1, 0, 0, 0, 0, 1]), ..config },
    ];
    // The kernel chooses their names: one that was just closed may still be in use where
    // another test is about to start a program.
    let unnamed = |config| TapConfig { name: String::new(), ..config };
    for adjust in bad {
        let error = open_as(&namespace, &regions, |config| adjust(unnamed(config))).unwrap_err();
        assert!(matches!(error, OpenError::Impossible { .. }), "{error}");
    }
    for kernel_address in [address("10.0.0.1", 33), address("fd00::1", 129)] {
        let adjust = |config| TapConfig { kernel_address, ..unnamed(config) };
        let error = open_as(&namespace, &regions, adjust);
        let error = error.unwrap_err();
        assert!(error.to_string().contains("the address"), "{error}");
    }
}

#[test]
fn an_ordinary_user_is_told_what_is_missing() {
    skip_unless!((!privileges::is_root()).then(|| "needs root to give it up".to_owned()));
    let opened = std::thread::spawn(|| {
        become_nobody();
        TapDriver::open(PATH, &TapConfig::new("lfnobody0"), &Regions::new(8))
    });
    let error = opened.join().unwrap().unwrap_err();
    let is_told = matches!(error, OpenError::NoPrivilege(Privilege::Tap) | OpenError::NoTapDevices);
    assert!(is_told, "{error}");
}

#[test]
fn while_the_interface_is_down_frames_are_lost() {
    require_namespaces!();
    let namespace = namespace();
    let message = pattern(100, 5);
    let (regions, source) = lent(&message, Rights::READ);
    let down = |config| TapConfig { up: false, ..config };
    let mut driver = open_as(&namespace, &regions, down).unwrap();
    let mut engine = Scripted::sender();
    engine.to_send.push_back(datagram(&driver).whole(source.span(0, 100)));
    driver.turn(&mut engine, Instant::ZERO).unwrap();
    assert_eq!((driver.counters().send_failed, driver.counters().units_sent), (1, 0));
    assert_eq!(engine.sent.len(), 1);
    namespace.set_interface(NAME, true).unwrap();
    engine.to_send.push_back(datagram(&driver).whole(source.span(0, 100)));
    driver.turn(&mut engine, Instant::ZERO).unwrap();
    assert_eq!((driver.counters().send_failed, driver.counters().units_sent), (1, 1));
}

#[test]
fn a_path_whose_interface_is_gone_is_broken() {
    require_namespaces!();
    let namespace = namespace();
    let mut driver = open(&namespace, &Regions::new(8));
    let mut engine = Scripted::sender();
    driver.turn(&mut engine, Instant::ZERO).unwrap();
    namespace.remove_interface(NAME).unwrap();
    let is_gone = |error: std::io::Error| error.raw_os_error() == Some(libc::EBADFD);
    assert!(driver.turn(&mut engine, Instant::ZERO).is_err_and(is_gone));
    engine.send(Peer::Unaddressed, vec![0; 60], &[]);
    assert!(driver.turn(&mut engine, Instant::ZERO).is_err_and(is_gone));
    assert_eq!(driver.counters().units_sent, 0);
}

#[test]
fn a_sleeper_is_woken_by_a_frame() {
    require_namespaces!();
    let namespace = namespace();
    let mut driver = open(&namespace, &Regions::new(8));
    let socket = socket(&namespace);
    socket.set_broadcast(true).unwrap();
    let mut engine = Scripted::sender();
    let everybody = std::net::Ipv4Addr::from(KERNEL.to_bits() | 0xff);
    let clock = Clock::start();
    let mut waiter = Waiter::new(Wait::Block);
    let sender = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        socket.send_to(b"wake up", (everybody, TO_PORT)).unwrap();
    });
    let is_ours = |engine: &Scripted| engine.seen.iter().any(|(_, head, _)| head[12] == 8);
    while !is_ours(&engine) {
        assert!(clock.now() < Instant::ZERO + PATIENCE, "nobody wakes it");
        if !driver.turn(&mut engine, clock.now()).unwrap().any() {
            let at_most = landfall_placement::Duration::from_secs(20);
            waiter.idle(&mut driver, &engine, &clock, at_most).unwrap();
        }
    }
    sender.join().unwrap();
}

#[test]
fn frames_that_are_none_are_lost() {
    require_namespaces!();
    let mut driver = open(&namespace(), &Regions::new(8));
    let mut engine = Scripted::sender();
    for len in [0, 1, 13] {
        engine.send(Peer::Unaddressed, vec![2; len], &[]);
    }
    turn_until(&mut driver, &mut engine, |engine, _| engine.sent.len() == 3);
    assert_eq!((driver.counters().send_failed, driver.counters().units_sent), (3, 0));
}
