//! Short messages leave with their request, where the other side has said that it takes them so.

use crate::two::{Two, decode, encode, is_received, is_sent, op, place, seal};
use landfall_placement::{Area, Landing, Peer, Placement, Refusal};
use landfall_testkit::trials::noise;
use stp_core::wire::Op;
use stp_core::wire::message::Message;
use stp_core::{Config, Event};

fn eager() -> Config {
    Config { eager: 256, ..Config::default() }
}

/// Two that have exchanged one message: from then on each knows what the other takes.
fn acquainted(configs: [Config; 2]) -> Two {
    let mut two = Two::of(configs);
    two.transfer(two.ids, &noise(1, 64));
    let before = two.log[0].len();
    two.run_until("the first message", |log| log[0][before..].iter().any(is_sent));
    two.hear();
    two
}

/// What both say until nothing moves any more, by operation.
fn said(two: &mut Two) -> Vec<Op> {
    let mut all = Vec::new();
    loop {
        let mut is_silent = true;
        for side in 0..2 {
            two.wire.deposit(side);
            let packets = two.said(side);
            is_silent &= packets.is_empty();
            for packet in packets {
                all.push(op(&packet));
                two.wire.hand_in(1 - side, &[packet]);
            }
        }
        two.hear();
        if is_silent {
            return all;
        }
    }
}

fn received(two: &Two) -> Vec<Area> {
    let memory = |event: &Event| match event {
        Event::Received { memory, len, .. } => Some(Area { len: *len, ..*memory }),
        _ => None,
    };
    two.log[1].iter().filter_map(memory).collect()
}

#[test]
fn the_first_message_is_granted_and_the_next_goes_with_its_request() {
    let mut two = acquainted([eager(), eager()]);
    let bytes = noise(2, 200);
    let to = two.transfer(two.ids, &bytes);
    assert_eq!(said(&mut two), [Op::RequestToSend, Op::RequestStateResponse]);
    assert_eq!(two.bytes(1, to), bytes);
    assert!(two.log[0].iter().filter(|event| is_sent(event)).count() == 2);
    assert_eq!(received(&two).len(), 2);
    assert_eq!(two.endpoint(0).stats().eager_sent, 1);
    assert_eq!(two.endpoint(1).stats().eager_received, 1);
    two.check_contract();
}

#[test]
fn a_longer_one_is_granted() {
    let mut two = acquainted([eager(), eager()]);
    two.transfer(two.ids, &noise(2, 257));
    assert_eq!(said(&mut two)[..2], [Op::RequestToSend, Op::ClearToSend]);
    assert_eq!(two.endpoint(0).stats().eager_sent, 0);
}

/// As where one of them was built before there was this.
#[test]
fn who_does_not_say_that_it_takes_them_is_sent_none() {
    for configs in [[eager(), Config::default()], [Config::default(), eager()]] {
        let mut two = acquainted(configs);
        let bytes = noise(2, 64);
        let to = two.transfer(two.ids, &bytes);
        let all = said(&mut two);
        assert_eq!(all[..3], [Op::RequestToSend, Op::ClearToSend, Op::Data]);
        assert_eq!(two.bytes(1, to), bytes);
    }
}

/// Whether Data is summed or not, they are.
#[test]
fn every_flipped_bit_is_noticed() {
    for checksum in [false, true] {
        let config = Config { checksum, ..eager() };
        let mut two = acquainted([config.clone(), config]);
        two.transfer(two.ids, &noise(2, 30));
        let packet = two.said(0).remove(0);
        let state = two.state(1);
        for bit in 96..packet.len() * 8 {
            let mut changed = packet.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(two.place(1, &changed).is_err(), "bit {bit}");
            assert_eq!(two.state(1), state, "bit {bit}");
        }
        assert_eq!(two.place(1, &packet), Ok(Placement::Consumed));
    }
}

#[test]
fn it_waits_for_memory_that_the_user_gives_later() {
    let mut two = acquainted([eager(), eager()]);
    let bytes = noise(3, 99);
    let from = two.lend(0, 1, &bytes);
    let (now, ids) = (two.wire.now, two.ids);
    two.endpoint(0).send(now, ids[0], from, 5).unwrap();
    // Who is asked is not hurried: its answer is the next that is said.
    assert_eq!(said(&mut two), [Op::RequestToSend]);
    let Some(Event::Offered { receive, len: 99, opaque: 5, .. }) = two.log[1].last().copied()
    else {
        panic!("{:?}", two.log[1])
    };
    let to = two.lend(1, 7, &[0; 120]);
    two.endpoint(1).accept(now, receive, to, false).unwrap();
    assert_eq!(said(&mut two), [Op::RequestStateResponse]);
    assert_eq!(two.bytes(1, Area { len: 99, ..to }), bytes);
    two.check_contract();
}

#[test]
fn where_less_is_taken_it_is_granted() {
    let mut two = acquainted([eager(), eager()]);
    let bytes = noise(3, 99);
    let (from, to) = (two.lend(0, 1, &bytes), two.lend(1, 7, &[0; 40]));
    let (now, ids) = (two.wire.now, two.ids);
    two.endpoint(1).post(now, ids[1], to, true).unwrap();
    two.endpoint(0).send(now, ids[0], from, 5).unwrap();
    two.run_until("its start", |log| log[1].iter().filter(|e| is_received(e)).count() == 2);
    assert_eq!(two.bytes(1, to), &bytes[..40]);
}

/// A request that is lost is repeated without what went with it; one that was only late is not
/// taken twice.
#[test]
fn what_is_lost_or_comes_twice_arrives_once() {
    for is_lost in [true, false] {
        let mut two = acquainted([eager(), eager()]);
        let bytes = noise(4, 64);
        let to = two.transfer(two.ids, &bytes);
        let packets = two.said(0);
        assert_eq!(packets.len(), 1);
        two.hear();
        assert!(two.wire.pass_time());
        if !is_lost {
            two.wire.hand_in(1, &[packets[0].clone(), packets[0].clone()]);
        }
        two.run_until("the message", |log| log[0].iter().filter(|e| is_sent(e)).count() == 2);
        assert_eq!(two.bytes(1, to), bytes);
        assert_eq!(received(&two).len(), 2);
        two.check_contract();
    }
}

#[test]
fn a_message_that_was_cancelled_before_it_left_is_not_sent() {
    let mut two = acquainted([eager(), eager()]);
    let from = two.lend(0, 1, &noise(4, 64));
    let (now, ids) = (two.wire.now, two.ids);
    let send = two.endpoint(0).send(now, ids[0], from, 5).unwrap();
    two.endpoint(0).cancel_send(now, send).unwrap();
    assert!(!said(&mut two).contains(&Op::RequestToSend));
    let is_over = |event: &Event| matches!(event, Event::SendEnded { .. });
    assert!(two.log[0].iter().any(is_over));
    assert_eq!(two.endpoint(0).stats().eager_sent, 0);
}

/// Who sends more than it may, or not all that it says, changes nothing.
#[test]
fn lengths_that_lie_are_refused() {
    let mut two = acquainted([eager(), eager()]);
    two.transfer(two.ids, &noise(4, 64));
    let packet = two.said(0).remove(0);
    let state = two.state(1);
    let short = place(&mut two.wire.sides[1].engine, two.wire.now, &packet[..100], Peer::Node(0));
    assert_eq!(short, Err(Refusal::Truncated));
    let long = [&packet[..], &[0; 60]].concat();
    assert_eq!(two.place(1, &long), Err(Refusal::Malformed));
    assert_eq!(two.state(1), state);
    // More than is taken is as if it had not come along: it is asked for.
    let (envelope, mut message) = decode(&packet);
    let Message::RequestToSend { len, .. } = &mut message else { panic!("{message:?}") };
    *len = 257;
    let mut all = [&encode(envelope, &message)[..], &[9; 257]].concat();
    seal(&mut all);
    assert_eq!(two.place(1, &all), Ok(Placement::Consumed));
    assert_eq!(two.endpoint(1).stats().eager_received, 0);
}

/// The memory it was to go to is no more: its Transfer ends, and nothing else.
#[test]
fn memory_that_fails_ends_the_message() {
    use landfall_placement::{Engine as _, Spans};
    let mut two = acquainted([eager(), eager()]);
    two.transfer(two.ids, &noise(4, 64));
    let packet = two.said(0).remove(0);
    assert_eq!(two.place(1, &packet), Ok(Placement::Consumed));
    let now = two.wire.now;
    let ticket = {
        let mut into = Spans::new();
        let deposit = two.endpoint(1).poll_deposit(now, &mut into).unwrap();
        assert_eq!((deposit.bytes.len(), into.total_len()), (64, 64));
        deposit.ticket
    };
    two.endpoint(1).handle_placed(now, ticket, Landing::Failed);
    // It means nothing any more.
    two.endpoint(1).handle_placed(now, ticket, Landing::Verified);
    two.run_until("its end", |log| {
        let is_over = |event: &Event| matches!(event, Event::SendEnded { .. });
        log[0].iter().any(is_over)
    });
    assert_eq!(received(&two).len(), 1);
}
