//! Segmentation and checksums beneath a packet socket, both ways. As an
//! ordinary user each test skips with one line.

use crate::support;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use crate::support::packet::{
    ETHERNET, IPV4, TCP_HEAD, TCP_SUM, cable, open, open_as, place_tcp, pseudo_header, tcp_frame,
};
use crate::support::streams::{self, Datagram};
use crate::support::{Scripted, assert_same, contents, lent, pattern, turn_until};
use landfall_placement::{Check, Guess, InternetSum, Landing, Placement, RegionId, Ticket};
use landfall_testbed::{Offload, VethPair, require_namespaces};
use landfall_transport::Driver;
use landfall_transport::memory::{Regions, Rights};
use landfall_transport::packet::{Filter, Framing, PacketDriver};

const SEGMENT: u16 = 1448;
/// 40 segments.
const SUPER: u32 = 57_920;

/// Receives TCP frames into their places, and notes of how many segments of
/// which size each was made.
struct Receiver {
    driver: PacketDriver,
    engine: Scripted,
    regions: Regions,
    target: RegionId,
    segments: Arc<Mutex<Vec<Option<u16>>>>,
}

impl Receiver {
    fn new(cable: &VethPair, room: u32) -> Self {
        let (regions, target) = lent(&vec![0; room as usize], Rights::WRITE);
        let driver = open(&cable.b, Filter::ethertypes([IPV4]), &regions);
        let segments = Arc::new(Mutex::new(Vec::new()));
        let noted = segments.clone();
        let mut engine = Scripted::new(move |unit, into| {
            noted.lock().unwrap().push(unit.segment);
            place_tcp(target, unit, into)
        });
        let span = target.span(0, room);
        engine.guesses = vec![Guess { span, head_len: TCP_HEAD as u16, payload_len: 65_000 }];
        Self { driver, engine, regions, target, segments }
    }

    /// Turns until this many bytes are in place.
    fn receive(&mut self, bytes: u64) {
        turn_until(&mut self.driver, &mut self.engine, |_, driver| {
            driver.counters().payload_bytes == bytes
        });
        let verified = |(_, landing): &(Ticket, Landing)| *landing == Landing::Verified;
        assert!(self.engine.landings.iter().all(verified), "{:?}", self.engine.landings);
    }

    fn contents(&self) -> Vec<u8> {
        contents(&self.regions, self.target)
    }
}

/// Sends a message as one super-packet.
fn send_super(cable: &VethPair, message: &[u8]) -> PacketDriver {
    let (regions, source) = lent(message, Rights::READ);
    let mut driver = open(&cable.a, Filter::ethertypes([0xffff]), &regions);
    let mut engine = Scripted::sender();
    let payload = source.span(0, message.len() as u32);
    engine.to_send.push_back(tcp_frame(&cable.b, payload, 0, Some(SEGMENT)));
    turn_until(&mut driver, &mut engine, |engine, _| engine.sent.len() == 1);
    assert_eq!((driver.counters().units_sent, driver.counters().send_failed), (1, 0));
    driver
}

/// Sends this many messages as a super-packet each. Gives how many calls that took.
fn send_supers(cable: &VethPair, message: &[u8], count: u32) -> u64 {
    let (regions, source) = lent(message, Rights::READ);
    let mut driver = open(&cable.a, Filter::ethertypes([0xffff]), &regions);
    let mut engine = Scripted::sender();
    for at in (0..count).map(|nth| nth * SUPER) {
        let payload = source.span(u64::from(at), SUPER);
        engine.to_send.push_back(tcp_frame(&cable.b, payload, at, Some(SEGMENT)));
    }
    turn_until(&mut driver, &mut engine, |engine, _| engine.sent.len() == count as usize);
    driver.counters().send_calls
}

#[test]
fn super_packets_that_fill_their_places_leave_and_come_several_a_call() {
    require_namespaces!();
    let cable = cable();
    let message = pattern(8 * SUPER as usize, 5);
    let mut receiver = Receiver::new(&cable, 8 * SUPER);
    let place = |nth| receiver.target.span(u64::from(nth * SUPER), SUPER);
    let guess = |nth| Guess { span: place(nth), head_len: TCP_HEAD as u16, payload_len: SUPER };
    receiver.engine.guesses = (0..8).map(guess).collect();
    assert_eq!(send_supers(&cable, &message, 8), 1);
    receiver.receive(message.len() as u64);
    let counters = *receiver.driver.counters();
    // The first alone, then two, four, and the last.
    assert_eq!((counters.receive_calls, counters.guessed_right), (4, 8), "{counters:?}");
    assert_eq!((counters.bytes_copied, counters.guessed_wrong), (0, 0));
    assert_same(&receiver.contents(), &message);
}

#[test]
fn super_packets_of_a_stream_come_one_a_call_and_are_not_copied() {
    require_namespaces!();
    let cable = cable();
    let message = pattern(8 * SUPER as usize, 6);
    // One place for all: how much of it each takes is not known before.
    let mut receiver = Receiver::new(&cable, 8 * SUPER);
    send_supers(&cable, &message, 8);
    receiver.receive(message.len() as u64);
    let counters = *receiver.driver.counters();
    assert_eq!((counters.receive_calls, counters.guessed_right), (8, 8), "{counters:?}");
    assert_eq!((counters.bytes_copied, counters.guessed_wrong), (0, 0));
    assert_same(&receiver.contents(), &message);
}

#[test]
fn where_one_place_ends_the_next_is_posted_too() {
    require_namespaces!();
    let cable = cable();
    let message = pattern(8 * SUPER as usize, 7);
    let mut receiver = Receiver::new(&cable, 8 * SUPER);
    // Each takes two, which are as long as they happen to be.
    let place = |nth: u32| receiver.target.span(u64::from(nth * 2 * SUPER), 2 * SUPER);
    let guess = |nth| Guess { span: place(nth), head_len: TCP_HEAD as u16, payload_len: 65_000 };
    receiver.engine.guesses = (0..4).map(guess).collect();
    send_supers(&cable, &message, 8);
    receiver.receive(message.len() as u64);
    let counters = *receiver.driver.counters();
    assert_eq!((counters.receive_calls, counters.guessed_right), (5, 8), "{counters:?}");
    assert_eq!(counters.bytes_copied, 0);
    assert_same(&receiver.contents(), &message);
}

#[test]
fn after_a_miss_among_several_there_is_one_a_call() {
    require_namespaces!();
    let cable = cable();
    let message = pattern(8 * SUPER as usize, 8);
    let mut receiver = Receiver::new(&cable, 8 * SUPER);
    // The second super-packet does not fit what the first one leaves of the first place.
    let (first, all) = (60_000, 8 * SUPER);
    let spans = [receiver.target.span(0, first), receiver.target.span(60_000, all - first)];
    let guess = |span| Guess { span, head_len: TCP_HEAD as u16, payload_len: 65_000 };
    receiver.engine.guesses = spans.map(guess).to_vec();
    send_supers(&cable, &message, 8);
    receiver.receive(message.len() as u64);
    let counters = *receiver.driver.counters();
    assert_eq!((counters.guessed_wrong, counters.guessed_right), (2, 6), "{counters:?}");
    assert_eq!(counters.receive_calls, 7, "one, two, and then one by one");
    assert_same(&receiver.contents(), &message);
}

#[test]
fn a_super_packet_passes_whole_straight_into_its_place() {
    require_namespaces!();
    let cable = cable();
    let message = pattern(SUPER as usize, 1);
    let mut receiver = Receiver::new(&cable, SUPER);
    let sender = send_super(&cable, &message);
    receiver.receive(u64::from(SUPER));
    let counters = receiver.driver.counters();
    assert_eq!((counters.receive_calls, counters.units_received), (1, 1));
    assert_eq!((counters.guessed_right, counters.bytes_copied), (1, 0));
    assert_eq!(counters.bytes_summed + sender.counters().bytes_summed, 0);
    assert_eq!(*receiver.segments.lock().unwrap(), [Some(SEGMENT)]);
    assert_same(&receiver.contents(), &message);
}

#[test]
fn the_longest_super_packet_passes() {
    require_namespaces!();
    let cable = cable();
    let mut receiver = Receiver::new(&cable, 65_535);
    let longest = receiver.driver.limits().super_unit as usize - TCP_HEAD;
    assert_eq!(longest, 65_535 - 52, "all that an IPv4 packet can carry");
    let message = pattern(longest, 2);
    send_super(&cable, &message);
    receiver.receive(longest as u64);
    assert_same(&receiver.contents()[..longest], &message);
}

#[test]
fn the_kernel_cuts_what_the_device_cannot() {
    require_namespaces!();
    let cable = cable();
    cable.a.set_offload(Offload::TcpSegmentation, false).unwrap();
    // Nobody computes the checksums of frames that stay on this machine,
    // unless the device says that it cannot.
    cable.a.set_offload(Offload::TransmitChecksum, false).unwrap();
    let message = pattern(SUPER as usize, 3);
    let mut receiver = Receiver::new(&cable, SUPER);
    send_super(&cable, &message);
    receiver.receive(u64::from(SUPER));
    let counters = receiver.driver.counters();
    assert_eq!(counters.units_received, 40);
    assert_eq!((counters.guessed_right, counters.bytes_copied), (40, 0));
    assert!(counters.bytes_summed > u64::from(SUPER), "the driver verified them");
    assert_eq!(receiver.segments.lock().unwrap()[..], [None; 40]);
    assert_same(&receiver.contents(), &message);
}

#[test]
fn real_frames_that_the_receiver_joins_may_come_in_any_order() {
    require_namespaces!();
    let cable = cable();
    cable.set_real_frames(true).unwrap();
    let message = pattern(SUPER as usize, 4);
    let mut receiver = Receiver::new(&cable, SUPER);
    send_super(&cable, &message);
    receiver.receive(u64::from(SUPER));
    assert!(receiver.driver.counters().units_received < 40, "they were joined");
    let segments = receiver.segments.lock().unwrap().clone();
    assert!(segments.contains(&Some(SEGMENT)), "{segments:?}");
    assert_same(&receiver.contents(), &message);
}

/// Sends one TCP frame of 1000 bytes through `sender` and gives it as it
/// crossed the cable.
fn frame_on_the_wire(cable: &VethPair, offload: bool) -> (Vec<u8>, PacketDriver) {
    let message = pattern(1000, 6);
    let (send_regions, source) = lent(&message, Rights::READ);
    let (regions, target) = lent(&[0; 2000], Rights::WRITE);
    let raw = |ethertype| Framing::Ethernet { filter: Filter::ethertypes([ethertype]) };
    let mut sender = open_as(&cable.a, raw(0xffff), &send_regions, |config| {
        if offload { config } else { config.without_offload() }
    })
    .unwrap();
    let mut receiver =
        open_as(&cable.b, raw(IPV4), &regions, |config| config.without_offload()).unwrap();
    let mut from = Scripted::sender();
    from.to_send.push_back(tcp_frame(&cable.b, source.span(0, 1000), 0, None));
    turn_until(&mut sender, &mut from, |from, _| from.sent.len() == 1);
    let mut to = Scripted::new(move |unit, into| {
        into.push(target.span(0, unit.len)).unwrap();
        let check = Check::None;
        Ok(Placement::Into { at: 0, check, ticket: Ticket::from_raw(0) })
    });
    turn_until(&mut receiver, &mut to, |to, _| to.landings.len() == 1);
    let mut frame = contents(&regions, target);
    frame.truncate(to.seen[0].2 as usize);
    (frame, sender)
}

fn sum_is_right(frame: &[u8]) -> bool {
    let tcp = &frame[ETHERNET + 20..];
    let mut sum = InternetSum::new();
    sum.add_word(pseudo_header(tcp.len() as u16));
    sum.add(tcp);
    sum.sum() == 0xffff
}

#[test]
fn the_checksum_of_a_frame_that_leaves_is_right() {
    require_namespaces!();
    let cable = cable();
    // On this machine it is left unfinished: that is what makes it cheap.
    let (frame, _) = frame_on_the_wire(&cable, true);
    assert!(!sum_is_right(&frame));
    cable.a.set_offload(Offload::TransmitChecksum, false).unwrap();
    let (frame, sender) = frame_on_the_wire(&cable, true);
    assert!(sum_is_right(&frame), "the kernel filled it in");
    assert_eq!(sender.counters().bytes_summed, 0);
}

#[test]
fn without_offload_the_driver_fills_the_checksum_in() {
    require_namespaces!();
    let cable = cable();
    let (frame, sender) = frame_on_the_wire(&cable, false);
    assert!(sum_is_right(&frame));
    assert_eq!(sender.counters().bytes_summed, TCP_HEAD as u64 + 1000);
}

#[test]
fn a_corrupt_payload_never_counts_as_placed() {
    require_namespaces!();
    let cable = cable();
    cable.a.set_offload(Offload::TransmitChecksum, false).unwrap();
    for offload in [true, false] {
        let (send_regions, source) = lent(&pattern(1000, 7), Rights::READ);
        let mut sender = open(&cable.a, Filter::ethertypes([0xffff]), &send_regions);
        let (regions, target) = lent(&[0xaa; 3000], Rights::WRITE);
        let raw = Framing::Ethernet { filter: Filter::ethertypes([IPV4]) };
        let mut receiver = open_as(&cable.b, raw, &regions, |config| {
            if offload { config } else { config.without_offload() }
        })
        .unwrap();
        let mut from = Scripted::sender();
        let mut unit = tcp_frame(&cable.b, source.span(0, 1000), 1000, None);
        unit.checksum = None;
        unit.head[usize::from(TCP_SUM.start + TCP_SUM.offset)] ^= 0x55;
        from.to_send.push_back(unit);
        turn_until(&mut sender, &mut from, |from, _| from.sent.len() == 1);
        let mut to = Scripted::new(move |unit, into| place_tcp(target, unit, into));
        turn_until(&mut receiver, &mut to, |to, _| to.landings.len() == 1);
        assert_eq!(to.landings, [(Ticket::from_raw(1000), Landing::Corrupt)]);
        assert_eq!(receiver.counters().corrupt, 1);
        assert_eq!(contents(&regions, target), [0xaa; 3000], "nothing was written");
    }
}

#[test]
fn a_datagram_in_fragments_has_one_checksum_that_no_device_can_fill_in() {
    require_namespaces!();
    let cable = cable();
    let (first, second) = (1472, 301);
    let total = first + second;
    let message = pattern(total, 9);
    let socket = cable
        .b
        .namespace
        .enter(|| std::net::UdpSocket::bind((cable.b.ipv4, streams::TO_PORT)).unwrap())
        .unwrap();
    socket.set_read_timeout(Some(support::PATIENCE)).unwrap();
    for offload in [true, false] {
        let (regions, source) = lent(&message, Rights::READ);
        let raw = Framing::Ethernet { filter: Filter::ethertypes([0xffff]) };
        let mut driver = open_as(&cable.a, raw, &regions, |config| {
            if offload { config } else { config.without_offload() }
        })
        .unwrap();
        let [one, two] = [(0, first), (first, second)]
            .map(|(at, len): (usize, usize)| source.span(at as u64, len as u32));
        let mut engine = Scripted::sender();
        let to = (cable.b.mac.0, cable.b.ipv4);
        let from = Ipv4Addr::from(cable.b.ipv4.to_bits() | 0x80);
        engine.to_send.extend(Datagram { to, from }.in_two(one, two));
        turn_until(&mut driver, &mut engine, |engine, _| engine.sent.len() == 2);
        assert_eq!((driver.counters().units_sent, driver.counters().send_failed), (2, 0));
        assert!(driver.counters().bytes_summed > total as u64, "whatever the device offers");
        let mut arrived = vec![0; 3000];
        let len = socket.recv(&mut arrived).unwrap();
        assert_same(&arrived[..len], &message);
    }
}
