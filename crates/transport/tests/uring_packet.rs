//! Packet sockets by way of `io_uring`: what they carry is the same as through
//! plain calls. As an ordinary user each test skips with one line.

use std::net::Ipv4Addr;
use std::thread;
use std::time::Instant as StdInstant;

use landfall_placement::{
    Engine, Guess, Instant, Landing, PathState, Peer, Random, Refusal, RegionId, Span, Ticket,
};
use landfall_testbed::{VethEnd, VethPair, require_namespaces, skip_unless};
use landfall_testkit::engines::stream::Station;
use landfall_testkit::engines::{Area, Stream, stream};
use landfall_transport::memory::{Regions, Rights};
use landfall_transport::packet::{Filter, Framing, PacketConfig, PacketDriver};
use landfall_transport::scatter::{Descriptor, Outgoing, Socket};
use landfall_transport::uring::{UringBurst, UringPacketDriver};
use landfall_transport::{Clock, Driver, Feature, OpenError};

use crate::support;
use crate::support::packet::uring::why_no_uring;
use crate::support::packet::{
    EXPERIMENTAL, IPV4, PATH, TCP_HEAD, cable, numbered_frame, place_tcp, send_frames, tcp_frame,
};
use crate::support::scatter::{Receiver, pages, socket};
use crate::support::{PATIENCE, Scripted, assert_same, contents, lent, pattern, turn_until};

const SEGMENT: u16 = 1448;
/// 40 segments.
const SUPER: u32 = 57_920;
/// TCP tells large windows in steps (RFC 7323, 2.2).
const LARGEST_STEP: u64 = 1 << 14;

fn open_as(end: &VethEnd, config: &PacketConfig, regions: &Regions) -> UringPacketDriver {
    let open = || UringPacketDriver::open(PATH, config, regions);
    end.namespace.enter(open).unwrap().unwrap()
}

fn whole_frames(end: &VethEnd, filter: Filter) -> PacketConfig {
    PacketConfig::new(end.name.as_str(), Framing::Ethernet { filter })
}

#[test]
fn super_packets_that_fill_their_places_come_several_an_entry() {
    require_namespaces!();
    skip_unless!(why_no_uring());
    let cable = cable();
    let message = pattern(8 * SUPER as usize, 2);
    let (send_regions, source) = lent(&message, Rights::READ);
    let (regions, target) = lent(&vec![0; message.len()], Rights::WRITE);
    let nothing = whole_frames(&cable.a, Filter::ethertypes([0xffff]));
    let mut sender = open_as(&cable.a, &nothing, &send_regions);
    let tcp = whole_frames(&cable.b, Filter::ethertypes([IPV4]));
    let mut receiver = open_as(&cable.b, &tcp, &regions);
    let mut to = Scripted::new(move |unit, into| place_tcp(target, unit, into));
    let mut from = Scripted::sender();
    for at in (0..8).map(|number| number * SUPER) {
        let payload = source.span(u64::from(at), SUPER);
        from.to_send.push_back(tcp_frame(&cable.b, payload, at, Some(SEGMENT)));
        let span = target.span(u64::from(at), SUPER);
        to.guesses.push(Guess { span, head_len: TCP_HEAD as u16, payload_len: SUPER });
    }
    turn_until(&mut sender, &mut from, |from, _| from.sent.len() == 8);
    turn_until(&mut receiver, &mut to, |to, _| to.landings.len() == 8);
    let counters = *receiver.counters();
    // The first alone, then two, four, and the last.
    assert_eq!((counters.receive_calls, counters.guessed_right), (4, 8), "{counters:?}");
    assert_eq!((counters.bytes_copied, counters.guessed_wrong), (0, 0));
    assert_same(&contents(&regions, target), &message);
}

#[test]
fn several_super_packets_leave_with_one_entry_and_arrive_in_their_place() {
    require_namespaces!();
    skip_unless!(why_no_uring());
    let cable = cable();
    let message = pattern(4 * SUPER as usize, 1);
    let (send_regions, source) = lent(&message, Rights::READ);
    let (regions, target) = lent(&vec![0; message.len()], Rights::WRITE);
    let nothing = whole_frames(&cable.a, Filter::ethertypes([0xffff]));
    let mut sender = open_as(&cable.a, &nothing, &send_regions);
    let tcp = whole_frames(&cable.b, Filter::ethertypes([IPV4]));
    let mut receiver = open_as(&cable.b, &tcp, &regions);
    let mut from = Scripted::sender();
    for number in 0..4 {
        let payload = source.span(u64::from(number * SUPER), SUPER);
        from.to_send.push_back(tcp_frame(&cable.b, payload, number * SUPER, Some(SEGMENT)));
    }
    turn_until(&mut sender, &mut from, |from, _| from.sent.len() == 4);
    assert_eq!((sender.counters().units_sent, sender.counters().send_calls), (4, 1));
    let mut to = Scripted::new(move |unit, into| place_tcp(target, unit, into));
    let span = target.span(0, 4 * SUPER);
    to.guesses = vec![Guess { span, head_len: TCP_HEAD as u16, payload_len: SUPER }];
    turn_until(&mut receiver, &mut to, |to, _| to.landings.len() == 4);
    let verified = |(_, landing): &(Ticket, Landing)| *landing == Landing::Verified;
    assert!(to.landings.iter().all(verified), "{:?}", to.landings);
    let counters = receiver.counters();
    assert_eq!((counters.guessed_right, counters.bytes_copied), (4, 0));
    assert_eq!(counters.bytes_summed + sender.counters().bytes_summed, 0);
    assert_same(&contents(&regions, target), &message);
}

#[test]
fn what_it_cannot_do_is_said() {
    require_namespaces!();
    skip_unless!(why_no_uring());
    let cable = cable();
    let regions = Regions::new(1);
    let config = whole_frames(&cable.a, Filter::ethertypes([EXPERIMENTAL]));
    let driver = open_as(&cable.a, &config, &regions);
    assert_eq!(driver.capabilities().driver(), "uring-packet");
    let missing = driver.capabilities().require(Feature::ZeroCopySend).unwrap_err();
    assert!(missing.to_string().contains("use uring-udp"), "{missing}");
    assert_eq!((driver.station(), driver.mtu()), (cable.a.mac.0, 1500));
    // The plain driver's words arrive through the ring's error as well.
    let elsewhere = PacketConfig { interface: "nowhere0".into(), ..config };
    let open = || UringPacketDriver::open(PATH, &elsewhere, &regions);
    let error = cable.a.namespace.enter(open).unwrap().unwrap_err();
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<OpenError>());
    assert!(matches!(inner, Some(OpenError::NoInterface(_))), "{error}");
}

#[test]
fn junk_is_refused_frame_by_frame() {
    require_namespaces!();
    skip_unless!(why_no_uring());
    let cable = cable();
    let (regions, target) = lent(&[7; 4096], Rights::WRITE);
    let config = whole_frames(&cable.b, Filter::ethertypes([EXPERIMENTAL]));
    let mut receiver = open_as(&cable.b, &config, &regions);
    let (mut sender, mut from) = support::packet::open_sender(&cable.a);
    let mut random = Random::from_number(0xbad);
    let frames: Vec<Vec<u8>> = (0..300)
        .map(|number| {
            let mut frame = numbered_frame(&cable.b, EXPERIMENTAL, number);
            let junk = random.below(190) as usize;
            frame.extend((0..junk).map(|_| random.next_u32() as u8));
            frame
        })
        .collect();
    send_frames(&mut sender, &mut from, frames);
    let mut to = Scripted::new(|unit, _| {
        assert!(unit.head.len() <= unit.len as usize);
        Err(Refusal::Malformed)
    });
    let span = target.span(1024, 64);
    to.guesses = vec![Guess { span, head_len: 30, payload_len: 64 }];
    turn_until(&mut receiver, &mut to, |_, driver| driver.counters().refused == 300);
    let memory = contents(&regions, target);
    assert!(memory[..1024].iter().all(|byte| *byte == 7), "written before the guess");
    assert!(memory[1088..].iter().all(|byte| *byte == 7), "written behind the guess");
}

#[test]
fn an_interface_that_is_down_loses_frames_and_breaks_nothing() {
    require_namespaces!();
    skip_unless!(why_no_uring());
    let cable = cable();
    let regions = Regions::new(1);
    let config = whole_frames(&cable.a, Filter::ethertypes([EXPERIMENTAL]));
    let mut driver = open_as(&cable.a, &config, &regions);
    let mut engine = Scripted::sender();
    assert_eq!(driver.poll_timeout(), None);
    // An interface that is down loses what is sent: the path is not broken.
    cable.a.set_up(false).unwrap();
    engine.send(Peer::Unaddressed, numbered_frame(&cable.b, EXPERIMENTAL, 1), &[]);
    turn_until(&mut driver, &mut engine, |engine, _| engine.sent.len() == 1);
    assert_eq!(driver.counters().send_failed, 1);
    assert_eq!(driver.poll_timeout(), None);
    assert_eq!(driver.interests().len(), 2);
    assert!(!driver.interests()[0].writable && !driver.interests()[1].readable);
    assert!(driver.turn(&mut engine, Instant::ZERO).is_ok());
}

/// A packet driver of either kind.
trait Packets: Driver {
    fn open(config: &PacketConfig, regions: &Regions) -> Self;
}

impl Packets for PacketDriver {
    fn open(config: &PacketConfig, regions: &Regions) -> Self {
        Self::open(PATH, config, regions).unwrap()
    }
}

impl Packets for UringPacketDriver {
    fn open(config: &PacketConfig, regions: &Regions) -> Self {
        Self::open(PATH, config, regions).unwrap()
    }
}

/// One end of a stream, with its memory.
struct End<D> {
    engine: Stream,
    driver: D,
    regions: Regions,
    region: RegionId,
}

/// `a` connects.
fn stream_end<D: Packets + Send>(
    cable: &VethPair,
    at_a: bool,
    memory: &[u8],
    clock: &Clock,
) -> End<D> {
    let [local, remote] = if at_a { [&cable.a, &cable.b] } else { [&cable.b, &cable.a] };
    let station = |end: &VethEnd| Station {
        mac: end.mac.0,
        ip: Ipv4Addr::from(end.ipv4.to_bits() | 0x80),
        port: 7000,
    };
    let (regions, region) = lent(memory, Rights::READ | Rights::WRITE);
    let filter = Filter::ethertypes([IPV4]).ipv4_to(station(local).ip).port(7000);
    let config = whole_frames(local, filter);
    let driver = local.namespace.enter(|| D::open(&config, &regions)).unwrap();
    let framing =
        stream::Framing::EthernetIpv4Tcp { local: station(local), remote: station(remote) };
    let config = stream::Config::new(framing, PATH).steady();
    let mut engine =
        if at_a { Stream::connect(config, [1; 32]) } else { Stream::listen(config, [2; 32]) };
    engine.handle_path(clock.now(), PATH, PathState::Up(driver.limits()));
    End { engine, driver, regions, region }
}

fn carry_stream<A: Packets + Send, B: Packets + Send>(cable: &VethPair, len: u64) {
    let clock = Clock::start();
    let message = pattern(len as usize, 11);
    let mut from = stream_end::<A>(cable, true, &message, &clock);
    let room = len + LARGEST_STEP;
    let mut to = stream_end::<B>(cable, false, &vec![0; room as usize], &clock);
    from.engine.send(Area::new(from.region, 0, len)).unwrap();
    from.engine.close();
    to.engine.receive_into(Area::new(to.region, 0, room)).unwrap();
    let deadline = clock.now() + PATIENCE;
    while to.engine.received() < len || from.engine.acknowledged() < len {
        let counters = [from.driver.counters(), to.driver.counters()];
        assert!(clock.now() < deadline, "{} of {len}: {counters:?}", to.engine.received());
        from.driver.turn(&mut from.engine, clock.now()).unwrap();
        to.driver.turn(&mut to.engine, clock.now()).unwrap();
    }
    assert_same(&contents(&to.regions, to.region)[..len as usize], &message);
}

#[test]
fn a_stream_is_the_same_whichever_driver_is_at_either_end() {
    require_namespaces!();
    skip_unless!(why_no_uring());
    let len = 3 << 20;
    carry_stream::<UringPacketDriver, UringPacketDriver>(&cable(), len);
    carry_stream::<PacketDriver, UringPacketDriver>(&cable(), len);
    carry_stream::<UringPacketDriver, PacketDriver>(&cable(), len);
}

#[test]
fn a_stream_in_real_frames_arrives_too() {
    require_namespaces!();
    skip_unless!(why_no_uring());
    let cable = cable();
    cable.set_real_frames(true).unwrap();
    carry_stream::<UringPacketDriver, UringPacketDriver>(&cable, 1 << 20);
}

// Bursts of frames through a ring. As an ordinary user, or where there is no
// `io_uring`, each test skips with one line.

/// Sends numbered frames with a payload, a few a call.
fn send_numbered(from: &mut Socket, heads: &[Vec<u8>], payload: Span, a_call: usize) {
    for some in heads.chunks(a_call) {
        let frames: Vec<_> = some.iter().map(|head| Outgoing { head, payload }).collect();
        assert_eq!(from.send(Instant::ZERO, &frames).unwrap(), frames.len());
    }
}

#[test]
fn a_burst_goes_where_it_was_posted_in_its_order() {
    require_namespaces!();
    skip_unless!(why_no_uring());
    let cable = cable();
    let (regions, region) = pages(4096);
    let sent = pattern(1000, 7);
    regions.write(&region.span(0, 1000), &sent).unwrap();
    let mut at_a = socket(&cable.a, Filter::any(), &regions);
    let mut at_b = Receiver::open(&cable.b, Filter::ethertypes([EXPERIMENTAL]));
    at_b.ring = Some(UringBurst::open().unwrap());
    let heads: Vec<_> = (0..300u32)
        .map(|number| numbered_frame(&cable.b, EXPERIMENTAL, number)[..18].to_vec())
        .collect();
    send_numbered(&mut at_a, &heads, region.span(0, 1000), 128);
    let arrived = at_b.receive(300, |slot| {
        let place = [0, 500, 1000, 2000][slot % 4];
        Descriptor { head_len: 18, place: Span { len: place, ..Span::default() } }
    });
    // All waited before the first call, so no descriptor was passed over.
    for (frame, head) in arrived.iter().zip(&heads) {
        assert_same(frame, &[head, &sent[..]].concat());
    }
    assert_eq!(at_b.socket.counters().units_received, 300);
    assert!(at_b.calls() <= 20, "many a call: {}", at_b.calls());
}

#[test]
fn frames_that_come_meanwhile_keep_their_order() {
    require_namespaces!();
    skip_unless!(why_no_uring());
    const FRAMES: u32 = 20_000;
    let cable = cable();
    let (regions, region) = pages(64);
    let mut at_a = socket(&cable.a, Filter::any(), &regions);
    let mut at_b = Receiver::open(&cable.b, Filter::ethertypes([EXPERIMENTAL]));
    at_b.ring = Some(UringBurst::open().unwrap());
    let heads: Vec<_> =
        (0..FRAMES).map(|number| numbered_frame(&cable.b, EXPERIMENTAL, number)).collect();
    thread::scope(|scope| {
        scope.spawn(|| send_numbered(&mut at_a, &heads, region.span(0, 0), 3));
        let deadline = StdInstant::now() + PATIENCE;
        let mut next = 0;
        while next < FRAMES {
            assert!(StdInstant::now() < deadline, "{next} of {FRAMES} frames came");
            at_b.try_receive(|_| Descriptor { head_len: 60, place: Span::default() });
            // A descriptor that was passed over has no frame, but those behind
            // it have.
            for frame in at_b.gathered().iter().filter(|frame| !frame.is_empty()) {
                let number = u32::from_be_bytes(frame[14..18].try_into().unwrap());
                assert_eq!(number, next);
                next += 1;
            }
        }
    });
    let counters = *at_b.socket.counters();
    assert_eq!((counters.units_received, counters.malformed), (FRAMES.into(), 0));
}

#[test]
fn silence_and_an_interface_that_is_down_are_no_errors() {
    require_namespaces!();
    skip_unless!(why_no_uring());
    let cable = cable();
    let mut at_b = Receiver::open(&cable.b, Filter::ethertypes([EXPERIMENTAL]));
    at_b.ring = Some(UringBurst::open().unwrap());
    let anything = |_| Descriptor { head_len: 60, place: Span::default() };
    assert_eq!(at_b.try_receive(anything), 0);
    assert_eq!(at_b.socket.counters().empty_calls, 1);
    cable.b.set_up(false).unwrap();
    assert_eq!(at_b.try_receive(anything), 0, "it may come up again");
}
