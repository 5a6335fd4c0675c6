//! UDP by a packet socket behind a ring: it carries what the plain driver carries, to the same
//! peers. As an ordinary user each test skips with one line.

use std::net::SocketAddr;

use landfall_placement::{Guess, Instant, Peer, Placement};
use landfall_testbed::{VethConfig, VethEnd, VethPair, require_namespaces, skip_unless};
use landfall_testkit::engines::numbered::Config;
use landfall_transport::memory::{Regions, Rights};
use landfall_transport::udp_packet::UdpPacketConfig;
use landfall_transport::uring::UringUdpPacketDriver;
use landfall_transport::{Clock, Driver, Feature, OpenError, Wait};

use crate::support::carriage::{self, Opened};
use crate::support::packet::rawip::{VERSIONS, Version, address};
use crate::support::packet::udp::{MTU, opened, ordinary};
use crate::support::packet::uring::why_no_uring;
use crate::support::packet::{cable, wait_for_link};
use crate::support::transfer::{PATH, PATIENT, messages, run_to_the_end, start};
use crate::support::{
    LABEL, PATIENCE, Scripted, assert_same, contents, labelled_head, lent, pattern, turn_until,
};

fn open(end: &VethEnd, version: Version, regions: &Regions) -> UringUdpPacketDriver {
    let config = UdpPacketConfig::new(SocketAddr::new(address(end, version), 0), MTU);
    let open = || UringUdpPacketDriver::open(PATH, &config, regions);
    end.namespace.enter(open).unwrap().unwrap()
}

fn opened_here(end: &VethEnd, version: Version) -> Opened<UringUdpPacketDriver> {
    let regions = Regions::new(8);
    let driver = open(end, version, &regions);
    let name = Peer::Socket(driver.local_address());
    Opened { driver, regions, name }
}

fn pair(cable: &VethPair, version: Version) -> [Opened<UringUdpPacketDriver>; 2] {
    [opened_here(&cable.a, version), opened_here(&cable.b, version)]
}

/// Carries all messages from one driver to another of any kind.
fn carry<A: Driver, B: Driver>(from: Opened<A>, to: Opened<B>) {
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
    skip_unless!(why_no_uring());
    let cable = cable();
    for version in VERSIONS {
        carriage::messages_in_units(pair(&cable, version), 1400);
        carriage::stream(pair(&cable, version));
        carriage::messages_between_threads(pair(&cable, version), Wait::Block);
    }
}

#[test]
fn it_speaks_with_the_plain_driver_and_with_ordinary_sockets_both_ways() {
    require_namespaces!();
    skip_unless!(why_no_uring());
    for real_frames in [false, true] {
        let cable = cable();
        cable.set_real_frames(real_frames).unwrap();
        for version in VERSIONS {
            carry(opened_here(&cable.a, version), opened(&cable.b, version));
            carry(opened(&cable.a, version), opened_here(&cable.b, version));
            carry(opened_here(&cable.a, version), ordinary(&cable.b, version));
            carry(ordinary(&cable.a, version), opened_here(&cable.b, version));
        }
    }
}

/// Three runs leave with one entry into the kernel, each as one frame, and land in guesses.
#[test]
fn several_runs_leave_with_one_entry_straight_into_place() {
    require_namespaces!();
    skip_unless!(why_no_uring());
    const UNIT: u32 = 1024;
    let cable = cable();
    for version in VERSIONS {
        let message = pattern(3 * 40 * UNIT as usize, 1);
        let (send_regions, source) = lent(&message, Rights::READ);
        let (regions, target) = lent(&vec![0; message.len()], Rights::WRITE);
        let mut sender = open(&cable.a, version, &send_regions);
        let mut receiver = open(&cable.b, version, &regions);
        let (mut from, mut to) = (Scripted::sender(), Scripted::labelled(target));
        let span = target.span(0, message.len() as u32);
        to.guesses = vec![Guess { span, head_len: LABEL as u16, payload_len: UNIT }];
        let whole = source.span(0, message.len() as u32);
        from.send_labelled(receiver.local_address().into(), whole, UNIT);
        turn_until(&mut sender, &mut from, |from, _| from.sent.len() == 3 * 40);
        turn_until(&mut receiver, &mut to, |to, _| to.landings.len() == 3 * 40);
        let (sent, came) = (*sender.counters(), *receiver.counters());
        assert_eq!((sent.send_calls, sent.units_sent), (1, 120), "one entry for all");
        assert!((2..=4).contains(&came.receive_calls), "many datagrams a frame: {came:?}");
        assert_eq!(sender.sent_by_kernel(), 0, "the neighbour is known for good");
        assert!(sender.capabilities().require(Feature::ZeroCopySend).is_err());
        assert_same(&contents(&regions, target), &message);
    }
}

#[test]
fn the_kernel_resolves_a_neighbour_with_what_is_sent_to_it() {
    require_namespaces!();
    skip_unless!(why_no_uring());
    let config = VethConfig { static_neighbours: false, ..VethConfig::default() };
    let cable = VethPair::new(config).unwrap();
    wait_for_link(&cable);
    for version in VERSIONS {
        let (regions, source) = lent(&pattern(1000, 1), Rights::READ);
        let mut sender = open(&cable.a, version, &regions);
        let mut receiver = open(&cable.b, version, &Regions::new(1));
        let mut to = Scripted::new(|_, _| Ok(Placement::Consumed));
        let (mut from, mut sent) = (Scripted::sender(), 0);
        let clock = Clock::start();
        let peer = Peer::Socket(receiver.local_address());
        // What was the kernel's comes as well: none is lost for it.
        while sender.sent_by_kernel() == sent {
            assert!(clock.now() < Instant::ZERO + PATIENCE);
            from.send(peer, labelled_head(0), &[source.span(0, 1000)]);
            while from.sent.len() as u64 == sent {
                sender.turn(&mut from, clock.now()).unwrap();
            }
            sent += 1;
            turn_until(&mut receiver, &mut to, |to, _| to.seen.len() as u64 == sent);
        }
        assert!(sender.sent_by_kernel() > 0, "nobody knew the station at first");
    }
}

#[test]
fn what_cannot_be_reached_is_lost_and_harms_nothing() {
    require_namespaces!();
    skip_unless!(why_no_uring());
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

#[test]
fn an_interface_that_goes_breaks_the_path_and_one_that_is_down_does_not() {
    require_namespaces!();
    skip_unless!(why_no_uring());
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
        if let Err(error) = sender.turn(&mut from, Instant::ZERO) {
            break error;
        }
        assert!(started.elapsed() < PATIENCE, "{:?}", sender.counters());
    };
    assert!(matches!(error.raw_os_error(), Some(libc::ENXIO | libc::ENODEV)), "{error}");
}

#[test]
fn what_is_missing_is_said() {
    require_namespaces!();
    skip_unless!(why_no_uring());
    let cable = cable();
    let refused = |bind: &str| {
        let config = UdpPacketConfig::new(bind.parse().unwrap(), MTU);
        let open = || UringUdpPacketDriver::open(PATH, &config, &Regions::new(1));
        let error = cable.a.namespace.enter(open).unwrap().unwrap_err();
        error.downcast::<OpenError>().unwrap()
    };
    assert!(matches!(refused("127.0.0.1:0"), OpenError::NotOfOneWire(_)));
    assert!(matches!(refused("192.0.2.1:0"), OpenError::NoAddress(_)));
}
