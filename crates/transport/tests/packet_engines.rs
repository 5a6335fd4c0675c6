//! Packet sockets carry both test engines: the same bytes arrive, and in
//! steady flow no byte is copied in user space. As an ordinary user each test
//! skips with one line.
//!
//! Junk through a packet socket: refused with a counter, no panic, and nothing
//! written outside of a guess. As an ordinary user the tests skip with one line.

use std::net::Ipv4Addr;

use landfall_placement::{
    Check, Engine, Guess, Landing, PathState, Peer, Placement, Random, Refusal, RegionId, Ticket,
};
use landfall_testbed::{VethPair, require_namespaces};
use landfall_testkit::engines::stream::{self, Station};
use landfall_testkit::engines::{Area, Numbered, Stream, numbered};
use landfall_transport::memory::{Regions, Rights};
use landfall_transport::packet::{Filter, Framing, PacketConfig, PacketDriver};
use landfall_transport::{Clock, Driver};

use crate::support::packet::{
    EXPERIMENTAL, IPV4, PATH, TCP_HEAD, cable, numbered_frame, open, open_as, place_tcp, tcp_frame,
};
use crate::support::{PATIENCE, Scripted, assert_same, contents, lent, pattern, turn_until};

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

/// Streams a message of this many full units, and gives both ends.
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

const FRAMES: usize = 500;
const CANARY: u8 = 0xc5;

fn fill(random: &mut Random, bytes: &mut [u8]) {
    bytes.fill_with(|| random.next_u32() as u8);
}

#[test]
fn random_frames_change_nothing_outside_of_the_guess() {
    require_namespaces!();
    let cable = cable();
    let junk_len = 1 << 16;
    let mut random = Random::new([7; 32]);
    let mut junk = vec![0; junk_len];
    fill(&mut random, &mut junk);
    let (send_regions, source) = lent(&junk, Rights::READ);
    let (regions, target) = lent(&[CANARY; 8192], Rights::WRITE);
    let mut sender = open(&cable.a, Filter::ethertypes([0xffff]), &send_regions);
    let mut receiver = open(&cable.b, Filter::ethertypes([EXPERIMENTAL]), &regions);
    let (mut from, mut sizes) = (Scripted::sender(), Vec::new());
    for number in 0..FRAMES {
        let head_len = 14 + random.below(120) as usize;
        let mut head = numbered_frame(&cable.b, EXPERIMENTAL, number as u32);
        head.resize(head_len.max(18), 0);
        fill(&mut random, &mut head[14..]);
        let len = random.below(1514 - head.len() as u64 + 1);
        let payload = source.span(random.below(junk_len as u64 - len), len as u32);
        sizes.push(head.len() as u32 + payload.len);
        from.send(Peer::Unaddressed, head, &[payload]);
    }
    turn_until(&mut sender, &mut from, |from, _| from.sent.len() == FRAMES);
    // Frames shorter and longer than guessed, with heads shorter and longer.
    let mut to = Scripted::new(|unit, _| {
        if unit.head.len() < 100 && unit.len >= 100 {
            return Ok(Placement::NeedHead(100));
        }
        Err(Refusal::Malformed)
    });
    let span = target.span(2048, 700);
    to.guesses = vec![Guess { span, head_len: 66, payload_len: 700 }];
    turn_until(&mut receiver, &mut to, |_, driver| driver.counters().refused == FRAMES as u64);
    assert_eq!(to.landings, []);
    // A frame that needed a longer head was offered twice.
    let mut seen: Vec<u32> = to.seen.iter().map(|(_, _, len)| *len).collect();
    seen.dedup();
    sizes.dedup();
    assert_eq!(seen, sizes, "every frame was offered with its length");
    let memory = contents(&regions, target);
    assert!(memory[..2048].iter().all(|byte| *byte == CANARY));
    assert!(memory[2748..].iter().all(|byte| *byte == CANARY));
}

#[test]
fn a_placement_that_lies_about_the_unit_is_not_carried_out() {
    require_namespaces!();
    let cable = cable();
    let (regions, target) = lent(&[CANARY; 4096], Rights::WRITE);
    let mut receiver = open(&cable.b, Filter::ethertypes([EXPERIMENTAL]), &regions);
    let (send_regions, _) = lent(&[0], Rights::READ);
    let mut sender = open(&cable.a, Filter::ethertypes([0xffff]), &send_regions);
    let mut from = Scripted::sender();
    for number in 0..3 {
        let frame = numbered_frame(&cable.b, EXPERIMENTAL, number);
        from.send(Peer::Unaddressed, frame, &[]);
    }
    turn_until(&mut sender, &mut from, |from, _| from.sent.len() == 3);
    let mut ticket = 0;
    let mut to = Scripted::new(move |_, into| {
        // More than the unit has, beyond the region, and a head without end.
        let span = match ticket {
            0 => target.span(0, 61),
            1 => target.span(4090, 10),
            _ => return Ok(Placement::NeedHead(61)),
        };
        into.push(span).unwrap();
        ticket += 1;
        let check = Check::None;
        Ok(Placement::Into { at: 14, check, ticket: Ticket::from_raw(ticket) })
    });
    turn_until(&mut receiver, &mut to, |to, _| to.seen.len() >= 3);
    let failed = Landing::Failed;
    assert_eq!(to.landings, [(Ticket::from_raw(1), failed), (Ticket::from_raw(2), failed)]);
    assert_eq!((receiver.counters().malformed, receiver.counters().misplaced), (2, 1));
    assert_eq!(contents(&regions, target), [CANARY; 4096]);
}

#[test]
fn a_frame_that_was_cut_does_not_pass_for_a_whole_one() {
    require_namespaces!();
    let cable = cable();
    let (send_regions, source) = lent(&[1; 1000], Rights::READ);
    let (regions, target) = lent(&[CANARY; 2000], Rights::WRITE);
    let mut sender = open(&cable.a, Filter::ethertypes([0xffff]), &send_regions);
    let mut receiver = open(&cable.b, Filter::ethertypes([IPV4]), &regions);
    let mut from = Scripted::sender();
    let whole = tcp_frame(&cable.b, source.span(0, 1000), 0, None);
    let head = whole.head.clone();
    // The header promises 1000 bytes; 999, none, and not all of itself come.
    from.send(whole.to, head.clone(), &[source.span(0, 999)]);
    from.send(whole.to, head.clone(), &[]);
    from.send(whole.to, head[..TCP_HEAD - 1].to_vec(), &[]);
    from.to_send.push_back(whole);
    turn_until(&mut sender, &mut from, |from, _| from.sent.len() == 4);
    let mut to = Scripted::new(move |unit, into| place_tcp(target, unit, into));
    turn_until(&mut receiver, &mut to, |_, driver| driver.counters().payload_bytes == 1000);
    let failed = to.landings.iter().filter(|(_, l)| *l == Landing::Failed);
    assert_eq!(failed.count(), 2);
    assert_eq!((receiver.counters().malformed, receiver.counters().refused), (2, 1));
    let memory = contents(&regions, target);
    assert_eq!((&memory[..1000], &memory[1000..]), (&[1; 1000][..], &[CANARY; 1000][..]));
}
