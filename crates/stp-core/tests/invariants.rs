//! The eight invariants of the architecture, each held by tests that name it,
//! and the engine beside a naive model of it: over random bytes, and over the corpora of the
//! fuzz targets, so that what was found stays found.

use landfall_placement::{
    Area, Engine, Instant, Landing, PathLimits, PathState, Peer, Placement, Random, Refusal, Spans,
    Ticket, WordFunction, WordWidth,
};
use landfall_testkit::corpus::replay;
use landfall_testkit::model::Faults;
use landfall_testkit::trials::{self, input, rounds, sequences, try_inputs};
use proptest::prelude::*;
use stp_core::model::{disagreements, run, withstand};
use stp_core::wire::message::{Ahead, Message, State};
use stp_core::wire::{Envelope, Op};
use stp_core::{Admission, Config, Connect, Endpoint, Error, Event, PutOptions, Rights};

use crate::two::{
    Two, Wire, decode, encode, is_received, is_sent, noise, offer, op, place, seal, small, ticket,
};

fn cases(few: u32) -> ProptestConfig {
    ProptestConfig::with_cases(trials::cases(few))
}

/// Whatever users, drivers and the network do: the engines and the naive model
/// of them agree, and all that was begun ends.
#[test]
fn model_agrees() {
    try_inputs(0..sequences(400), 4..904, disagreements);
}

proptest! {
    #![proptest_config(cases(60))]

    /// The same, with sequences that shrink.
    #[test]
    fn model_agrees_with_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..900)) {
        prop_assert_eq!(disagreements(&bytes), Vec::<String>::new());
    }

    /// In any order, each with its twin that carries other bytes, and all of
    /// them again when the transfer is over.
    #[test]
    fn invariant_1_delivered_bytes_are_final(len in 1usize..3_000, seed: u64) {
        let mut two = Two::new(Config { window: 1 << 20, ..small() });
        let mut random = Random::from_number(seed);
        let area = two.transfer(two.ids, &noise(len as u64, len));
        let mut came: Vec<Vec<u8>> = Vec::new();
        for _ in 0..100 {
            two.wire.send(0);
            for packet in two.wire.take(1) {
                two.wire.inject(1, packet.clone());
                came.push(packet);
                let again = random.below(came.len() as u64) as usize;
                let mut twin = came[again].clone();
                if op(&twin) == Op::Data {
                    let at = 40 + random.below(twin.len() as u64 - 40) as usize;
                    twin[at] ^= 0xff;
                }
                // Behind a packet that was accepted, or before one that will be.
                if op(&twin) != Op::Data || again + 1 < came.len() {
                    two.wire.inject(1, twin);
                }
            }
            two.exchange(0);
            two.exchange(1);
            if two.log[1].iter().any(is_received) {
                break;
            }
        }
        prop_assert!(two.log[1].iter().any(is_received), "{:?}", two.log);
        prop_assert_eq!(two.bytes(1, area), &noise(len as u64, len)[..]);
        for mut packet in came {
            if let Some(payload) = packet.get_mut(40..) {
                payload.fill(0xee);
            }
            two.wire.inject(1, packet);
        }
        two.exchange(0);
        prop_assert_eq!(two.bytes(1, area), &noise(len as u64, len)[..]);
        prop_assert_eq!(two.log[1].iter().filter(|event| is_received(event)).count(), 1);
        two.check_contract();
    }
}

/// What a receiver says of a transfer: how many Blocks are in place, and whether all.
fn said_of_transfer(said: &[Vec<u8>]) -> Vec<(u32, bool)> {
    let of_transfer = |packet: &Vec<u8>| match decode(packet).1 {
        Message::RequestStateResponse(State::Transfer { acked, is_complete, .. }) => {
            Some((acked, is_complete))
        }
        _ => None,
    };
    said.iter().filter_map(of_transfer).collect()
}

#[test]
fn invariant_2_in_place_before_announced() {
    // A transfer: nothing is acknowledged while payloads have places and no more.
    let mut two = Two::new(Config { progress: true, ..small() });
    let (area, packets) = two.granted(1_000);
    assert_eq!(packets.len(), 8);
    let tickets: Vec<_> = packets.iter().map(|packet| ticket(two.place(1, packet))).collect();
    assert_eq!(two.place(1, &packets[7]), Err(Refusal::Duplicate));
    two.hear();
    assert!(!two.log[1].iter().any(is_received));
    assert_eq!(said_of_transfer(&two.said(1)), []);
    let now = two.wire.now;
    for (n, ticket) in tickets.iter().enumerate() {
        two.hear();
        assert!(!two.log[1].iter().any(is_received), "before {n}");
        assert_eq!(said_of_transfer(&two.said(1)), []);
        two.wire.sides[1].engine.handle_placed(now, *ticket, Landing::Unchecked);
    }
    two.hear();
    assert!(two.log[1].iter().any(is_received), "{area}");
    let said = two.said(1);
    assert_eq!(said_of_transfer(&said), [(2, true)]);
    // The sender is not told before its driver lets go of the memory.
    let (mut head, mut from) = ([0; 256], Spans::new());
    let mut two = Two::new(small());
    two.transfer(two.ids, &noise(3, 100));
    two.exchange(0);
    two.exchange(1);
    let engine = &mut two.wire.sides[0].engine;
    let held = loop {
        let sent = engine.poll_transmit(now, Wire::PATH, &mut head, &mut from).unwrap();
        if !from.is_empty() {
            break sent.ticket;
        }
        engine.handle_sent(now, sent.ticket);
    };
    let payload = two.wire.sides[0].memory.get(&from[0]).unwrap();
    let packet = [&head[..40], payload].concat();
    two.wire.inject(1, packet);
    two.exchange(0);
    two.exchange(1);
    assert!(two.log[1].iter().any(is_received) && !two.log[0].iter().any(is_sent));
    two.wire.sides[0].engine.handle_sent(now, held);
    two.hear();
    assert!(two.log[0].iter().any(is_sent));
}

#[test]
fn invariant_2_operations_take_effect_before_they_are_answered() {
    let mut two = Two::new(small());
    let (region, _, _) = two.region(two.ids, 64);
    let (now, id) = (two.wire.now, two.ids[0]);
    let area = two.lend(0, 0, &noise(1, 8));
    two.endpoint(0).put(now, id, &region, 0, area, PutOptions::WITH_NOTICE).unwrap();
    let add = WordFunction::Add(3);
    two.endpoint(0).fetch_op(now, id, &region, 8, WordWidth::Eight, add).unwrap();
    let packets = two.said(0);
    assert_eq!(packets.iter().map(|packet| op(packet)).collect::<Vec<_>>(), [Op::Put, Op::FetchOp]);
    let tickets: Vec<_> = packets.iter().map(|packet| ticket(two.place(1, packet))).collect();
    two.hear();
    assert!(!two.log[1].iter().any(|event| matches!(event, Event::Written { .. })));
    assert_eq!(two.said(1), Vec::<Vec<u8>>::new());
    two.wire.sides[1].engine.handle_placed(now, tickets[0], Landing::Unchecked);
    two.hear();
    assert!(two.log[1].iter().any(|event| matches!(event, Event::Written { .. })));
    let applied =
        |said: Vec<Vec<u8>>| said.iter().map(|packet| decode(packet).1).collect::<Vec<_>>();
    let one = State::Memory { applied: 1, refused: None, ahead: Ahead::default() };
    assert_eq!(applied(two.said(1)), [Message::RequestStateResponse(one)]);
    two.wire.sides[1].engine.handle_placed(now, tickets[1], Landing::Old(7));
    let fetched = State::Fetched { serial: 1, old: 7 };
    assert_eq!(applied(two.said(1)), [Message::RequestStateResponse(fetched)]);
}

/// Every bit of every packet of a conversation: Data, control operations, Puts.
#[test]
fn invariant_3_check_then_accept() {
    let mut two = Two::new(small().with_checksum());
    let (region, _, _) = two.region(two.ids, 64);
    let (now, id) = (two.wire.now, two.ids[0]);
    let (area, mut packets) = two.granted(300);
    let put = two.lend(0, 0, &noise(1, 20));
    two.endpoint(0).put(now, id, &region, 4, put, PutOptions::WITH_NOTICE).unwrap();
    let word = (WordWidth::Four, WordFunction::Add(1));
    two.endpoint(0).fetch_op(now, id, &region, 8, word.0, word.1).unwrap();
    let empty = two.lend(0, 0, &[]);
    two.endpoint(0).send(now, id, empty, 0).unwrap();
    packets.extend(two.said(0));
    let ops: Vec<_> = packets.iter().map(|packet| op(packet)).collect();
    for wanted in [Op::Data, Op::RequestToSend, Op::Put, Op::FetchOp] {
        assert!(ops.contains(&wanted), "{ops:?}");
    }
    for packet in &packets {
        for bit in 0..packet.len() * 8 {
            let mut bad = packet.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let (before, count) = (two.state(1), two.refusals(1).total());
            match two.place(1, &bad) {
                // Its payload is what is wrong: the driver's pass finds out.
                Ok(Placement::Into { ticket, .. }) => {
                    two.wire.sides[1].engine.handle_placed(now, ticket, Landing::Corrupt);
                }
                Err(_) => assert_eq!(before, two.state(1), "{:?} bit {bit}", op(packet)),
                other => panic!("{:?} bit {bit}: {other:?}", op(packet)),
            }
            assert_eq!(two.refusals(1).total(), count + 1, "{:?} bit {bit}", op(packet));
        }
    }
    two.hear();
    assert!(!two.log[1].iter().any(is_received));
    for packet in packets {
        two.wire.inject(1, packet);
    }
    let is_done = |event: &Event| matches!(event, Event::PutDone { .. } | Event::Fetched { .. });
    two.run_until("everything", |log| {
        log[1].iter().any(is_received) && log[0].iter().filter(|event| is_done(event)).count() == 2
    });
    assert_eq!(two.bytes(1, area), noise(300, 300));
    two.check_contract();
}

#[test]
fn invariant_3_each_check_has_its_counter() {
    let mut two = Two::new(small());
    let (_, packets) = two.granted(1_000);
    let mut expect = |at: usize, value: u8, refusal| {
        let mut bad = packets[1].clone();
        bad[at] ^= value;
        let (before, refused) = (two.state(1), two.refusals(1));
        assert_eq!(two.place(1, &bad), Err(refusal), "byte {at}");
        let refusals = two.refusals(1);
        assert_eq!(refusals.of(refusal), refused.of(refusal) + 1, "byte {at}");
        assert_eq!(refusals.total(), refused.total() + 1, "byte {at}: and no other");
        assert_eq!(before, two.state(1), "byte {at}");
    };
    expect(0, 0x40, Refusal::Unsupported);
    expect(1, 0x80, Refusal::Malformed);
    expect(4, 1, Refusal::WrongAddress);
    expect(6, 1, Refusal::WrongAddress);
    expect(8, 1, Refusal::WrongKey);
    expect(19, 1, Refusal::UnknownId);
    expect(23, 1, Refusal::UnknownId);
    expect(24, 1, Refusal::OutOfBounds);
    expect(27, 1, Refusal::Malformed);
    expect(31, 1, Refusal::UnknownId);
    expect(37, 1, Refusal::UnknownId);
    assert_eq!(two.place(1, &packets[1][..39]), Err(Refusal::Truncated));
    let long = [&packets[1][..], &[0; 9]].concat();
    assert_eq!(two.place(1, &long), Err(Refusal::Malformed));
    let now = two.wire.now;
    let stranger = place(&mut two.wire.sides[1].engine, now, &packets[1], Peer::Node(5));
    assert_eq!(stranger, Err(Refusal::WrongAddress));
    two.check_contract();
}

#[test]
fn invariant_4_misses_lose_nothing() {
    // Every packet changes places with another: nearly no guess is right.
    let faults = Faults { reordering: 1_000_000, ..Faults::default() };
    for seed in 0..8 {
        let config = Config { give_up_after: 200, ..small() };
        let mut two = Two::with(config, faults, seed);
        let lens = [1, 5_000, 0, 3_001, 9];
        for (n, len) in lens.into_iter().enumerate() {
            let area = two.transfer(two.ids, &noise(seed, len));
            two.run_until("the transfer", |log| {
                log[0].iter().filter(|event| is_sent(event)).count() == n + 1
            });
            assert_eq!(two.bytes(1, area), noise(seed, len));
        }
        two.check_contract();
    }
}

#[test]
fn invariant_5_at_each_bound_there_is_an_error() {
    let mut two = Two::new(small());
    let (region, ..) = two.region(two.ids, 64);
    two.region(two.ids, 8);
    let (now, [a, _]) = (two.wire.now, two.ids);
    let area = two.lend(0, 0, &[1; 64]);
    let endpoint = two.endpoint(0);
    for n in 0..5 {
        let expected = if n < 4 { Ok(()) } else { Err(Error::Busy) };
        assert_eq!(endpoint.send(now, a, area, n).map(|_| ()), expected, "send {n}");
        assert_eq!(endpoint.post(now, a, area, false), expected, "post {n}");
        assert_eq!(endpoint.read(now, a, area, n).map(|_| ()), expected, "read {n}");
        let put = endpoint.put(now, a, &region, 0, area, PutOptions::default());
        assert_eq!(put.map(|_| ()), expected, "put {n}");
        // One is open already.
        let expected = if n < 3 { Ok(()) } else { Err(Error::Busy) };
        let connect = Connect { port: 99, local_port: None, hello: 0 };
        let connected = endpoint.connect(now, Wire::PATH, Peer::Node(9), connect);
        assert_eq!(connected.map(|_| ()), expected, "connect {n}");
        let expected = if n < 2 { Ok(()) } else { Err(Error::Busy) };
        let asked = endpoint.request_region(now, a, n, 8, Rights::ALL);
        assert_eq!(asked.map(|_| ()), expected, "request_region {n}");
    }
    assert_eq!(endpoint.get(now, a, &region, 0, area).map(|_| ()), Err(Error::Busy));
    assert_eq!(endpoint.can_send(a), Ok(false));
}

/// A flood of every request there is, with the right key where one is needed:
/// tables stay within their bounds, and so does what waits to be sent.
#[test]
fn invariant_5_floods_fill_tables_and_no_more() {
    let mut two = Two::new(small());
    let area = two.lend(0, 0, &[0; 8]);
    let (now, id) = (two.wire.now, two.ids[0]);
    two.endpoint(0).send(now, id, area, 0).unwrap();
    let (envelope, _) = decode(&two.said(0)[0]);
    two.endpoint(1).listen(8, Admission::Ask).unwrap();
    let mut length = 0;
    for n in 0..20_000u32 {
        let offer = offer(n + 1);
        let stranger = Envelope { d_port: 7 + (n & 1) as u16, s_port: 3, d_key: 0 };
        let request = encode(stranger, &Message::RequestConnection(offer));
        let from = Peer::Node(10 + n);
        let _ = place(&mut two.wire.sides[1].engine, now, &request, from);
        let (s_id, serial, opaque) = (n as u16, n % 200, 0);
        let (max_block, answers, len, is_eager) = (9, None, 50, false);
        for message in [
            Message::RequestToSend { s_id, serial, len, max_block, opaque, answers, is_eager },
            Message::RequestToReceive { s_id, serial, len, opaque },
            Message::RequestMemoryRegion { s_id, serial, len, name: 1, rights: 7 },
        ] {
            let _ = two.place(1, &encode(envelope, &message));
        }
        if n == 1_000 {
            two.hear();
            length = two.state(1).len();
        }
        if n % 3_000 == 0 {
            two.hear();
        }
    }
    two.hear();
    let config = small();
    assert!(two.endpoint(1).connections() <= 1 + config.half_open);
    // The text of an engine grows by a few digits, and by nothing else.
    let grown = two.state(1).len();
    assert!(grown < length + length / 4, "{length} bytes of state became {grown}");
    assert!(two.refusals(1).of(Refusal::NoRoom) > 1_000);
    let id = two.ids[1];
    assert!(two.endpoint(1).is_open(id));
}

/// Where nobody takes the events, nothing more is taken in.
#[test]
fn invariant_5_events_that_nobody_takes_stop_what_comes_in() {
    let mut two = Two::new(small());
    two.endpoint(1).listen(8, Admission::Ask).unwrap();
    let now = two.wire.now;
    for n in 0..10_000u32 {
        let offer = offer(n + 1);
        let stranger = Envelope { d_port: 8, s_port: 3, d_key: 0 };
        let request = encode(stranger, &Message::RequestConnection(offer));
        let _ = place(&mut two.wire.sides[1].engine, now, &request, Peer::Node(10 + n));
    }
    let mut count = 0;
    while two.wire.sides[1].engine.poll_event().is_some() {
        count += 1;
    }
    assert!(count < 1_000, "{count} events wait");
    assert!(two.refusals(1).of(Refusal::NoRoom) > 8_000);
    let area = two.transfer(two.ids, &noise(1, 500));
    two.run_until("the transfer", |log| log[0].iter().any(is_sent));
    assert_eq!(two.bytes(1, area), noise(1, 500));
}

#[test]
fn invariant_6_two_runs_give_the_same_bytes() {
    let digests: Vec<_> = (0..40).map(|seed| run(&input(seed, 4..904)).1).collect();
    let again: Vec<_> = (0..40).map(|seed| run(&input(seed, 4..904)).1).collect();
    assert_eq!(digests, again);
    let mut different = digests.clone();
    different.sort_unstable();
    different.dedup();
    // In the shortest nothing is sent.
    assert!(different.len() > digests.len() / 2, "the digest says something");
}

proptest! {
    #![proptest_config(cases(20))]

    #[test]
    fn invariant_7_stale_is_harmless(raws in prop::collection::vec(any::<u64>(), 8)) {
        let mut two = Two::new(small());
        let (_, packets) = two.granted(700);
        let tickets: Vec<_> = packets.iter().map(|packet| ticket(two.place(1, packet))).collect();
        let now = two.wire.now;
        for raw in raws {
            // Small numbers, and every purpose, are the likely ones.
            for purpose in 0..8 {
                for raw in [raw, raw & 0xff_00ff, raw & 0xff_0000_00ff] {
                    let ticket = Ticket::from_raw(raw & u64::MAX >> 3 | purpose << 61);
                    if tickets.contains(&ticket) {
                        continue;
                    }
                    for side in 0..2 {
                        let before = two.state(side);
                        for landing in [Landing::Verified, Landing::Failed, Landing::Old(raw)] {
                            two.endpoint(side).handle_placed(now, ticket, landing);
                        }
                        two.endpoint(side).handle_sent(now, ticket);
                        let after = two.state(side);
                        // A place of a Block may be named that is under way: its
                        // generation and Block are in the ticket.
                        let is_named = purpose == 1;
                        prop_assert!(before == after || is_named, "{ticket:?}");
                    }
                }
            }
        }
    }
}

/// Names, landings and packets of what is over.
#[test]
fn invariant_7_what_is_over_is_not_found() {
    let mut two = Two::new(small());
    let (now, [a, b]) = (two.wire.now, two.ids);
    let area = two.lend(0, 0, &noise(1, 300));
    let send = two.endpoint(0).send(now, a, area, 0).unwrap();
    let into = two.lend(1, 0, &[0; 300]);
    two.endpoint(1).post(now, b, into, false).unwrap();
    two.exchange(0);
    two.exchange(1);
    let mut packets = two.said(0);
    packets.retain(|packet| op(packet) == Op::Data);
    let tickets: Vec<_> = packets.iter().map(|packet| ticket(two.place(1, packet))).collect();
    for ticket in &tickets {
        two.wire.sides[1].engine.handle_placed(now, *ticket, Landing::Unchecked);
    }
    two.run_until("the transfer", |log| log[0].iter().any(is_sent));
    let (region, exposed, _) = two.region(two.ids, 16);
    two.endpoint(1).revoke(exposed).unwrap();
    let before = [two.state(0), two.state(1)];
    for ticket in tickets {
        two.endpoint(1).handle_placed(now, ticket, Landing::Unchecked);
    }
    for packet in &packets {
        assert_eq!(two.place(1, packet), Err(Refusal::UnknownId));
    }
    assert_eq!(two.endpoint(0).cancel_send(now, send), Err(Error::Unknown));
    assert_eq!([two.state(0), two.state(1)], before.clone());
    // A region that was revoked: the operation is refused, and has no effect.
    two.endpoint(0).put(now, a, &region, 0, area_of(area, 8), PutOptions::default()).unwrap();
    let ended = |event: &Event| matches!(event, Event::OperationEnded { .. });
    two.run_until("the refusal", |log| log[0].iter().any(ended));
    two.endpoint(0).abort(now, a, stp_core::wire::Reason::Cancelled).unwrap();
    let closed = |event: &Event| matches!(event, Event::Closed { .. });
    two.run_until("the end", |log| log.iter().all(|log| log.iter().any(closed)));
    assert_eq!(two.endpoint(0).send(now, a, area, 0), Err(Error::NotOpen).or(Err(Error::NotOpen)));
    while two.endpoint(0).connections() + two.endpoint(1).connections() > 0 {
        assert!(two.wire.turn() || two.wire.pass_time());
    }
    assert_eq!(two.endpoint(0).send(now, a, area, 0), Err(Error::Unknown));
    two.ids = two.connect();
    for packet in packets {
        assert!(two.place(1, &packet).is_err());
    }
    assert_eq!(
        two.endpoint(0).send(now, a, area, 0),
        Err(Error::Unknown),
        "the slot is used again"
    );
}

fn area_of(area: Area, len: u64) -> Area {
    Area { len, ..area }
}

/// Any landing for whatever was placed, and whatever else a driver may do.
fn treat_somehow(engine: &mut Endpoint, bytes: &[u8], from: Peer, random: &mut Random) {
    let now = Instant::from_nanos(random.next_u64() >> random.below(60));
    if let Ok(Placement::Into { ticket, .. } | Placement::Word(_, ticket)) =
        place(engine, now, bytes, from)
    {
        let landings = [
            Landing::Verified,
            Landing::Unchecked,
            Landing::Old(7),
            Landing::Corrupt,
            Landing::Failed,
        ];
        let landing = landings[random.below(landings.len() as u64) as usize];
        engine.handle_placed(now, ticket, landing);
    }
    while engine.poll_event().is_some() {}
    let (mut head, mut spans) = ([0; 256], Spans::new());
    for _ in 0..4 {
        spans.clear();
        engine.handle_timeout(Instant::from_nanos(random.next_u64() >> random.below(60)));
        engine.guess(Wire::PATH, random.below(5) as usize);
        let room = [256, 56, 40, 0][random.below(4) as usize];
        if let Some(sent) = engine.poll_transmit(now, Wire::PATH, &mut head[..room], &mut spans) {
            engine.handle_sent(now, sent.ticket);
        }
    }
    if random.below(30) == 0 {
        let limits = PathLimits::plain(random.below(3_000) as u32);
        let states =
            [PathState::Down, PathState::Up(limits), PathState::Up(PathLimits::plain(1_500))];
        engine.handle_path(now, Wire::PATH, states[random.below(3) as usize]);
    }
}

proptest! {
    #![proptest_config(cases(80))]

    /// Real packets with any bytes written over any part, cut anywhere, with
    /// their checksums right; any time, any landing, any path.
    #[test]
    fn invariant_8_no_panic_on_input(
        changes in prop::collection::vec(
            (any::<prop::sample::Index>(), any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 1..9)),
            60,
        ),
        junk in prop::collection::vec(any::<u8>(), 0..200),
        seed: u64,
    ) {
        let mut random = Random::from_number(seed);
        let mut two = Two::new(small());
        let (region, _, _) = two.region(two.ids, 64);
        let (now, [a, b]) = (two.wire.now, two.ids);
        let (_, mut packets) = two.granted(2_000);
        let area = two.lend(0, 0, &noise(1, 48));
        two.endpoint(0).put(now, a, &region, 4, area, PutOptions::WITH_NOTICE).unwrap();
        let _ = two.endpoint(0).fetch_op(now, a, &region, 8, WordWidth::Four, WordFunction::Add(1));
        two.endpoint(0).read(now, a, area, 4).unwrap();
        two.endpoint(0).get(now, a, &region, 0, area).unwrap();
        two.endpoint(0).send(now, a, area, 5).unwrap();
        two.endpoint(0).close(now, a).unwrap();
        packets.extend(two.said(0));
        let mut answers = two.said(1);
        two.endpoint(1).read(now, b, area, 4).unwrap();
        two.endpoint(1).close(now, b).unwrap();
        answers.extend(two.said(1));
        for (which, at, bytes) in &changes {
            let side = usize::from(bytes[0] & 1);
            let mut packet = which.get(if side == 1 || answers.is_empty() { &packets } else { &answers }).clone();
            let at = at.index(packet.len());
            let len = bytes.len().min(packet.len() - at);
            packet[at..at + len].copy_from_slice(&bytes[..len]);
            if bytes[0] % 8 == 6 {
                packet.truncate(at);
            } else if bytes[0] % 8 < 6 {
                seal(&mut packet);
                two.prove(side, &mut packet);
            }
            let from = Peer::Node(1 - side as u32);
            treat_somehow(two.endpoint(side), &packet, from, &mut random);
        }
        treat_somehow(two.endpoint(0), &junk, Peer::Node(1), &mut random);
    }
}

#[test]
fn the_corpus_of_pairs_breaks_no_rule() {
    replay("stp_pair", 10, disagreements);
}

#[test]
fn the_corpus_of_attacks_breaks_no_rule() {
    replay("stp_endpoint", 10, withstand);
}

#[test]
fn random_attacks_break_no_rule() {
    try_inputs(0..rounds(200, 20_000), 0..1_500, withstand);
}
