//! How the kernel treats UDP batches, one rule a test, over loopback.

use crate::support;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::{
    LABEL, Scripted, Sending, assert_same, contents, labelled_head, lent, pattern, turn_until,
};
use landfall_placement::{
    Check, Ecn, Guess, Instant, Landing, PathId, Peer, Placement, Random, RegionId, SumSlot,
    Ticket, WordFunction, WordOp, WordWidth,
};
use landfall_testkit::skip::skip;
use landfall_transport::memory::{Memory, Regions, Rights};
use landfall_transport::udp::{UdpConfig, UdpDriver};
use landfall_transport::{Driver, Feature};

const PATH: PathId = PathId(0);
const ANY: &str = "127.0.0.1:0";

fn open(regions: &Regions) -> UdpDriver {
    open_with(regions, |_| {})
}

fn open_with(regions: &Regions, adjust: impl FnOnce(&mut UdpConfig)) -> UdpDriver {
    let mut config = UdpConfig::new(ANY.parse().unwrap(), 65_535);
    adjust(&mut config);
    UdpDriver::open(PATH, config, regions).unwrap()
}

/// Sends a message in labelled units and gives what arrived, with both drivers.
fn carry(
    message: &[u8],
    unit: u32,
    guesses: impl FnOnce(RegionId) -> Vec<Guess>,
    adjust: impl Fn(&mut UdpConfig),
) -> (Vec<u8>, UdpDriver, UdpDriver, Scripted) {
    let (send_regions, source) = lent(message, Rights::READ);
    let (regions, target) = lent(&vec![0; message.len()], Rights::WRITE);
    let mut sender = open_with(&send_regions, &adjust);
    let mut receiver = open_with(&regions, &adjust);
    let mut from = Scripted::sender();
    let mut to = Scripted::labelled(target);
    to.guesses = guesses(target);
    let units = message.len().div_ceil(unit as usize);
    from.send_labelled(receiver.local_address().into(), source.span(0, message.len() as u32), unit);
    turn_until(&mut sender, &mut from, |from, _| from.sent.len() == units);
    turn_until(&mut receiver, &mut to, |to, _| to.landings.len() == units);
    assert!(to.landings.iter().all(|(_, landing)| *landing == Landing::Unchecked));
    (contents(&regions, target), sender, receiver, to)
}

fn run(region: RegionId, len: usize, payload_len: u32) -> Vec<Guess> {
    vec![Guess { span: region.span(0, len as u32), head_len: LABEL as u16, payload_len }]
}

#[test]
fn a_batch_arrives_with_one_call_straight_in_its_place() {
    let message = pattern(40 * 1024, 1);
    let (arrived, sender, receiver, _) = carry(&message, 1024, |t| run(t, 40 * 1024, 1024), |_| {});
    assert_same(&arrived, &message);
    let counters = receiver.counters();
    assert_eq!((counters.guessed_right, counters.guessed_wrong), (40, 0));
    assert_eq!(counters.bytes_copied, 0);
    assert_eq!(counters.payload_bytes, 40 * 1024);
    if sender.capabilities().has(Feature::BatchedSend)
        && receiver.capabilities().has(Feature::BatchedReceive)
    {
        assert_eq!((sender.counters().send_calls, counters.receive_calls), (1, 1));
    }
}

#[test]
fn in_a_conversation_nobody_looks_before_receiving() {
    let (regions, target) = lent(&[0; 1000], Rights::WRITE | Rights::READ);
    let (mut one, mut two) = (open(&regions), open(&regions));
    let (mut here, mut there) = (Scripted::labelled(target), Scripted::labelled(target));
    // After a long silence many places are posted, and it takes this many rounds until few are.
    const WARM: usize = 80;
    let mut looks = 0;
    for round in 0..WARM + 20 {
        if round == WARM {
            looks = one.counters().looks + two.counters().looks;
        }
        here.send(two.local_address().into(), labelled_head(0), &[target.span(0, 8)]);
        turn_until(&mut one, &mut here, |here, _| here.sent.len() > round);
        turn_until(&mut two, &mut there, |there, _| there.landings.len() > round);
        there.send(one.local_address().into(), labelled_head(8), &[target.span(0, 8)]);
        turn_until(&mut two, &mut there, |there, _| there.sent.len() > round);
        turn_until(&mut one, &mut here, |here, _| here.landings.len() > round);
        // Nothing more comes: both are idle.
        for (driver, engine) in [(&mut one, &mut here), (&mut two, &mut there)] {
            driver.turn(engine, landfall_placement::Instant::ZERO).unwrap();
        }
    }
    assert!(looks > 0, "at first it is worth it");
    assert_eq!(one.counters().looks + two.counters().looks, looks);
    assert_eq!(one.counters().receive_calls, (WARM + 20) as u64);
}

#[test]
fn batches_stay_below_the_length_at_which_they_fall_apart() {
    // 1032 bytes a unit: 63 of them are 65,016 bytes, 64 would be 66,048.
    let message = pattern(200 * 1024, 2);
    let (arrived, sender, receiver, _) =
        carry(&message, 1024, |t| run(t, 200 * 1024, 1024), |_| {});
    assert_same(&arrived, &message);
    if sender.capabilities().has(Feature::BatchedSend) {
        assert_eq!(sender.counters().send_calls, 200u64.div_ceil(63));
        // A batch that fell apart would arrive in 63 calls.
        assert!(receiver.counters().receive_calls <= 8, "{:?}", receiver.counters());
    }
}

#[test]
fn batches_have_no_more_units_than_a_receive_coalesces() {
    let message = pattern(128 * 100, 3);
    let (arrived, sender, receiver, _) = carry(&message, 100, |t| run(t, 128 * 100, 100), |_| {});
    assert_same(&arrived, &message);
    if sender.capabilities().has(Feature::BatchedSend) {
        assert_eq!(sender.counters().send_calls, 2);
        assert_eq!(receiver.counters().units_received, 128);
    }
}

#[test]
fn a_shorter_unit_ends_a_batch_and_fits_at_the_end_of_a_run() {
    let message = pattern(10 * 1024 + 300, 4);
    let (arrived, sender, receiver, _) =
        carry(&message, 1024, |t| run(t, 10 * 1024 + 300, 1024), |_| {});
    assert_same(&arrived, &message);
    assert_eq!(receiver.counters().bytes_copied, 0);
    if sender.capabilities().has(Feature::BatchedSend) {
        assert_eq!(sender.counters().send_calls, 1);
    }
}

#[test]
fn lengths_never_mix_in_a_batch() {
    let message = pattern(4096, 5);
    let (send_regions, source) = lent(&message, Rights::READ);
    let (regions, target) = lent(&[0; 4096], Rights::WRITE);
    let (mut sender, mut receiver) = (open(&send_regions), open(&regions));
    let (mut from, mut to) = (Scripted::sender(), Scripted::labelled(target));
    let lengths = [100, 100, 200, 200, 50, 300, 300, 100];
    let mut at = 0;
    for len in lengths {
        let span = source.span(u64::from(at), len);
        from.send(receiver.local_address().into(), labelled_head(at), &[span]);
        at += len;
    }
    turn_until(&mut sender, &mut from, |from, _| from.sent.len() == lengths.len());
    turn_until(&mut receiver, &mut to, |to, _| to.landings.len() == lengths.len());
    assert_same(&contents(&regions, target)[..at as usize], &message[..at as usize]);
    let seen: Vec<u32> = to.seen.iter().map(|(_, _, len)| len - LABEL as u32).collect();
    assert_eq!(seen, lengths);
    if sender.capabilities().has(Feature::BatchedSend) {
        // 100 100 | 200 200 50 | 300 300 100: a longer unit starts a new batch,
        // a shorter one is the last of its own.
        assert_eq!(sender.counters().send_calls, 3);
    }
}

#[test]
fn the_control_message_says_the_length_not_the_guess() {
    let message = pattern(20 * 1000, 6);
    for guessed in [1, 500, 999, 1001, 1500] {
        let (arrived, _, receiver, _) =
            carry(&message, 1000, |t| run(t, 20 * 1000, guessed), |_| {});
        assert_same(&arrived, &message);
        assert!(receiver.counters().bytes_copied > 0, "guessed {guessed}");
    }
}

#[test]
fn invariant_4_a_list_that_is_too_short_loses_nothing() {
    let message = pattern(50 * 1024, 7);
    for posted in [1024, 2 * 1024, 3 * 1024 + 5] {
        let (arrived, ..) = carry(&message, 1024, |t| run(t, posted, 1024), |_| {});
        assert_same(&arrived, &message);
    }
}

#[test]
fn invariant_4_no_guess_at_all_costs_copies_only() {
    let message = pattern(50 * 1024, 8);
    let (arrived, _, receiver, _) = carry(&message, 1024, |_| Vec::new(), |_| {});
    assert_same(&arrived, &message);
    assert_eq!(receiver.counters().bytes_copied, 50 * 1024, "each byte once");
}

#[test]
fn the_portable_path_carries_the_same_bytes() {
    let message = pattern(20 * 1024 + 1, 9);
    let (arrived, sender, receiver, _) =
        carry(&message, 1024, |t| run(t, 20 * 1024 + 1, 1024), |config| config.batch = false);
    assert_same(&arrived, &message);
    assert_eq!(sender.counters().send_calls, 21);
    assert_eq!(receiver.counters().receive_calls, 21);
    let missing = sender.capabilities().require(Feature::BatchedSend).unwrap_err();
    assert!(missing.to_string().contains("configuration"), "{missing}");
}

#[test]
fn displaced_units_change_places_without_loss() {
    // The guess is off by one unit, so each lands in its neighbour's place.
    let message = pattern(30 * 512, 10);
    let shifted = |target: RegionId| {
        vec![Guess { span: target.span(512, 29 * 512), head_len: LABEL as u16, payload_len: 512 }]
    };
    let (arrived, _, receiver, _) = carry(&message, 512, shifted, |_| {});
    assert_same(&arrived, &message);
    // The last one has no guess, where all come with one call.
    let counters = receiver.counters();
    assert_eq!(counters.guessed_right, 0, "{counters:?}");
    assert!((29..=30).contains(&counters.guessed_wrong), "{counters:?}");
}

#[test]
fn senders_that_alternate_are_looked_at_first() {
    let (regions, target) = lent(&vec![0; 1 << 20], Rights::WRITE | Rights::READ);
    let mut receiver = open(&regions);
    let (send_regions, source) = lent(&pattern(1 << 20, 11), Rights::READ);
    let mut senders = [open(&send_regions), open(&send_regions)];
    let mut engines = [Scripted::sender(), Scripted::sender()];
    let mut to = Scripted::labelled(target);
    // A guess that is wrong anyone who sends.
    to.guesses = vec![Guess {
        span: target.span((1 << 20) - 8192, 8192),
        head_len: LABEL as u16,
        payload_len: 1000,
    }];
    let mut total = 0;
    for round in 0..40u64 {
        for (n, (sender, engine)) in senders.iter_mut().zip(&mut engines).enumerate() {
            let offset = (n as u64) << 19 | (round * 1000 + 4);
            let label = labelled_head(offset as u32);
            engine.send(receiver.local_address().into(), label, &[source.span(offset, 1000)]);
            let sent = engine.sent.len() + 1;
            turn_until(sender, engine, |engine, _| engine.sent.len() == sent);
            total += 1;
        }
        turn_until(&mut receiver, &mut to, |to, _| to.landings.len() == total);
    }
    // Each but the first few, from which it learns that they alternate.
    let counters = receiver.counters();
    assert!(counters.peeks >= 70, "{counters:?}");
    assert_eq!(counters.guessed_right, counters.peeks, "what was looked at lands right");
    let arrived = contents(&regions, target);
    let expected = pattern(1 << 20, 11);
    for n in 0..2 {
        let range = (n << 19) + 4..(n << 19) + 4 + 40 * 1000;
        assert_same(&arrived[range.clone()], &expected[range]);
    }
}

#[test]
fn sums_are_checked_wherever_the_payload_landed() {
    let payload = pattern(3001, 12);
    let (send_regions, source) = lent(&payload, Rights::READ);
    for (guessed, corrupt) in [(0, false), (3001, false), (100, false), (0, true), (3001, true)] {
        let (regions, target) = lent(&[0; 4096], Rights::WRITE);
        let (mut sender, mut receiver) = (open(&send_regions), open(&regions));
        let mut from = Scripted::sender();
        let len = (LABEL + 2 + payload.len()) as u32;
        let mut to = Scripted::new(move |unit, into| {
            into.push(target.span(0, unit.len - 10)).unwrap();
            let check = Check::InternetSum { from: 3, len: len - 3, seed: 0 };
            Ok(Placement::Into { at: 10, check, ticket: Ticket::from_raw(1) })
        });
        if guessed > 0 {
            to.guesses =
                vec![Guess { span: target.span(0, guessed), head_len: 10, payload_len: guessed }];
        }
        let mut head = labelled_head(77);
        head.extend([u8::from(corrupt), 0]);
        // From an odd byte on, into two bytes of the label.
        let checksum = Some(SumSlot { start: 3, offset: 2 });
        head[5] = 0;
        head[6] = 0;
        from.to_send.push_back(Sending {
            to: receiver.local_address().into(),
            head,
            payload: vec![source.span(0, 3001)],
            segment: None,
            checksum: checksum.filter(|_| !corrupt),
            sum_only: 0,
            ecn: Ecn::NotCapable,
        });
        turn_until(&mut sender, &mut from, |from, _| from.sent.len() == 1);
        turn_until(&mut receiver, &mut to, |to, _| to.landings.len() == 1);
        let arrived = contents(&regions, target);
        if corrupt {
            assert_eq!(to.landings[0].1, Landing::Corrupt);
            assert_eq!(receiver.counters().corrupt, 1);
            assert!(guessed > 0 || arrived == [0; 4096], "never written where not guessed");
        } else {
            assert_eq!(to.landings[0].1, Landing::Verified, "guessed {guessed}");
            assert_same(&arrived[..3001], &payload);
        }
    }
}

#[test]
fn words_change_in_one_step_and_answer_with_the_old_value() {
    let (regions, target) = lent(&[0; 64], Rights::WORDS | Rights::READ);
    let mut receiver = open(&regions);
    let socket = UdpSocket::bind(ANY).unwrap();
    let mut to = Scripted::new(move |unit, _| {
        let op = WordOp {
            region: target,
            offset: u64::from(unit.head[0]),
            width: WordWidth::Eight,
            function: WordFunction::Add(5),
        };
        Ok(Placement::Word(op, Ticket::from_raw(u64::from(unit.head[0]))))
    });
    for offset in [8, 8, 3, 64] {
        socket.send_to(&[offset], receiver.local_address()).unwrap();
    }
    turn_until(&mut receiver, &mut to, |to, _| to.landings.len() == 4);
    let landings: Vec<_> = to.landings.iter().map(|(_, landing)| *landing).collect();
    let refused = Landing::Failed; // misaligned, and out of bounds
    assert_eq!(landings, [Landing::Old(0), Landing::Old(5), refused, refused]);
    assert_eq!(receiver.counters().misplaced, 2);
    assert_eq!(contents(&regions, target)[8..16], 10u64.to_ne_bytes());
}

#[test]
fn a_longer_head_is_there_for_the_asking() {
    let bytes = pattern(2000, 13);
    for guessed in [0, 1992] {
        let (regions, target) = lent(&[0; 4096], Rights::WRITE);
        let mut receiver = open(&regions);
        let socket = UdpSocket::bind(ANY).unwrap();
        let expected = bytes.clone();
        let mut to = Scripted::new(move |unit, into| {
            if unit.head.len() < 700 {
                return Ok(Placement::NeedHead(700));
            }
            assert_eq!(unit.head[..700], expected[..700]);
            into.push(target.span(0, 1300)).unwrap();
            Ok(Placement::Into { at: 700, check: Check::None, ticket: Ticket::from_raw(0) })
        });
        if guessed > 0 {
            to.guesses = run(target, guessed, guessed as u32);
        }
        socket.send_to(&bytes, receiver.local_address()).unwrap();
        turn_until(&mut receiver, &mut to, |to, _| to.landings.len() == 1);
        assert_same(&contents(&regions, target)[..1300], &bytes[700..]);
    }
}

#[test]
fn asking_for_more_head_than_there_is_ends() {
    let (regions, _) = lent(&[0; 64], Rights::WRITE);
    let mut receiver = open(&regions);
    let socket = UdpSocket::bind(ANY).unwrap();
    let mut to = Scripted::new(|_, _| Ok(Placement::NeedHead(u16::MAX)));
    socket.send_to(b"short", receiver.local_address()).unwrap();
    turn_until(&mut receiver, &mut to, |_, receiver| receiver.counters().malformed == 1);
    assert_eq!(to.seen.len(), 1);
}

#[test]
fn a_grant_that_ended_is_refused_in_both_directions() {
    let (regions, target) = lent(&[0; 4096], Rights::WRITE | Rights::READ);
    let mut receiver = open(&regions);
    let mut to = Scripted::labelled(target);
    to.guesses = run(target, 4096, 100);
    assert_eq!(contents(&regions, target), [0; 4096]);
    let socket = UdpSocket::bind(ANY).unwrap();
    let mut unit = labelled_head(0);
    unit.extend([7; 100]);
    socket.send_to(&unit, receiver.local_address()).unwrap();
    turn_until(&mut receiver, &mut to, |to, _| to.landings.len() == 1);
    assert_eq!(to.landings[0].1, Landing::Failed);
    to.send(socket.local_addr().unwrap().into(), labelled_head(0), &[target.span(0, 100)]);
    turn_until(&mut receiver, &mut to, |to, _| to.sent.len() == 1);
    assert_eq!(receiver.counters().send_failed, 1);
}

#[test]
fn invariant_3_junk_is_refused_and_changes_nothing() {
    let (regions, target) = lent(&vec![0; 1 << 16], Rights::WRITE);
    let canary = regions.lend(Memory::from_bytes(&pattern(1 << 16, 14)), Rights::READ).unwrap();
    let mut receiver = open(&regions);
    let socket = UdpSocket::bind(ANY).unwrap();
    let mut to = Scripted::labelled(target);
    let guessed = target.span(1000, 5000);
    to.guesses = vec![Guess { span: guessed, head_len: LABEL as u16, payload_len: 500 }];
    let mut random = Random::from_number(14);
    for n in 0..300usize {
        let len = [0, 1, 7, 8, 9, 507, 508, 509, 1500, 65_507][n % 10];
        let junk: Vec<u8> = (0..len).map(|_| random.next_u32() as u8 | 0x80).collect();
        socket.send_to(&junk, receiver.local_address()).unwrap();
        let refused = n as u64 + 1;
        turn_until(&mut receiver, &mut to, |_, receiver| receiver.counters().refused == refused);
    }
    assert!(to.landings.is_empty());
    let memory = contents(&regions, target);
    assert!(memory[..1000].iter().chain(&memory[6000..]).all(|byte| *byte == 0));
    assert_same(&contents(&regions, canary), &pattern(1 << 16, 14));
}

#[test]
fn placements_that_make_no_sense_write_nothing() {
    let (regions, target) = lent(&[0; 64], Rights::WRITE);
    let mut receiver = open(&regions);
    let socket = UdpSocket::bind(ANY).unwrap();
    let count = AtomicU32::new(0);
    let mut to = Scripted::new(move |_, into| {
        let n = count.fetch_add(1, Ordering::Relaxed);
        // More than came; behind the end; out of the region; more bytes summed than came.
        let (at, span, check) = match n {
            0 => (5, target.span(0, 6), Check::None),
            1 => (u16::MAX, target.span(0, 1), Check::None),
            2 => (0, target.span(60, 10), Check::None),
            3 => (0, target.span(u64::MAX, 10), Check::None),
            _ => (0, target.span(0, 1), Check::InternetSum { from: 9, len: u32::MAX, seed: 0 }),
        };
        into.push(span).unwrap();
        Ok(Placement::Into { at, check, ticket: Ticket::from_raw(u64::from(n)) })
    });
    for _ in 0..5 {
        socket.send_to(b"ten bytes!", receiver.local_address()).unwrap();
    }
    turn_until(&mut receiver, &mut to, |to, _| to.landings.len() == 5);
    let landings: Vec<_> = to.landings.iter().map(|(_, landing)| *landing).collect();
    use Landing::{Corrupt, Failed};
    assert_eq!(landings, [Failed, Failed, Failed, Failed, Corrupt]);
    assert_eq!(contents(&regions, target), [0; 64]);
}

#[test]
fn congestion_marks_cross_in_both_families() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (regions, _) = lent(&[0; 64], Rights::WRITE);
        let bind = |config: &mut UdpConfig| config.bind = address.parse().unwrap();
        let Ok(_) = UdpSocket::bind(address) else {
            let why = format!("cannot use {address}: this machine has no such address");
            skip("congestion_marks_cross_in_both_families", &why);
            continue;
        };
        let (mut sender, mut receiver) = (open_with(&regions, bind), open_with(&regions, bind));
        let (mut from, mut to) = (Scripted::sender(), Scripted::sender());
        let marks = [Ecn::NotCapable, Ecn::Capable0, Ecn::Capable1, Ecn::CongestionExperienced];
        for ecn in marks {
            let to = receiver.local_address().into();
            from.to_send.push_back(Sending {
                to,
                head: vec![1; 20],
                payload: vec![],
                segment: None,
                checksum: None,
                sum_only: 0,
                ecn,
            });
        }
        turn_until(&mut sender, &mut from, |from, _| from.sent.len() == marks.len());
        turn_until(&mut receiver, &mut to, |to, _| to.marks.len() == marks.len());
        assert_eq!(to.marks, marks, "{address}");
    }
}

#[test]
fn an_ipv6_socket_talks_to_ipv4_peers() {
    if UdpSocket::bind("[::]:0").is_err() {
        skip("an_ipv6_socket_talks_to_ipv4_peers", "needs IPv6");
        return;
    }
    let (regions, _) = lent(&[0; 64], Rights::WRITE);
    let mut dual = open_with(&regions, |config| config.bind = "[::]:0".parse().unwrap());
    let mut plain = open(&regions);
    let (mut one, mut two) = (Scripted::sender(), Scripted::sender());
    let dual_as_ipv4 = SocketAddr::from(([127, 0, 0, 1], dual.local_address().port()));
    two.send(dual_as_ipv4.into(), vec![2; 9], &[]);
    turn_until(&mut plain, &mut two, |two, _| two.sent.len() == 1);
    turn_until(&mut dual, &mut one, |one, _| one.seen.len() == 1);
    let from = one.seen[0].0;
    assert_eq!(from, Peer::Socket(plain.local_address()), "IPv4 looks like IPv4");
    one.send(from, vec![1; 9], &[]);
    turn_until(&mut dual, &mut one, |one, _| one.sent.len() == 1);
    turn_until(&mut plain, &mut two, |two, _| two.seen.len() == 1);
}

#[test]
fn a_connected_path_hears_and_reaches_its_peer_only() {
    for bind in [ANY, "[::]:0"] {
        if UdpSocket::bind(bind).is_err() {
            let why = format!("cannot use {bind}: this machine has no such address");
            skip("a_connected_path_hears_and_reaches_its_peer_only", &why);
            continue;
        }
        let (regions, _) = lent(&[0; 64], Rights::WRITE);
        let mut path = open_with(&regions, |config| config.bind = bind.parse().unwrap());
        let [peer, stranger] = [(); 2].map(|()| UdpSocket::bind(ANY).unwrap());
        let patience = Some(support::PATIENCE);
        peer.set_read_timeout(patience).unwrap();
        let (peer_at, stranger_at) = (peer.local_addr().unwrap(), stranger.local_addr().unwrap());
        path.connect(peer_at).unwrap();
        let own = SocketAddr::from(([127, 0, 0, 1], path.local_address().port()));
        let mut engine = Scripted::sender();
        stranger.send_to(b"not heard", own).unwrap();
        peer.send_to(b"heard", own).unwrap();
        turn_until(&mut path, &mut engine, |engine, _| !engine.seen.is_empty());
        assert_eq!(engine.seen[0].0, Peer::Socket(peer_at), "{bind}");
        assert_eq!(engine.seen[0].1, b"heard");
        engine.send(stranger_at.into(), b"lost".to_vec(), &[]);
        engine.send(peer_at.into(), b"answer".to_vec(), &[]);
        turn_until(&mut path, &mut engine, |engine, _| engine.sent.len() == 2);
        let mut answer = [0; 16];
        let len = peer.recv(&mut answer).unwrap();
        assert_eq!(&answer[..len], b"answer");
        assert_eq!(path.counters().send_failed, 1);
    }
}

#[test]
fn units_that_cannot_be_sent_are_lost_not_fatal() {
    let (regions, region) = lent(&[0; 100_000], Rights::READ);
    let mut sender = open(&regions);
    let mut from = Scripted::sender();
    // Too long; nowhere; to a port that nobody has, twice, so that the answer is seen.
    let nobody = UdpSocket::bind(ANY).unwrap().local_addr().unwrap();
    from.send(nobody.into(), vec![0; 8], &[region.span(0, 70_000)]);
    from.send(Peer::Unaddressed, vec![0; 8], &[]);
    from.send(Peer::Node(3), vec![0; 8], &[]);
    from.send(nobody.into(), vec![0; 8], &[]);
    from.send(nobody.into(), vec![0; 8], &[]);
    turn_until(&mut sender, &mut from, |from, _| from.sent.len() == 5);
    assert!(sender.counters().send_failed >= 3, "{:?}", sender.counters());
}

/// An address at which nobody receives.
fn closed(local: &str) -> SocketAddr {
    UdpSocket::bind(local).unwrap().local_addr().unwrap()
}

/// An engine that waits for a first answer hears at which of its peers nobody receives; one
/// that does not is not told. What goes to others on the same socket is not lost.
#[test]
fn where_nobody_receives_is_told_to_who_waits_for_an_answer() {
    for (local, peers) in [
        (ANY, ANY),
        ("[::1]:0", "[::1]:0"),
        // Peers of IPv4 at a socket of IPv6.
        ("[::]:0", ANY),
    ] {
        let message = pattern(20_000, 3);
        let (send_regions, source) = lent(&message, Rights::READ);
        let (regions, target) = lent(&vec![0; message.len()], Rights::WRITE);
        let mut driver = open_with(&send_regions, |config| config.bind = local.parse().unwrap());
        let mut receiver = open_with(&regions, |config| config.bind = peers.parse().unwrap());
        let (mut from, mut to) = (Scripted::sender(), Scripted::labelled(target));
        let nobody = [closed(peers), closed(peers)].map(Peer::from);
        for peer in nobody {
            from.send(peer, b"hello".to_vec(), &[]);
        }
        turn_until(&mut driver, &mut from, |from, _| from.sent.len() == 2);
        for _ in 0..10 {
            driver.turn(&mut from, landfall_placement::Instant::ZERO).unwrap();
        }
        assert_eq!(from.unreachable, [], "{local}: nobody waits");

        from.awaits_answer = true;
        let units = message.len().div_ceil(1_000);
        for peer in nobody {
            from.send(peer, b"hello".to_vec(), &[]);
            from.send_labelled(
                receiver.local_address().into(),
                source.span(0, message.len() as u32),
                1_000,
            );
        }
        let (sent, expected) = (2 + 2 * (units + 1), 2);
        turn_until(&mut driver, &mut from, |from, _| {
            from.sent.len() == sent && from.unreachable.len() == expected
        });
        assert_eq!(from.unreachable, nobody, "{local}");
        turn_until(&mut receiver, &mut to, |to, _| to.landings.len() == 2 * units);
        assert_eq!(driver.counters().send_failed, 0, "{local}");
        assert_same(&contents(&regions, target), &message);

        // Nothing is left that would wake a sleeping driver.
        let ready = landfall_transport::wait::until_ready(
            &driver.interests(),
            landfall_placement::Duration::ZERO,
        );
        assert!(!ready.unwrap(), "{local}");
        from.awaits_answer = false;
        driver.turn(&mut from, landfall_placement::Instant::ZERO).unwrap();
        from.send(nobody[0], b"hello".to_vec(), &[]);
        turn_until(&mut driver, &mut from, |from, _| from.sent.len() == sent + 1);
        for _ in 0..10 {
            driver.turn(&mut from, landfall_placement::Instant::ZERO).unwrap();
        }
        assert_eq!(from.unreachable, nobody, "{local}: nobody waits any more");
    }
}

/// Each socket that is bound to a group hears it, and no group that others of the host joined.
#[test]
fn a_path_that_is_bound_to_a_group_hears_that_group_alone() {
    let regions = Regions::new(1);
    let open = |group: &str| {
        let interface = Some(std::net::Ipv4Addr::LOCALHOST);
        let config = UdpConfig { interface, ..UdpConfig::new(group.parse().unwrap(), 1500) };
        let driver = UdpDriver::open(PATH, config, &regions).unwrap();
        (driver, Scripted::new(|_, _| Ok(Placement::Consumed)))
    };
    let groups = ["239.255.76.90:8290", "239.255.76.91:8290"];
    let mut ends = [groups[0], groups[0], groups[1]].map(open);
    let sender = UdpSocket::bind(ANY).unwrap();
    for (group, heard) in groups.into_iter().zip([[1, 1, 0], [1, 1, 1]]) {
        sender.send_to(b"to the group", group).unwrap();
        for ((driver, engine), heard) in ends.iter_mut().zip(heard) {
            turn_until(driver, engine, |engine, _| engine.seen.len() >= heard);
        }
        // What is for another group would have come by now.
        for (driver, engine) in &mut ends {
            driver.turn(engine, Instant::ZERO).unwrap();
        }
        assert_eq!(ends.each_ref().map(|(_, engine)| engine.seen.len()), heard);
    }
}
