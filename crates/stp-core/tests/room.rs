//! Room for grants: whatever ends a Transfer, all that was granted to it is free for others.

use std::time::Duration;

use crate::two::{Two, is_received, noise, op, small, ticket};
use landfall_placement::{Engine as _, Landing};
use stp_core::model::wrong_room;
use stp_core::wire::{Op, Reason};
use stp_core::{Config, Ended, Event};

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
        two.wire.now = two.wire.sides[1].engine.poll_timeout().unwrap().at;
        let now = two.wire.now;
        two.wire.sides[1].engine.handle_timeout(now);
        asked += two.said(1).iter().filter(|packet| op(packet) == Op::ClearToSend).count();
        two.hear();
    }
    assert!(two.endpoint(1).granted_bytes() > 0, "it is not given up yet");
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

fn header_block(packet: &[u8]) -> u32 {
    stp_core::wire::Header::read(packet).unwrap().b_num.get()
}

/// A sender that has given up a Transfer says so to whoever grants it: the room is free at
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
    // Nothing reaches the sender for as long as it is patient.
    let is_given_up = |event: &Event| matches!(event, Event::SendEnded { why: Ended::Silent, .. });
    while !two.log[0].iter().any(is_given_up) {
        two.said(1);
        two.wire.now = two.wire.sides[0].engine.poll_timeout().unwrap().at;
        let now = two.wire.now;
        two.wire.sides[0].engine.handle_timeout(now);
        two.said(0);
        two.hear();
    }
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
