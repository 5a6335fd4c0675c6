//! How the kernel treats packet sockets, one rule a test, over a cable between
//! two namespaces. As an ordinary user each test skips with one line.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::support::packet::{
    EXPERIMENTAL, IPV4, PATH, cable, cable_between, numbered_frame, numbers_seen, open, open_as,
    open_sender, send_frames, tcp_head, wait_for_link,
};
use crate::support::{
    LABEL, PATIENCE, Scripted, assert_same, become_nobody, contents, lent, pattern, turn_until,
};
use landfall_placement::checksum::checksum;
use landfall_placement::{Guess, Instant, InternetSum, Peer, Placement};
use landfall_testbed::{Namespace, VethPair, cpu, require_namespaces};
use landfall_transport::memory::{Regions, Rights};
use landfall_transport::packet::{Filter, Framing, PacketConfig, PacketDriver};
use landfall_transport::{Driver, Feature, OpenError, Privilege};

const OTHER: u16 = 0x88b6;

/// Hears everything that passes its filter.
fn listener() -> Scripted {
    Scripted::new(|_, _| Ok(Placement::Consumed))
}

/// Turns until this many units were seen.
fn hear(driver: &mut PacketDriver, engine: &mut Scripted, count: usize) {
    turn_until(driver, engine, |engine, _| numbers_seen(engine).len() >= count);
}

/// Does something in any case.
struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn frames_of_other_interfaces_are_not_heard_not_even_while_opening() {
    require_namespaces!();
    let (a, b) = (Namespace::new().unwrap(), Namespace::new().unwrap());
    let wanted = cable_between(&a, &b, 0);
    let noisy = cable_between(&a, &b, 1);
    let (regions, _) = lent(&[0], Rights::WRITE);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut driver, mut engine) = open_sender(&noisy.a);
            let started = std::time::Instant::now();
            while !stop.load(Ordering::Relaxed) && started.elapsed() < PATIENCE {
                let frame = numbered_frame(&noisy.b, EXPERIMENTAL, 666);
                send_frames(&mut driver, &mut engine, [frame]);
            }
        });
        // Ends the noise, if by a failed assertion.
        let _silence = OnDrop(|| stop.store(true, Ordering::Relaxed));
        for number in 0..50 {
            let filter =
                if number % 2 == 0 { Filter::any() } else { Filter::ethertypes([EXPERIMENTAL]) };
            let mut receiver = open(&wanted.b, filter, &regions);
            let (mut driver, mut engine) = open_sender(&wanted.a);
            let frame = numbered_frame(&wanted.b, EXPERIMENTAL, number);
            send_frames(&mut driver, &mut engine, [frame]);
            let mut to = listener();
            hear(&mut receiver, &mut to, 1);
            assert_eq!(numbers_seen(&to), [number]);
        }
    });
}

#[test]
fn own_frames_are_not_heard() {
    require_namespaces!();
    let cable = cable();
    let (regions, _) = lent(&[0], Rights::WRITE);
    let mut a = open(&cable.a, Filter::any(), &regions);
    let mut b = open(&cable.b, Filter::any(), &regions);
    let (mut at_a, mut at_b) = (listener(), listener());
    let frames = (0..5).map(|number| numbered_frame(&cable.b, EXPERIMENTAL, number));
    send_frames(&mut a, &mut at_a, frames);
    hear(&mut b, &mut at_b, 5);
    assert_eq!(numbers_seen(&at_b), [0, 1, 2, 3, 4]);
    // Whatever `a` might have heard of itself came before this.
    send_frames(&mut b, &mut at_b, [numbered_frame(&cable.a, EXPERIMENTAL, 77)]);
    hear(&mut a, &mut at_a, 1);
    assert_eq!(numbers_seen(&at_a), [77]);
    assert_eq!((a.counters().malformed, b.counters().malformed), (0, 0));
}

#[test]
fn only_what_passes_the_filter_is_heard() {
    require_namespaces!();
    let cable = cable();
    let (regions, _) = lent(&[0], Rights::WRITE);
    let mut one = open(&cable.b, Filter::ethertypes([EXPERIMENTAL]), &regions);
    let two = Filter::ethertypes([EXPERIMENTAL, OTHER]).station(cable.b.mac.0);
    let mut two = open(&cable.b, two, &regions);
    let (mut driver, mut engine) = open_sender(&cable.a);
    let mut broadcast = numbered_frame(&cable.b, OTHER, 4);
    broadcast[..6].fill(0xff);
    let frames = [
        numbered_frame(&cable.b, 0x88b7, 1),
        numbered_frame(&cable.b, OTHER, 2),
        numbered_frame(&cable.b, 0x0801, 3),
        broadcast,
        numbered_frame(&cable.b, EXPERIMENTAL, 5),
    ];
    send_frames(&mut driver, &mut engine, frames);
    let (mut at_one, mut at_two) = (listener(), listener());
    hear(&mut one, &mut at_one, 1);
    hear(&mut two, &mut at_two, 2);
    assert_eq!(numbers_seen(&at_one), [5]);
    assert_eq!(numbers_seen(&at_two), [2, 5]);
}

#[test]
fn frames_of_a_vlan_are_refused_and_priorities_are_not() {
    require_namespaces!();
    let cable = cable();
    let (regions, _) = lent(&[0], Rights::WRITE);
    for filter in [Filter::any(), Filter::ethertypes([EXPERIMENTAL])] {
        let mut receiver = open(&cable.b, filter, &regions);
        let (mut driver, mut engine) = open_sender(&cable.a);
        let tagged = |tag: u16, number| {
            let mut frame = numbered_frame(&cable.b, EXPERIMENTAL, number);
            let [high, low] = tag.to_be_bytes();
            frame.splice(12..12, [0x81, 0x00, high, low]);
            frame
        };
        let frames = [
            tagged(0x0005, 1),
            tagged(0xa005, 2),
            tagged(0xa000, 3),
            numbered_frame(&cable.b, EXPERIMENTAL, 4),
        ];
        send_frames(&mut driver, &mut engine, frames);
        let mut to = listener();
        hear(&mut receiver, &mut to, 2);
        assert_eq!(numbers_seen(&to), [3, 4], "the tag is gone from the frame");
        assert_eq!(receiver.counters().malformed, 2);
    }
}

#[test]
fn frames_to_other_stations_are_refused() {
    require_namespaces!();
    let cable = cable();
    let (regions, _) = lent(&[0], Rights::WRITE);
    let mut receiver = open(&cable.b, Filter::ethertypes([EXPERIMENTAL]), &regions);
    let (mut driver, mut engine) = open_sender(&cable.a);
    let mut foreign = numbered_frame(&cable.b, EXPERIMENTAL, 1);
    foreign[5] ^= 0x10;
    send_frames(&mut driver, &mut engine, [foreign, numbered_frame(&cable.b, EXPERIMENTAL, 2)]);
    let mut to = listener();
    hear(&mut receiver, &mut to, 1);
    assert_eq!(numbers_seen(&to), [2]);
    assert_eq!(receiver.counters().malformed, 1);
}

#[test]
fn a_station_of_its_own_may_hear_what_is_for_groups() {
    require_namespaces!();
    let cable = cable();
    let (regions, _) = lent(&[0], Rights::WRITE);
    let own = [2, 0x44, 0, 0, 0, 1];
    let filter = Filter::ethertypes([EXPERIMENTAL]);
    let mut receiver = open(&cable.b, filter.clone().station_and_groups(own), &regions);
    let mut deaf = open(&cable.b, filter.station(own), &regions);
    assert_eq!(receiver.station(), own);
    let (mut driver, mut engine) = open_sender(&cable.a);
    let to = |station: [u8; 6], number| {
        let mut frame = numbered_frame(&cable.b, EXPERIMENTAL, number);
        frame[..6].copy_from_slice(&station);
        frame
    };
    let mut of_a_vlan = to([0xff; 6], 5);
    of_a_vlan.splice(12..12, [0x81, 0x00, 0x00, 0x05]);
    let frames = [
        to([0xff; 6], 1),
        to([0x33, 0x33, 0, 0, 0, 7], 2),
        // The interface's own, and somebody else's.
        to(cable.b.mac.0, 3),
        to([2, 0x44, 0, 0, 0, 2], 4),
        of_a_vlan,
        to(own, 6),
    ];
    send_frames(&mut driver, &mut engine, frames);
    for (path, expected) in [(&mut receiver, &[1, 2, 6][..]), (&mut deaf, &[6])] {
        let mut to = listener();
        hear(path, &mut to, expected.len());
        assert_eq!(numbers_seen(&to), expected);
    }
}

#[test]
fn a_path_may_be_a_station_of_its_own() {
    require_namespaces!();
    let cable = cable();
    let (regions, _) = lent(&[0], Rights::WRITE);
    let own = [2, 0x44, 0, 0, 0, 1];
    let filter = Filter::ethertypes([EXPERIMENTAL]).station(own);
    let mut receiver = open(&cable.b, filter, &regions);
    assert_eq!(receiver.station(), own);
    let (mut driver, mut engine) = open_sender(&cable.a);
    let to_own = |number| {
        let mut frame = numbered_frame(&cable.b, EXPERIMENTAL, number);
        frame[..6].copy_from_slice(&own);
        frame
    };
    let mut of_a_vlan = to_own(2);
    of_a_vlan.splice(12..12, [0x81, 0x00, 0x00, 0x05]);
    let to_interface = numbered_frame(&cable.b, EXPERIMENTAL, 3);
    send_frames(&mut driver, &mut engine, [to_own(1), of_a_vlan, to_interface, to_own(4)]);
    let mut to = listener();
    hear(&mut receiver, &mut to, 2);
    assert_eq!(numbers_seen(&to), [1, 4]);
    assert_eq!(receiver.counters().malformed, 1);
}

/// Sends an opening of TCP to an address of the kernel at `b`, in a frame to
/// that station. Gives how many frames came back, by a reset or otherwise.
fn answers_of_the_kernel(cable: &VethPair, station: [u8; 6]) -> usize {
    let (regions, _) = lent(&[0], Rights::WRITE);
    let mut driver = open(&cable.a, Filter::ethertypes([IPV4, EXPERIMENTAL]), &regions);
    let (mut back, mut echo) = open_sender(&cable.b);
    let mut engine = listener();
    let mut opening = tcp_head(&cable.b, 0, 0);
    opening[..6].copy_from_slice(&station);
    opening[6..12].copy_from_slice(&cable.a.mac.0);
    opening[26..30].copy_from_slice(&cable.a.ipv4.octets());
    opening[30..34].copy_from_slice(&cable.b.ipv4.octets());
    opening[24..26].fill(0);
    let sum = checksum(&opening[14..34]);
    opening[24..26].copy_from_slice(&sum.to_be_bytes());
    opening[47] = 2;
    opening[50..52].fill(0);
    let mut sum = InternetSum::new();
    sum.add(&opening[26..34]);
    sum.add(&[0, 6, 0, 32]);
    sum.add(&opening[34..]);
    opening[50..52].copy_from_slice(&sum.checksum().to_be_bytes());
    send_frames(&mut driver, &mut engine, [opening]);
    // On a veth what the kernel answers comes back before this.
    send_frames(&mut back, &mut echo, [numbered_frame(&cable.a, EXPERIMENTAL, 9)]);
    turn_until(&mut driver, &mut engine, |engine, _| {
        engine.seen.last().is_some_and(|(_, head, _)| head[12..14] == EXPERIMENTAL.to_be_bytes())
    });
    engine.seen.len() - 1
}

#[test]
fn the_kernel_answers_for_its_own_station_alone() {
    require_namespaces!();
    let cable = cable();
    assert_eq!(answers_of_the_kernel(&cable, cable.b.mac.0), 1, "a reset");
    assert_eq!(answers_of_the_kernel(&cable, [2, 0x44, 0, 0, 0, 1]), 0);
}

#[test]
fn payloads_go_to_stations_and_come_from_them() {
    require_namespaces!();
    let cable = cable();
    let message = pattern(1500, 5);
    let (send_regions, source) = lent(&message, Rights::READ);
    let (regions, target) = lent(&[0; 1492], Rights::WRITE);
    let framing = || Framing::Payload { ethertype: EXPERIMENTAL };
    let mut sender = open_as(&cable.a, framing(), &send_regions, |config| config).unwrap();
    let mut receiver = open_as(&cable.b, framing(), &regions, |config| config).unwrap();
    assert_eq!(sender.limits().unit, 1500);
    assert_eq!(receiver.station(), cable.b.mac.0);
    let (mut from, mut to) = (Scripted::sender(), Scripted::labelled(target));
    let to_b = Peer::Ethernet(cable.b.mac.0);
    from.send_labelled(to_b, source.span(0, 1492), 1492);
    turn_until(&mut sender, &mut from, |from, _| from.sent.len() == 1);
    turn_until(&mut receiver, &mut to, |to, _| to.landings.len() == 1);
    assert_eq!(to.seen[0].0, Peer::Ethernet(cable.a.mac.0));
    // And back: anyone who sent can be answered.
    to.send(to.seen[0].0, vec![9; 50], &[]);
    turn_until(&mut receiver, &mut to, |to, _| to.sent.len() == 1);
    turn_until(&mut sender, &mut from, |from, _| from.seen.len() == 1);
    assert_eq!(from.seen[0], (to_b, vec![9; 50], 50));
    assert_eq!(contents(&regions, target), message[..1492]);
}

#[test]
fn payloads_move_many_a_call_straight_into_their_places() {
    require_namespaces!();
    let cable = cable();
    // Frames of one sender overtake each other if its thread moves.
    cpu::pin_this_thread(cpu::allowed_cores().unwrap()[0]).unwrap();
    let message = pattern(64 * 1024, 6);
    let (send_regions, source) = lent(&message, Rights::READ);
    let (regions, target) = lent(&vec![0; message.len()], Rights::WRITE);
    let framing = || Framing::Payload { ethertype: EXPERIMENTAL };
    let mut sender = open_as(&cable.a, framing(), &send_regions, |config| config).unwrap();
    let mut receiver = open_as(&cable.b, framing(), &regions, |config| config).unwrap();
    assert!(sender.capabilities().has(Feature::BatchedSend));
    let (mut from, mut to) = (Scripted::sender(), Scripted::labelled(target));
    let span = target.span(0, 64 * 1024);
    to.guesses = vec![Guess { span, head_len: LABEL as u16, payload_len: 1024 }];
    let peer = Peer::Ethernet(cable.b.mac.0);
    from.send_labelled(peer, source.span(0, 64 * 1024), 1024);
    // One that goes nowhere, between two that do.
    from.send(Peer::Unaddressed, vec![1; 9], &[]);
    from.send(peer, vec![1; 9], &[]);
    turn_until(&mut sender, &mut from, |from, _| from.sent.len() == 66);
    assert_eq!((sender.counters().send_failed, sender.counters().units_sent), (1, 65));
    assert_eq!(sender.counters().send_calls, 2, "64 a call");
    turn_until(&mut receiver, &mut to, |_, driver| driver.counters().units_received == 65);
    let counters = receiver.counters();
    assert_eq!((counters.guessed_right, counters.guessed_wrong), (64, 0));
    // The first alone, then 16 a call as long as they are guessed, then the last.
    assert_eq!((counters.bytes_copied, counters.receive_calls), (0, 1 + 4 + 1));
    assert_same(&contents(&regions, target), &message);
}

#[test]
fn a_payload_without_a_station_is_lost_and_counted() {
    require_namespaces!();
    let cable = cable();
    let (regions, _) = lent(&[0], Rights::ALL);
    let framing = Framing::Payload { ethertype: EXPERIMENTAL };
    let mut driver = open_as(&cable.a, framing, &regions, |config| config).unwrap();
    let mut engine = Scripted::sender();
    engine.send(Peer::Unaddressed, vec![0; 50], &[]);
    engine.send(Peer::Node(3), vec![0; 50], &[]);
    turn_until(&mut driver, &mut engine, |engine, _| engine.sent.len() == 2);
    assert_eq!((driver.counters().send_failed, driver.counters().units_sent), (2, 0));
}

#[test]
fn units_that_do_not_fit_are_lost_and_counted() {
    require_namespaces!();
    let cable = cable();
    let (regions, source) = lent(&[0; 2000], Rights::READ);
    let mut driver = open(&cable.a, Filter::any(), &regions);
    let mut engine = Scripted::sender();
    let head = numbered_frame(&cable.b, EXPERIMENTAL, 1)[..14].to_vec();
    assert_eq!(driver.limits().unit, 1514);
    engine.send(Peer::Unaddressed, head.clone(), &[source.span(0, 1519)]);
    engine.send(Peer::Unaddressed, head.clone(), &[source.span(0, 1500)]);
    // Without a whole header nobody knows where to.
    engine.send(Peer::Unaddressed, head[..13].to_vec(), &[]);
    engine.send(Peer::Unaddressed, Vec::new(), &[]);
    turn_until(&mut driver, &mut engine, |engine, _| engine.sent.len() == 4);
    assert_eq!((driver.counters().send_failed, driver.counters().units_sent), (3, 1));
}

#[test]
fn an_interface_may_go_down_and_come_up_but_not_away() {
    require_namespaces!();
    let cable = cable();
    let (regions, _) = lent(&[0], Rights::WRITE);
    let mut driver = open(&cable.a, Filter::any(), &regions);
    let mut engine = listener();
    let frame = || numbered_frame(&cable.b, EXPERIMENTAL, 1);
    cable.a.set_up(false).unwrap();
    engine.send(Peer::Unaddressed, frame(), &[]);
    turn_until(&mut driver, &mut engine, |engine, _| engine.sent.len() == 1);
    assert_eq!((driver.counters().send_failed, driver.counters().units_sent), (1, 0));
    cable.a.set_up(true).unwrap();
    wait_for_link(&cable);
    send_frames(&mut driver, &mut engine, [frame()]);
    drop(cable);
    engine.send(Peer::Unaddressed, vec![0; 60], &[]);
    let error = (0..3).find_map(|_| driver.turn(&mut engine, Instant::ZERO).err());
    assert_eq!(error.and_then(|error| error.raw_os_error()), Some(6), "ENXIO");
}

#[test]
fn what_is_not_there_is_told_in_clear_words() {
    require_namespaces!();
    let cable = cable();
    let (regions, _) = lent(&[0], Rights::WRITE);
    let plain = |config: PacketConfig| config.without_offload();
    let raw = || Framing::Ethernet { filter: Filter::any() };
    let open_with = |framing, adjust: fn(PacketConfig) -> PacketConfig| {
        open_as(&cable.a, framing, &regions, adjust)
    };
    let with = open_with(raw(), |config| config).unwrap();
    assert!(with.capabilities().has(Feature::RawFrames));
    assert!(with.capabilities().has(Feature::TcpSegmentation));
    let without = open_with(raw(), plain).unwrap();
    let missing = without.capabilities().require(Feature::TcpSegmentation).unwrap_err();
    assert!(missing.to_string().contains("switched off by the configuration"), "{missing}");
    let payload = open_with(Framing::Payload { ethertype: EXPERIMENTAL }, |config| config);
    let payload = payload.unwrap();
    let missing = payload.capabilities().require(Feature::ChecksumOffload).unwrap_err();
    assert!(missing.to_string().contains("Framing::Ethernet can"), "{missing}");

    let error = open_with(raw(), |config| PacketConfig { interface: "eth77".into(), ..config });
    let error = error.unwrap_err();
    assert!(matches!(&error, OpenError::NoInterface(_)), "{error}");
    assert!(error.to_string().contains("no interface eth77 in this network namespace"));
    let error = open_with(raw(), |config| PacketConfig { interface: 9999.into(), ..config });
    assert!(matches!(error, Err(OpenError::NoInterface(_))));
    let error = open_with(raw(), |config| PacketConfig { bypass_queue: true, ..config });
    assert!(matches!(error, Err(OpenError::BypassWithOffload)));
    // Number 3 would be every protocol there is.
    let error = open_with(Framing::Payload { ethertype: 3 }, |config| config);
    assert!(matches!(error, Err(OpenError::NotAnEthertype(3))));
}

#[test]
fn an_interface_is_found_by_name_and_by_index() {
    require_namespaces!();
    let cable = cable();
    let (regions, _) = lent(&[0], Rights::WRITE);
    let raw = || Framing::Ethernet { filter: Filter::any() };
    let by_name = open_as(&cable.b, raw(), &regions, |config| config).unwrap();
    let index = cable.b.index;
    let by_index = open_as(&cable.b, raw(), &regions, move |config| PacketConfig {
        interface: index.into(),
        ..config
    })
    .unwrap();
    assert_eq!(by_name.station(), by_index.station());
    assert_eq!(by_index.station(), cable.b.mac.0);
    assert_eq!(by_index.mtu(), 1500);
}

#[test]
fn the_queue_can_be_bypassed_without_offloads() {
    require_namespaces!();
    let cable = cable();
    let (regions, _) = lent(&[0], Rights::WRITE);
    let raw = Framing::Ethernet { filter: Filter::any() };
    let bypass =
        |config: PacketConfig| PacketConfig { bypass_queue: true, ..config.without_offload() };
    let mut sender = open_as(&cable.a, raw, &regions, bypass).unwrap();
    let mut receiver = open(&cable.b, Filter::any(), &regions);
    let (mut from, mut to) = (Scripted::sender(), listener());
    let frames = (0..3).map(|number| numbered_frame(&cable.b, EXPERIMENTAL, number));
    send_frames(&mut sender, &mut from, frames);
    hear(&mut receiver, &mut to, 3);
    assert_eq!(numbers_seen(&to), [0, 1, 2]);
}

#[test]
fn without_the_privilege_the_error_says_how_to_get_it() {
    let opened = thread::spawn(|| {
        become_nobody();
        let framing = Framing::Ethernet { filter: Filter::any() };
        PacketDriver::open(PATH, &PacketConfig::new("lo", framing), &Regions::new(1)).map(drop)
    });
    let error = opened.join().unwrap().unwrap_err();
    assert!(matches!(error, OpenError::NoPrivilege(Privilege::PacketSockets)), "{error}");
    assert!(error.to_string().contains("CAP_NET_RAW"));
    assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::PermissionDenied);
}
