//! Many Puts under way: only what is lost comes again, long paths and several links are
//! filled, and the order is kept that the other side may see.

use std::time::Duration;

use crate::regions::expose;
use crate::striping::striped;
use crate::two::{Two, Wire, decode, encode, op, small};
use crate::world::{Pair, is_sent, noise, place, read};
use landfall_placement::{
    Area, Ecn, Engine, Heads, Landing, Peer, Refusal, RunRoom, UnitRun, WordFunction, WordWidth,
};
use landfall_simnet::{LinkConfig, Loss, Probability, Sim, check};
use proptest::prelude::*;
use stp_core::wire::message::{Ahead, AvailableRegion, State};
use stp_core::wire::{HEADER_LEN, Message, Op, Reason};
use stp_core::{Config, Event, PutOptions, RemoteRegion, Rights};

const MIB: usize = 1 << 20;

fn ethernet(bits_per_second: u64) -> LinkConfig {
    LinkConfig::ethernet(bits_per_second).delay(Duration::from_micros(5)).mtu(1_500)
}

fn is_done(event: &Event) -> bool {
    matches!(event, Event::PutDone { .. })
}

/// Puts these bytes in parts of this many, one behind the other; gives how long that took.
fn put_all(pair: &mut Pair, region: &RemoteRegion, bytes: &[u8], part: usize) -> Duration {
    let id = pair.from_a;
    let source = place(&mut pair.sim, pair.a, 0, bytes);
    let (began, before) = (pair.now(), pair.count_a(is_done));
    let mut parts = Vec::new();
    let mut at = 0;
    while at < source.len {
        let len = (source.len - at).min(part as u64);
        parts.push((at, Area::new(source.region, source.offset + at, len)));
        at += len;
    }
    let now = pair.now();
    for (at, area) in &parts {
        pair.alice().put(now, id, region, *at, *area, PutOptions::default()).unwrap();
    }
    let wanted = before + parts.len();
    pair.run_until("the puts", |a, _| a.iter().filter(|e| is_done(e)).count() == wanted);
    pair.now().since(began)
}

/// With one packet of a hundred lost, what comes again is what was lost, whether it is one
/// Put of 1 MiB or 128 of 8 KiB.
#[test]
fn a_lost_put_does_not_bring_those_behind_it_back() {
    for part in [MIB, 8 << 10] {
        check(1..=10, |sim| {
            let sim = std::mem::replace(sim, Sim::from_number(0));
            let link = ethernet(10_000_000_000).loss(Loss::Uniform(Probability::percent(1)));
            let config = Config { operations: 128, ..Config::default() };
            let mut pair = Pair::new(sim, config, &[link]);
            let memory = place(&mut pair.sim, pair.b, 0, &vec![0; MIB]);
            let (_, region) = expose(&mut pair, memory, Rights::ALL);
            let bytes = noise(5, MIB);
            let before = pair.sim.stats(pair.links[0].there());
            put_all(&mut pair, &region, &bytes, part);
            assert!(read(&pair.sim, pair.b, memory) == bytes);
            let after = pair.sim.stats(pair.links[0].there());
            let lost = after.sent - after.delivered - (before.sent - before.delivered);
            let repeated = pair.alice().stats().operations_repeated;
            // The last packets may be lost with nothing behind them that shows it.
            assert!(repeated <= 2 * lost + 8, "{repeated} came again, {lost} were lost");
        });
    }
}

/// 100 ms there and back: Puts are at least 0.8 times as fast as a Transfer of as many bytes.
#[test]
fn puts_fill_a_long_path_as_a_transfer_does() {
    let link = LinkConfig::ethernet(200_000_000)
        .delay(Duration::from_millis(50))
        .queue_bytes(2_500_000)
        .mtu(1_500);
    let bytes = noise(6, 32 * MIB);
    let mut pair = Pair::new(Sim::from_number(1), Config::shared_network(), &[link]);
    let area = pair.post(0, bytes.len());
    let began = pair.now();
    pair.send(0, &bytes);
    pair.run_until("the transfer", |a, _| a.iter().any(is_sent));
    let transfer = pair.now().since(began);
    assert!(read(&pair.sim, pair.b, area) == bytes);

    let mut pair = Pair::new(Sim::from_number(1), Config::shared_network(), &[link]);
    let memory = place(&mut pair.sim, pair.b, 0, &vec![0; bytes.len()]);
    let (_, region) = expose(&mut pair, memory, Rights::ALL);
    let puts = put_all(&mut pair, &region, &bytes, bytes.len());
    assert!(read(&pair.sim, pair.b, memory) == bytes);
    assert!(puts.as_secs_f64() * 0.8 <= transfer.as_secs_f64(), "{puts:?} and {transfer:?}");
}

/// Many packets leave at once and are answered at once, also where a window is full: few follow
/// an answer only where the window is small.
#[test]
fn answers_to_puts_are_few_where_windows_are_full() {
    for config in [Config::default(), Config::shared_network()] {
        let link = ethernet(1_000_000_000).delay(Duration::from_micros(200)).queue_bytes(128 << 10);
        let mut pair = Pair::new(Sim::from_number(1), config, &[link]);
        let bytes = noise(9, 8 * MIB);
        let memory = place(&mut pair.sim, pair.b, 0, &vec![0; bytes.len()]);
        let (_, region) = expose(&mut pair, memory, Rights::ALL);
        put_all(&mut pair, &region, &bytes, MIB);
        let counted = |pair: &mut Pair| {
            let stats = *pair.bob().stats();
            (stats.operations_applied, stats.control_sent)
        };
        let before = counted(&mut pair);
        put_all(&mut pair, &region, &bytes, MIB);
        let after = counted(&mut pair);
        let (packets, answers) = (after.0 - before.0, after.1 - before.1);
        assert!(answers * 8 <= packets, "{answers} answers to {packets} packets");
    }
}

#[test]
fn puts_are_striped_over_links_of_unequal_rates() {
    let links = [1, 3, 6].map(|gigabits| ethernet(gigabits * 1_000_000_000));
    let mut pair = striped(Sim::from_number(1), Config::default(), &links);
    let memory = place(&mut pair.sim, pair.b, 0, &vec![0; 8 * MIB]);
    let (_, region) = expose(&mut pair, memory, Rights::ALL);
    let bytes = noise(7, 8 * MIB);
    let took = put_all(&mut pair, &region, &bytes, bytes.len());
    assert!(read(&pair.sim, pair.b, memory) == bytes);
    let shares: Vec<u64> =
        pair.links.iter().map(|link| pair.sim.stats(link.there()).delivered).collect();
    // 6.7 ms at 10 Gbit/s; the fastest alone takes 11.2 ms.
    assert!(took < Duration::from_millis(9), "{took:?}: {shares:?}");
    assert!(shares[0] < shares[1] && shares[1] < shares[2], "{shares:?}");
}

/// A link swallows everything in the midst: what it had goes over the others.
#[test]
fn puts_leave_a_link_that_is_dead() {
    check(1..=5, |sim| {
        let sim = std::mem::replace(sim, Sim::from_number(0));
        let links = [ethernet(1_000_000_000); 3];
        let mut pair = striped(sim, Config::default(), &links);
        let memory = place(&mut pair.sim, pair.b, 0, &vec![0; 2 * MIB]);
        let (_, region) = expose(&mut pair, memory, Rights::ALL);
        let black_hole = links[0].loss(Loss::Uniform(Probability::percent(100)));
        pair.sim.configure(pair.links[1].there(), black_hole).unwrap();
        let bytes = noise(8, 2 * MIB);
        let took = put_all(&mut pair, &region, &bytes, 64 << 10);
        assert!(read(&pair.sim, pair.b, memory) == bytes);
        assert!(took < Duration::from_secs(1), "{took:?}");
    });
}

// ---- Single packets --------------------------------------------------------------

/// Two endpoints, a region of side 1, and side 0's Puts to it as they go out: each byte of
/// the nth is n.
fn puts(config: Config, len: usize, wanted: &[(u64, usize)]) -> (Two, Area, Vec<Vec<u8>>) {
    let mut two = Two::new(config);
    let (region, _, area) = two.region(two.ids, len);
    let packets = begin(&mut two, &region, wanted);
    (two, area, packets)
}

fn begin(two: &mut Two, region: &RemoteRegion, wanted: &[(u64, usize)]) -> Vec<Vec<u8>> {
    let (now, id) = (two.wire.now, two.ids[0]);
    for (n, (at, len)) in wanted.iter().enumerate() {
        let from = two.lend(0, 0, &vec![n as u8 + 1; *len]);
        two.endpoint(0).put(now, id, region, *at, from, PutOptions::WITH_NOTICE).unwrap();
    }
    two.said(0)
}

/// Side 1 takes a packet in, and its payload lands.
fn take_in(two: &mut Two, packet: &[u8]) {
    two.wire.hand_in(1, &[packet.to_vec()]);
    two.hear();
}

/// What side 1 says took effect, and is in place beyond.
fn told(two: &mut Two) -> Option<(u32, Ahead)> {
    let mut answers = two.said(1).into_iter().filter_map(|packet| match decode(&packet).1 {
        Message::RequestStateResponse(State::Memory { applied, refused: None, ahead }) => {
            Some((applied, ahead))
        }
        _ => None,
    });
    answers.next_back()
}

fn written(two: &Two) -> Vec<(u64, u64)> {
    let events = two.log[1].iter().filter_map(|event| match event {
        Event::Written { at, len, .. } => Some((*at, *len)),
        _ => None,
    });
    events.collect()
}

/// Side 1 is offered packets that came together, and takes those of them by themselves that it
/// does not answer for; their payloads land. Gives how many it took in runs.
fn take_in_together(two: &mut Two, packets: &[Vec<u8>]) -> usize {
    let (mut at, mut in_runs) = (0, 0);
    while at < packets.len() {
        let rest = &packets[at..];
        // One receive brings packets of one length, the last possibly shorter.
        let alike = rest.iter().take_while(|packet| packet.len() == rest[0].len()).count();
        let shorter = rest.get(alike).is_some_and(|packet| packet.len() < rest[0].len());
        let run = &rest[..alike + usize::from(shorter)];
        match take_in_run(two, run, Landing::Unchecked) {
            0 => {
                take_in(two, &run[0]);
                at += 1;
            }
            taken => (at, in_runs) = (at + taken, in_runs + taken),
        }
    }
    two.hear();
    in_runs
}

/// Offers a run to side 1, and lets what it takes of it land. Gives how many packets that is.
fn take_in_run(two: &mut Two, run: &[Vec<u8>], landing: Landing) -> usize {
    let now = two.wire.now;
    let heads: Vec<u8> = run.iter().flat_map(|packet| &packet[..HEADER_LEN]).copied().collect();
    let offered = UnitRun {
        path: Wire::PATH,
        from: Peer::Node(0),
        heads: Heads::new(&heads, HEADER_LEN, HEADER_LEN, run.len()).unwrap(),
        unit_len: run[0].len() as u32,
        last_len: run[run.len() - 1].len() as u32,
        ecn: Ecn::NotCapable,
    };
    let side = &mut two.wire.sides[1];
    let Some(placed) = side.engine.place_run(now, &offered) else { return 0 };
    let taken = usize::from(placed.units);
    let payload = run[..taken].concat();
    let mut payloads = Vec::new();
    let mut rest = &payload[..];
    for packet in &run[..taken] {
        payloads.extend_from_slice(&rest[usize::from(placed.at)..packet.len()]);
        rest = &rest[packet.len()..];
    }
    if landing == Landing::Unchecked {
        side.memory.get_mut(&placed.span).unwrap().copy_from_slice(&payloads);
    }
    side.engine.handle_placed(now, placed.ticket, landing);
    two.hear();
    taken
}

/// What side 0 has to send, run by run where it makes runs: packets, and how many were in them.
fn said_in_runs(two: &mut Two) -> (Vec<Vec<u8>>, usize) {
    let (mut packets, now) = (Vec::new(), two.wire.now);
    let mut heads = [0; 64 * 256];
    let side = &mut two.wire.sides[0];
    loop {
        let mut room = RunRoom::new(&mut heads, 256, 60_000);
        let Some(run) = side.engine.poll_transmit_run(now, Wire::PATH, &mut room) else { break };
        let mut rest = run.span;
        for head in heads.chunks(256).take(run.units.into()) {
            let (span, behind) = rest.split_at(run.payload_len);
            rest = behind;
            let payload = side.memory.get(&span).unwrap();
            packets.push([&head[..usize::from(run.head_len)], payload].concat());
        }
        side.engine.handle_sent(now, run.ticket);
    }
    let in_runs = packets.len();
    packets.extend(two.said(0));
    (packets, in_runs)
}

/// Two endpoints, a region of side 1, and a Put of noise that side 0 has begun.
fn begun(len: usize) -> (Two, Area, Vec<u8>) {
    let mut two = Two::new(small());
    let (region, _, area) = two.region(two.ids, len);
    let bytes = noise(len as u64, len);
    let from = two.lend(0, 0, &bytes);
    let (now, id) = (two.wire.now, two.ids[0]);
    two.endpoint(0).put(now, id, &region, 0, from, PutOptions::WITH_NOTICE).unwrap();
    (two, area, bytes)
}

#[test]
fn a_put_leaves_and_comes_in_runs() {
    for len in [256, 300, 2_000] {
        let (mut two, area, bytes) = begun(len);
        let (packets, sent) = said_in_runs(&mut two);
        assert_eq!(packets.len(), len.div_ceil(128), "all of {len} bytes");
        assert_eq!(sent, packets.len(), "in a run");
        // The user is told of the last, which comes by itself.
        let taken = take_in_together(&mut two, &packets);
        assert_eq!(taken, if packets.len() > 2 { packets.len() - 1 } else { 0 }, "of {len}");
        assert_eq!(two.bytes(1, area), bytes);
        assert_eq!(written(&two), [(0, len as u64)]);
        assert_eq!(told(&mut two), Some((packets.len() as u32, Ahead::default())));
        two.check_contract();
    }
}

#[test]
fn a_run_of_puts_leaves_the_packets_that_packets_alone_would_be() {
    let ((mut one, ..), (mut other, ..)) = (begun(2_000), begun(2_000));
    assert_eq!(said_in_runs(&mut one).0, other.said(0));
}

#[test]
fn a_run_of_puts_that_does_not_land_comes_again() {
    let (mut two, area, bytes) = begun(2_000);
    let (packets, _) = said_in_runs(&mut two);
    let taken = take_in_run(&mut two, &packets[..8], Landing::Corrupt);
    assert_eq!(taken, 8);
    assert_eq!(told(&mut two), None, "nothing took effect");
    assert_eq!(take_in_together(&mut two, &packets), packets.len() - 1);
    assert_eq!(two.bytes(1, area), bytes);
    two.check_contract();
}

/// A run that lies is cut before the lie, and what is left is looked at by itself.
#[test]
fn a_run_of_puts_that_lies_is_cut_before_the_lie() {
    type Lie = fn(&mut Message);
    let lies: [(&str, Lie); 6] = [
        ("a serial number is left out", |put| {
            if let Message::Put { serial, .. } = put {
                *serial += 1;
            }
        }),
        ("another region", |put| {
            if let Message::Put { handle, .. } = put {
                *handle ^= 1;
            }
        }),
        ("a gap in memory", |put| {
            if let Message::Put { at, .. } = put {
                *at += 8;
            }
        }),
        ("a length that the packet has not", |put| {
            if let Message::Put { len, .. } = put {
                *len -= 8;
            }
        }),
        ("void", |put| {
            if let Message::Put { is_void, .. } = put {
                *is_void = true;
            }
        }),
        ("out of the region", |put| {
            if let Message::Put { at, .. } = put {
                *at = u64::MAX - 64;
            }
        }),
    ];
    for (what, lie) in lies {
        let (mut two, area, bytes) = begun(2_000);
        let (mut packets, _) = said_in_runs(&mut two);
        let honest = packets.clone();
        let (envelope, mut message) = decode(&packets[5]);
        lie(&mut message);
        let head = encode(envelope, &message);
        packets[5][..HEADER_LEN].copy_from_slice(&head[..HEADER_LEN]);
        assert_eq!(take_in_run(&mut two, &packets[..12], Landing::Unchecked), 5, "{what}");
        assert_eq!(two.bytes(1, area)[..640], bytes[..640], "{what}");
        assert!(two.bytes(1, area)[640..].iter().all(|byte| *byte == 0), "{what}");
        // The honest packets go on where the run was cut.
        take_in_together(&mut two, &honest[5..]);
        assert_eq!(two.bytes(1, area), bytes, "{what}");
        two.check_contract();
    }
}

#[test]
fn a_run_of_puts_behind_something_missing_goes_packet_by_packet() {
    let (mut two, area, bytes) = begun(2_000);
    let (packets, _) = said_in_runs(&mut two);
    assert_eq!(take_in_run(&mut two, &packets[1..9], Landing::Unchecked), 0);
    for packet in &packets[1..9] {
        take_in(&mut two, packet);
    }
    assert_eq!(take_in_run(&mut two, &packets[..4], Landing::Unchecked), 0, "half is there");
    take_in(&mut two, &packets[0]);
    assert_eq!(take_in_together(&mut two, &packets[9..]), packets.len() - 10);
    assert_eq!(two.bytes(1, area), bytes);
    two.check_contract();
}

#[test]
fn what_shares_no_byte_lies_in_place_in_any_order() {
    let wanted = [(0, 300), (300, 8), (400, 100)];
    let (mut two, area, packets) = puts(small(), 512, &wanted);
    assert_eq!(packets.len(), 5, "300 bytes are three packets");
    take_in(&mut two, &packets[4]);
    let ahead = Ahead { first: 0, bits: 0b1_0000, marked: 0 };
    assert_eq!(told(&mut two), Some((0, ahead)));
    take_in(&mut two, &packets[3]);
    take_in(&mut two, &packets[1]);
    assert_eq!(written(&two), [], "nothing took effect");
    assert_eq!(two.bytes(1, area)[400..500], [3; 100]);
    take_in(&mut two, &packets[0]);
    take_in(&mut two, &packets[2]);
    assert_eq!(told(&mut two), Some((5, Ahead::default())));
    assert_eq!(
        written(&two),
        wanted.map(|(at, len)| (at, len as u64)),
        "in the order of the calls"
    );
    two.check_contract();
}

#[test]
fn what_shares_a_byte_waits_for_what_is_missing() {
    for (first, second) in [((0, 8), (4, 8)), ((4, 8), (0, 8)), ((0, 8), (0, 8)), ((0, 9), (8, 1))]
    {
        let (mut two, area, packets) = puts(small(), 64, &[first, second]);
        let refused = two.refusals(1).of(Refusal::OutOfBounds);
        take_in(&mut two, &packets[1]);
        assert_eq!(two.refusals(1).of(Refusal::OutOfBounds), refused + 1);
        assert_eq!(told(&mut two), Some((0, Ahead::default())), "the gap is told");
        assert_eq!(two.bytes(1, area), [0; 64]);
        take_in(&mut two, &packets[0]);
        take_in(&mut two, &packets[1]);
        // What came twice is not written twice.
        take_in(&mut two, &packets[0]);
        let (at, len) = (second.0 as usize, second.1);
        assert_eq!(two.bytes(1, area)[at..at + len], vec![2; len]);
        assert_eq!(told(&mut two), Some((2, Ahead::default())));
    }
}

/// A FetchOp is a fence in both directions, and so is another region: two may be the same
/// memory.
#[test]
fn nothing_overtakes_a_fetch_op_or_a_put_to_another_region() {
    let mut two = Two::new(small());
    let (region, _, _) = two.region(two.ids, 64);
    let (other, _, _) = two.region(two.ids, 64);
    let (now, id) = (two.wire.now, two.ids[0]);
    let mut packets = begin(&mut two, &region, &[(0, 8)]);
    let add = WordFunction::Add(1);
    two.endpoint(0).fetch_op(now, id, &region, 16, WordWidth::Eight, add).unwrap();
    packets.extend(begin(&mut two, &region, &[(32, 8)]));
    packets.extend(begin(&mut two, &other, &[(48, 8)]));
    let overtakes = packets.iter().map(|packet| match decode(packet).1 {
        Message::Put { overtakes, .. } => overtakes,
        _ => 0,
    });
    assert_eq!(overtakes.collect::<Vec<_>>(), [0; 4]);
    for n in (1..4).rev() {
        take_in(&mut two, &packets[n]);
        assert_eq!(two.endpoint(1).stats().operations_applied, 0, "{n}");
    }
}

/// The user is told of the whole Put, not of its last packet.
#[test]
fn a_notice_is_of_the_whole_put() {
    let (mut two, _, packets) = puts(Config::default(), 4_096, &[(100, 3_000)]);
    assert!(packets.len() > 2);
    for packet in &packets {
        take_in(&mut two, packet);
    }
    assert_eq!(written(&two), [(100, 3_000)]);
    // One that would begin before the region is malformed.
    let (mut two, _, packets) = puts(Config::default(), 4_096, &[(100, 3_000)]);
    let last = packets.last().unwrap();
    let (envelope, message) = decode(last);
    let Message::Put { serial, handle, len, .. } = message else { unreachable!() };
    let lie = Message::Put {
        serial,
        handle,
        at: 80,
        len,
        wants_answer: true,
        wants_notice: true,
        is_void: false,
        overtakes: 5,
        behind: 11,
    };
    let packet = [&encode(envelope, &lie)[..], &vec![0; len as usize]].concat();
    assert_eq!(two.place(1, &packet), Err(Refusal::Malformed));
}

/// With checksums packets of one Put may be placed together, though each may fail; what
/// follows one that failed is in place, and that one comes again.
#[test]
fn what_fails_its_check_comes_again_alone() {
    let (mut two, area, packets) = puts(Config::default().with_checksum(), 8_192, &[(0, 6_000)]);
    let count = packets.len();
    let mut broken = packets.clone();
    broken[1][100] ^= 1;
    two.wire.hand_in(1, &broken);
    two.hear();
    let bits = ((1u64 << count) - 1) & !3;
    let ahead = Ahead { first: 0, bits: bits >> 1, marked: 0 };
    assert_eq!(told(&mut two), Some((1, ahead)));
    two.wire.hand_in(1, &packets[1..2]);
    two.hear();
    assert_eq!(two.bytes(1, area)[..6_000], [1; 6_000]);
    assert_eq!(written(&two), [(0, 6_000)]);
    two.check_contract();
}

/// Makes a peer say that it takes one packet after another, as those of before do.
fn forget_window(two: &mut Two) -> RemoteRegion {
    let (now, id) = (two.wire.now, two.ids[0]);
    two.endpoint(0).request_region(now, id, 5, 8_192, Rights::ALL).unwrap();
    two.exchange(0);
    let asked = two.log[1].iter().find_map(|event| match event {
        Event::RegionRequested { request, .. } => Some(*request),
        _ => None,
    });
    let area = two.lend(1, 8, &[0; 8_192]);
    two.endpoint(1).expose(asked.unwrap(), area, Rights::ALL).unwrap();
    for mut packet in two.said(1) {
        if op(&packet) == Op::MemoryRegionAvailable {
            packet[38..40].fill(0);
            two.prove(0, &mut packet);
        }
        two.wire.hand_in(0, &[packet]);
    }
    two.hear();
    let found = two.log[0].iter().find_map(|event| match event {
        Event::RegionAvailable { region, .. } => Some(*region),
        _ => None,
    });
    found.unwrap()
}

#[test]
fn a_peer_without_a_window_takes_one_after_another() {
    let config = Config { window: 1 << 20, ..small() };
    let mut two = Two::new(config);
    let region = forget_window(&mut two);
    // 50 packets: no more than 32 go out, and all from a missing one on go again.
    let mut packets = begin(&mut two, &region, &[(0, 6_400)]);
    packets.retain(|packet| op(packet) == Op::Put);
    assert_eq!(packets.len(), 32);
    two.wire.hand_in(1, &packets[..3]);
    let _ = two.said(1);
    two.wire.pass_time();
    let again = two.said(0);
    let puts = again.iter().filter(|packet| op(packet) == Op::Put).count();
    assert!(puts >= 29, "{puts} come again");
    two.wire.hand_in(1, &again);
    two.run_until("the put", |log| log[0].iter().any(is_done));
    two.check_contract();
}

// ---- Lies ----------------------------------------------------------------------

/// What the other side of side 0 says of what took effect.
fn say(two: &mut Two, like: &[u8], state: State) -> u64 {
    let mut answer = encode(decode(like).0, &Message::RequestStateResponse(state));
    two.prove(0, &mut answer);
    let before = two.refusals(0).total();
    two.wire.hand_in(0, &[answer]);
    two.hear();
    two.refusals(0).total() - before
}

/// Something that side 1 says, for its ports and key.
fn sample_of(two: &mut Two) -> Vec<u8> {
    let (now, id) = (two.wire.now, two.ids[1]);
    two.endpoint(1).request_region(now, id, 1, 8, Rights::ALL).unwrap();
    two.said(1).pop().unwrap()
}

#[test]
fn answers_about_what_was_never_sent_are_refused() {
    let (mut two, _, packets) = puts(small(), 512, &[(0, 300), (300, 8)]);
    assert_eq!(packets.len(), 4);
    let like = sample_of(&mut two);
    let before = two.state(0);
    let memory = |applied, first, bits| State::Memory {
        applied,
        refused: None,
        ahead: Ahead { first, bits, marked: 9 },
    };
    let refused = |applied| State::Memory {
        applied,
        refused: Some(Reason::OutOfBounds),
        ahead: Ahead::default(),
    };
    let lies = [
        memory(5, 0, 0),
        memory(1 << 31, 0, 0),
        memory((1 << 31) + 1, u16::MAX, u64::MAX),
        memory(u32::MAX, 0, 1),
        memory(0, 4, 1),
        memory(0, 0, 1 << 4),
        memory(0, 0, u64::MAX),
        memory(0, u16::MAX, 1),
        memory(3, 1, 1),
        refused(4),
        State::Fetched { serial: 0, old: 1 },
        State::Fetched { serial: 4, old: 1 },
        State::Fetched { serial: 1 << 31, old: 1 },
    ];
    for lie in lies {
        assert_eq!(say(&mut two, &like, lie), 1, "{lie:?}");
    }
    assert_eq!(two.said(0), Vec::<Vec<u8>>::new());
    // Only when it was heard last, and the numbers of windows, may differ.
    assert_eq!(before.len() / 64, two.state(0).len() / 64);
}

/// A bitmap says that all but the first are in place, and they are not: they come again.
#[test]
fn what_a_bitmap_lies_about_comes_again() {
    let (mut two, area, packets) = puts(small(), 512, &[(0, 500)]);
    let like = sample_of(&mut two);
    let lie = State::Memory {
        applied: 0,
        refused: None,
        ahead: Ahead { first: 1, bits: (1 << (packets.len() - 1)) - 1, marked: 0 },
    };
    assert_eq!(say(&mut two, &like, lie), 0);
    two.run_until("the put", |log| log[0].iter().any(is_done));
    assert_eq!(two.bytes(1, area)[..500], [1; 500]);
    two.check_contract();
}

/// Whatever window the other side says, this side remembers no more packets than it may.
#[test]
fn a_window_that_lies_makes_no_difference() {
    for window in [1, 31, 32, 4_096, u16::MAX] {
        let config = Config { puts_ahead: 40, window: 1 << 20, ..small() };
        let mut two = Two::new(config);
        let (region, _, _) = two.region(two.ids, 16_384);
        let like = sample_of(&mut two);
        let (now, id) = (two.wire.now, two.ids[0]);
        two.endpoint(0).request_region(now, id, 5, 8, Rights::ALL).unwrap();
        let asked = two.said(0);
        let Message::RequestMemoryRegion { s_id, serial, .. } = decode(&asked[0]).1 else {
            panic!("{asked:?}");
        };
        let result = Ok(AvailableRegion { handle: region.handle, len: 16_384, rights: 7, window });
        let message = Message::MemoryRegionAvailable { d_id: s_id, serial, result };
        let mut answer = encode(decode(&like).0, &message);
        two.prove(0, &mut answer);
        two.wire.hand_in(0, &[answer]);
        let packets = begin(&mut two, &region, &[(0, 16_000)]);
        assert!((32..=40).contains(&packets.len()), "{window}: {}", packets.len());
    }
}

/// Packets from far ahead, and any number of notices that cannot be told yet, take no more
/// memory than the window says; nobody else is touched.
#[test]
fn what_comes_from_far_ahead_is_refused() {
    let config = Config { puts_ahead: 100, ..small() };
    let (mut two, _, packets) = puts(config, 64, &[(0, 8)]);
    let (envelope, message) = decode(&packets[0]);
    let Message::Put { handle, .. } = message else { unreachable!() };
    let mut accepted = 0;
    for serial in (1..1_000).chain([1 << 15, 1 << 16, 1 << 31, u32::MAX]) {
        let put = Message::Put {
            serial,
            handle,
            at: 8,
            len: 8,
            wants_answer: false,
            wants_notice: true,
            is_void: false,
            overtakes: u16::MAX,
            behind: 1,
        };
        let packet = [&encode(envelope, &put)[..], &[9; 8]].concat();
        two.wire.hand_in(1, &[packet]);
        two.hear();
        let stats = two.endpoint(1).stats().operations_applied;
        assert!(stats <= 64, "{serial}");
        accepted = stats;
    }
    assert_eq!(accepted, 64, "that many notices wait at most");
    assert_eq!(written(&two), []);
    take_in(&mut two, &packets[0]);
    assert_eq!(written(&two).len(), 65);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// In whatever order packets come, and however often: in the end memory holds what the
    /// order of the calls left, and users are told of each Put once, when its bytes are there.
    #[test]
    fn any_order_of_packets_leaves_what_the_order_of_the_calls_would(
        wanted in prop::collection::vec((0u64..300, 1usize..400), 1..4),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 1..40),
    ) {
        let (mut two, area, packets) = puts(small(), 700, &wanted);
        let mut expected = vec![0; 700];
        for (n, (at, len)) in wanted.iter().enumerate() {
            expected[*at as usize..*at as usize + len].fill(n as u8 + 1);
        }
        let mut told = 0;
        let rest = 0..packets.len() * packets.len();
        for at in picks.iter().map(|pick| pick.index(packets.len())).chain(rest) {
            take_in(&mut two, &packets[at % packets.len()]);
            for (n, (at, len)) in written(&two).into_iter().enumerate().skip(told) {
                prop_assert_eq!((at, len as usize), wanted[n]);
                let bytes = &two.bytes(1, area)[at as usize..(at + len) as usize];
                prop_assert!(bytes.iter().all(|byte| *byte == n as u8 + 1), "when {} is told", n);
                told = n + 1;
            }
        }
        prop_assert_eq!(told, wanted.len());
        prop_assert!(two.bytes(1, area) == expected);
    }
}

/// Packets of the sender come from another address than before: the Put goes on.
#[test]
fn puts_go_on_when_their_sender_moves() {
    for moment in 1..8 {
        let config = Config { links: 32, ..Config::shared_network() };
        let mut two = Two::new(config);
        let (region, _, area) = two.region(two.ids, 200_000);
        let (now, near) = (two.wire.now, two.ids[0]);
        let bytes = noise(moment, 200_000);
        let from = two.lend(0, 0, &bytes);
        two.endpoint(0).put(now, near, &region, 0, from, PutOptions::default()).unwrap();
        for _ in 0..moment {
            two.wire.turn();
        }
        two.wire.rename(0, 9);
        two.run_until("the put", |log| log[0].iter().any(is_done));
        assert!(two.bytes(1, area) == bytes);
        two.check_contract();
    }
}

/// Who closes gracefully waits for what the other side has under way, also where that takes
/// much longer than all repetitions of the request.
#[test]
fn a_close_waits_for_puts_of_the_other_side_however_long_they_take() {
    let config = Config::default();
    let repetitions = config.retry_after * 16 * u32::from(config.give_up_after);
    let mut pair = Pair::new(Sim::from_number(1), config, &[ethernet(1_000_000)]);
    let memory = place(&mut pair.sim, pair.b, 0, &vec![0; MIB]);
    let (_, region) = expose(&mut pair, memory, Rights::ALL);
    let bytes = noise(8, MIB);
    let source = place(&mut pair.sim, pair.a, 0, &bytes);
    let (began, from_a, from_b) = (pair.now(), pair.from_a, pair.from_b);
    pair.alice().put(began, from_a, &region, 0, source, PutOptions::default()).unwrap();
    pair.bob().close(began, from_b).unwrap();
    let is_over = |event: &Event| matches!(event, Event::Closed { .. });
    pair.run_until("the end", |a, b| a.iter().any(is_over) && b.iter().any(is_over));
    let took = pair.now().since(began);
    assert!(took > repetitions * 2, "{took:?} show nothing");
    assert_eq!(pair.count_a(is_done), 1);
    assert!(read(&pair.sim, pair.b, memory) == bytes);
    let is_graceful = |event: &Event| matches!(event, Event::Closed { why: None, .. });
    assert_eq!((pair.count_a(is_graceful), pair.count_b(is_graceful)), (1, 1));
}
