//! Room for grants: whatever ends a Transfer, all that was granted to it is free for others.

use std::time::Duration;

use crate::two::{Two, is_received, noise, op, small, ticket};
use landfall_placement::{Engine as _, Landing};
use stp_core::model::wrong_room;
use stp_core::wire::Op;
use stp_core::{Config, Event};

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
