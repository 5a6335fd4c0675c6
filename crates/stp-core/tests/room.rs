//! What is used up comes back: room for grants, and numbers of requests. Whatever ends one
//! Transfer, others go on.

use std::time::Duration;

use crate::two::{Two, is_received, is_sent, noise, op, small, ticket};
use landfall_placement::{Engine as _, Landing};
use stp_core::model::wrong_room;
use stp_core::wire::{Header, Op, Reason};
use stp_core::{Config, Ended, Event, Policy, Rights};

/// The first Block of a Transfer never comes, and is given up at the moment when the second
/// is complete: its place in the table is free once, as every other.
#[test]
fn a_block_that_is_complete_when_its_transfer_is_given_up_is_given_back_once() {
    let config = Config { give_up_after: 1, ..small() };
    let silence = config.retry_after * 512;
    let mut two = Two::new(config);
    let (area, packets) = two.granted(1_024);
    // The time passes in which the first Block is asked for, again and again.
    let mut asked = 0;
    while asked < 4 {
        let_time_pass_at(&mut two, 1);
        asked += two.said(1).iter().filter(|packet| op(packet) == Op::ClearToSend).count();
    }
    let is_ended = |event: &Event| matches!(event, Event::ReceiveEnded { .. });
    assert!(!two.log[1].iter().any(is_ended), "it is not given up yet");
    // This machine pauses; then the second Block is there.
    two.wire.now += silence + Duration::from_secs(1);
    let now = two.wire.now;
    for packet in packets.iter().skip_while(|packet| header_block(packet) == 0) {
        let ticket = ticket(two.place(1, packet));
        two.wire.sides[1].engine.handle_placed(now, ticket, Landing::Unchecked);
    }
    assert_eq!(wrong_room(two.endpoint(1)), None);
    assert_eq!(two.endpoint(1).granted_bytes(), 0);
    let is_over = |event: &Event| matches!(event, Event::ReceiveEnded { memory: Some(memory), .. } if *memory == area);
    two.run_until("the end", |log| log[1].iter().any(is_over));
    let into = two.transfer(two.ids, &noise(7, 2_000));
    two.run_until("another Transfer", |log| log[1].iter().any(is_received));
    assert_eq!(two.bytes(1, into), noise(7, 2_000));
    two.check_contract();
}

/// Side 1 speaks, and side 0 takes it in. Gives whether it had something to say.
fn said_something(two: &mut Two) -> bool {
    let said = two.said(1);
    two.wire.hand_in(0, &said);
    two.hear();
    !said.is_empty()
}

fn header_block(packet: &[u8]) -> u32 {
    Header::read(packet).unwrap().b_num.get()
}

/// Nothing reaches side 0, nor anybody from it, for as long as it is patient.
fn hear_nothing_until_given_up(two: &mut Two) {
    let is_given_up = |event: &Event| matches!(event, Event::SendEnded { why: Ended::Silent, .. });
    while !two.log[0].iter().any(is_given_up) {
        two.said(1);
        let_time_pass_at(two, 0);
        two.said(0);
    }
}

/// The next timeout of one side comes.
fn let_time_pass_at(two: &mut Two, side: usize) {
    two.wire.now = two.wire.sides[side].engine.poll_timeout().unwrap().at;
    let now = two.wire.now;
    two.wire.sides[side].engine.handle_timeout(now);
    two.hear();
}

/// A receiver that has no room for a Transfer, or whose user has not answered, is asked how
/// things stand, and less and less often.
#[test]
fn who_has_nothing_new_to_say_is_asked_less_and_less_often() {
    let mut two = Two::new(Config { keep_alive: None, ..small() });
    two.wire.settle(20);
    let (start, near) = (two.wire.now, two.ids[0]);
    let from = two.lend(0, 0, &noise(1, 300));
    two.endpoint(0).send(start, near, from, 9).unwrap();
    let mut asked = Vec::new();
    while two.wire.now < start + Duration::from_secs(20) {
        let said = two.said(0);
        if said.iter().any(|packet| op(packet) == Op::RequestState) {
            asked.push(two.wire.now);
        }
        two.wire.hand_in(1, &said);
        two.hear();
        two.exchange(1);
        let_time_pass_at(&mut two, 0);
    }
    let waits: Vec<_> = asked.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    assert!(waits.is_sorted(), "{waits:?}");
    assert!(asked.len() >= 8 && *waits.last().unwrap() >= waits[0] * 8, "{waits:?}");
    // What comes in the end is received as ever.
    let offered = two.log[1].iter().find_map(|event| match event {
        Event::Offered { receive, .. } => Some(*receive),
        _ => None,
    });
    let (now, into) = (two.wire.now, two.lend(1, 0, &[0; 300]));
    two.endpoint(1).accept(now, offered.unwrap(), into, false).unwrap();
    two.run_until("the Transfer", |log| {
        log[0].iter().any(is_sent) && log[1].iter().any(is_received)
    });
    assert_eq!(two.bytes(1, into), noise(1, 300));
    two.check_contract();
}

/// A sender that has given up a Transfer says so to anyone who grants it: the room is free at
/// once, and not when the receiver loses its patience.
#[test]
fn a_grant_for_what_its_sender_gave_up_is_answered() {
    let mut two = Two::new(Config { keep_alive: None, ..small() });
    two.wire.settle(20);
    let (now, [near, far]) = (two.wire.now, two.ids);
    let from = two.lend(0, 0, &noise(1, 300));
    two.endpoint(0).send(now, near, from, 9).unwrap();
    two.exchange(0);
    let offered = two.log[1].iter().find_map(|event| match event {
        Event::Offered { receive, .. } => Some(*receive),
        _ => None,
    });
    hear_nothing_until_given_up(&mut two);
    let (now, into) = (two.wire.now, two.lend(1, 0, &[0; 300]));
    two.endpoint(1).accept(now, offered.unwrap(), into, false).unwrap();
    two.exchange(1);
    assert_eq!(two.endpoint(1).granted_bytes(), 300);
    two.exchange(0);
    assert_eq!(two.endpoint(1).granted_bytes(), 0, "no time has passed");
    let why = two.log[1].iter().find_map(|event| match event {
        Event::ReceiveEnded { why, .. } => Some(*why),
        _ => None,
    });
    assert_eq!(why, Some(Ended::There(Reason::Gone)));
    two.exchange(1);
    // Its number is used up: what comes next is as if it had never been.
    two.transfer([near, far], &noise(2, 300));
    two.run_until("another Transfer", |log| log[1].iter().any(is_received));
    two.check_contract();
}

/// A Transfer whose request was lost, and that was given up, uses up its number at the other
/// side, too: however many come after it, they are taken.
#[test]
fn a_transfer_that_was_lost_and_given_up_does_not_stop_those_after_it() {
    let mut two = Two::new(Config { keep_alive: None, ..small() });
    two.wire.settle(20);
    let (now, near) = (two.wire.now, two.ids[0]);
    let from = two.lend(0, 0, &noise(1, 300));
    two.endpoint(0).send(now, near, from, 9).unwrap();
    two.said(0);
    hear_nothing_until_given_up(&mut two);
    for round in 0..130 {
        let seen = two.log[1].len();
        two.transfer(two.ids, &noise(round, 20));
        two.run_until("Transfer", |log| log[1][seen..].iter().any(is_received));
        two.wire.settle(20);
    }
    two.check_contract();
}

/// The same of a read that its user cancels before it was heard.
#[test]
fn a_read_that_was_lost_and_cancelled_does_not_stop_those_after_it() {
    let mut two = Two::new(small());
    two.wire.settle(20);
    let (now, near) = (two.wire.now, two.ids[0]);
    let into = two.lend(0, 0, &[0; 8]);
    let read = two.endpoint(0).read(now, near, into, 1_000).unwrap();
    two.said(0);
    two.endpoint(0).cancel_receive(now, read).unwrap();
    let asked = |event: &Event| match event {
        Event::ReadRequested { read, opaque, .. } => Some((*read, *opaque)),
        _ => None,
    };
    for round in 0..130 {
        let (now, into) = (two.wire.now, two.lend(0, 0, &[0; 8]));
        two.endpoint(0).read(now, near, into, round).unwrap();
        let seen = [two.log[0].len(), two.log[1].len()];
        let is_it = |event: &Event| asked(event).is_some_and(|(_, opaque)| opaque == round);
        two.run_until("the question", |log| log[1][seen[1]..].iter().any(is_it));
        let questions: Vec<_> = two.log[1][seen[1]..].iter().filter_map(asked).collect();
        for (read, _) in questions {
            let (now, from) = (two.wire.now, two.lend(1, 0, &noise(round.into(), 8)));
            two.endpoint(1).answer_read(now, read, from, 2).unwrap();
        }
        two.run_until("the answer", |log| log[0][seen[0]..].iter().any(is_received));
    }
    let questions = two.log[1].iter().filter_map(asked);
    assert_eq!(questions.filter(|(_, opaque)| *opaque == 1_000).count(), 1, "asked as if late");
    two.check_contract();
}

/// And of a request for a region.
#[test]
fn a_request_for_a_region_that_was_lost_and_given_up_does_not_stop_those_after_it() {
    let mut two = Two::new(Config { keep_alive: None, ..small() });
    two.wire.settle(20);
    let (now, near) = (two.wire.now, two.ids[0]);
    two.endpoint(0).request_region(now, near, 1_000, 8, Rights::ALL).unwrap();
    let is_given_up =
        |event: &Event| matches!(event, Event::RegionRefused { why: Ended::Silent, .. });
    while !two.log[0].iter().any(is_given_up) {
        two.said(0);
        let_time_pass_at(&mut two, 0);
    }
    for round in 0..130 {
        let now = two.wire.now;
        two.endpoint(0).request_region(now, near, round, 8, Rights::ALL).unwrap();
        let seen = [two.log[0].len(), two.log[1].len()];
        let asked = |event: &Event| match event {
            Event::RegionRequested { request, name, .. } => Some((*request, *name)),
            _ => None,
        };
        let is_it = |event: &Event| asked(event).is_some_and(|(_, name)| name == round);
        two.run_until("the question", |log| log[1][seen[1]..].iter().any(is_it));
        let asks: Vec<_> = two.log[1][seen[1]..].iter().filter_map(asked).collect();
        for (request, _) in asks {
            two.endpoint(1).refuse_region(request, Reason::Refused).unwrap();
        }
        let is_refused = |event: &Event| matches!(event, Event::RegionRefused { .. });
        two.run_until("the answer", |log| log[0][seen[0]..].iter().any(is_refused));
    }
    two.check_contract();
}

/// Room comes back in small pieces. They are granted Block by Block, though several Transfers
/// wait: so what comes is in runs, and where the next unit belongs can be guessed.
#[test]
fn a_block_that_was_begun_is_granted_to_its_end_before_it_is_anothers_turn() {
    for policy in [Policy::Fair, Policy::ShortestFirst] {
        let config = Config { policy, block_stus: 3, buffer: 10, window: 1_024, ..small() };
        let mut two = Two::new(config);
        for seed in 0..3 {
            two.transfer(two.ids, &noise(seed, 4_000));
        }
        let mut came = Vec::new();
        while two.log[1].iter().filter(|event| is_received(event)).count() < 3 {
            let packets = two.said(0);
            assert!(!packets.is_empty() || said_something(&mut two), "{policy:?}: nothing moves");
            for packet in packets {
                if op(&packet) == Op::Data {
                    let header = Header::read(&packet).unwrap();
                    came.push((header.d_id.get(), header.b_num.get()));
                }
                // One by one, so that each makes a little room.
                two.wire.hand_in(1, &[packet]);
                two.hear();
                two.exchange(1);
            }
        }
        let stus = came.len();
        came.dedup();
        let runs = came.len();
        came.sort_unstable();
        came.dedup();
        assert_eq!(runs, came.len(), "{policy:?}: {stus} STUs in {runs} runs");
        two.check_contract();
    }
}
