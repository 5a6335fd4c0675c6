//! A side whose packets come from another address than before: a translator on the way
//! forgot it, or its host moved. The connection goes on.

use crate::two::{Two, noise, op, place};
use landfall_placement::{Duration, Engine as _, Peer, Placement, Refusal};
use landfall_testkit::model::Faults;
use stp_core::wire::Op;
use stp_core::wire::message::{Message, Question, State};
use stp_core::{Config, Event, PutOptions};

fn config() -> Config {
    Config { links: 32, ..Config::shared_network() }
}

fn is_sent(event: &Event) -> bool {
    matches!(event, Event::Sent { .. })
}

fn is_done(log: &[Vec<Event>; 2], side: usize, seen: usize) -> bool {
    log[side][seen..].iter().any(is_sent)
}

/// A Transfer in one direction, to its end.
fn transfer(two: &mut Two, from: usize, len: usize) {
    let (bytes, now, ids) = (noise(len as u64, len), two.wire.now, two.ids);
    let (out, into) = (two.lend(from, 0, &bytes), two.lend(1 - from, 3, &vec![0; len]));
    two.endpoint(1 - from).post(now, ids[1 - from], into, false).unwrap();
    two.endpoint(from).send(now, ids[from], out, 9).unwrap();
    let seen = two.log[from].len();
    two.run_until("the transfer", |log| is_done(log, from, seen));
    assert_eq!(two.bytes(1 - from, into), bytes);
}

#[test]
fn a_sender_that_moves_in_the_middle_of_a_transfer_finishes_it() {
    for seed in 1..=10 {
        let faults = Faults { loss: 20_000, reordering: 20_000, ..Faults::default() };
        let mut two = Two::with(config(), faults, seed);
        let bytes = noise(seed, 400_000);
        let area = two.transfer(two.ids, &bytes);
        for _ in 0..=seed {
            two.wire.turn();
        }
        two.wire.rename(0, 9);
        two.run_until("the transfer", |log| is_done(log, 0, 0));
        assert_eq!(two.bytes(1, area), bytes);
        two.check_contract();
    }
}

#[test]
fn a_receiver_that_moves_in_the_middle_of_a_transfer_gets_the_rest() {
    for seed in 1..=10 {
        let mut two = Two::with(config(), Faults::default(), seed);
        let bytes = noise(seed, 400_000);
        let area = two.transfer(two.ids, &bytes);
        for _ in 0..=seed {
            two.wire.turn();
        }
        two.wire.rename(1, 9);
        two.run_until("the transfer", |log| is_done(log, 0, 0));
        assert_eq!(two.bytes(1, area), bytes);
        two.check_contract();
    }
}

/// Nothing was under way: who moved does not know it, until it asks whether the other side
/// is there.
#[test]
fn who_moves_while_idle_is_found_after_its_next_sign_of_life() {
    for mover in [0, 1] {
        let mut two = Two::new(config());
        transfer(&mut two, 0, 1_000);
        two.wire.rename(mover, 9);
        transfer(&mut two, 1 - mover, 5_000);
        transfer(&mut two, mover, 5_000);
        two.check_contract();
    }
}

/// Each time an old link makes room, however often that is. (Both sides at once is one more
/// than they can find out: neither knows where to ask.)
#[test]
fn a_connection_survives_any_number_of_moves() {
    let mut two = Two::new(config());
    for move_number in 0..40 {
        two.wire.rename(move_number % 2, 10 + move_number as u32);
        transfer(&mut two, move_number % 2, 3_000);
        transfer(&mut two, 1 - move_number % 2, 3_000);
    }
    for side in 0..2 {
        let id = two.ids[side];
        let links = two.endpoint(side).links_of(id).unwrap();
        assert!(links.len() <= 8, "{links:?}");
        assert!(links.iter().any(|link| link.is_up), "{links:?}");
    }
    two.check_contract();
}

#[test]
fn puts_go_on_after_a_move() {
    for mover in [0, 1] {
        let mut two = Two::new(config());
        let ids = two.ids;
        let (region, _, area) = two.region(ids, 64);
        let word = two.lend(0, 0, &[7; 64]);
        two.wire.rename(mover, 9);
        let now = two.wire.now;
        two.endpoint(0).put(now, ids[0], &region, 0, word, PutOptions::default()).unwrap();
        let is_done = |event: &Event| matches!(event, Event::PutDone { .. });
        two.run_until("the Put", |log| log[0].iter().any(is_done));
        assert_eq!(two.bytes(1, area), [7; 64]);
        two.check_contract();
    }
}

#[test]
fn who_moves_and_closes_is_heard() {
    let mut two = Two::new(config());
    transfer(&mut two, 0, 1_000);
    two.wire.rename(0, 9);
    let (now, id) = (two.wire.now, two.ids[0]);
    two.endpoint(0).close(now, id).unwrap();
    let is_closed = |event: &Event| matches!(event, Event::Closed { why: None, .. });
    two.run_until("the end", |log| log.iter().all(|log| log.iter().any(is_closed)));
}

/// The packets of a side that suspects to have moved: the question is among them.
fn asked(two: &mut Two, side: usize) -> Vec<u8> {
    for _ in 0..1_000 {
        let said = two.said(side);
        let is_it = |packet: &&Vec<u8>| {
            matches!(
                Message::decode(packet),
                Ok((_, Message::RequestState(Question::Moved { .. })))
            )
        };
        if let Some(packet) = said.iter().find(is_it) {
            return packet.clone();
        }
        assert!(two.wire.pass_time(), "it waits for ever");
    }
    panic!("it does not ask whether it moved");
}

/// Who repeats the question from elsewhere hears a token there, and nothing more is said or
/// taken there until it comes back with a proof.
#[test]
fn who_repeats_the_question_from_elsewhere_gets_a_challenge_and_no_link() {
    let mut two = Two::new(config());
    let (id, before) = (two.ids[1], two.wire.now);
    let area = two.lend(0, 0, &[1; 500]);
    let sender = two.ids[0];
    two.endpoint(0).send(before, sender, area, 1).unwrap();
    // It is not heard: it asks.
    let question = asked(&mut two, 0);
    let (now, stranger) = (two.wire.now, Peer::Node(77));
    let engine = &mut two.wire.sides[1].engine;
    assert_eq!(place(engine, now, &question, stranger), Ok(Placement::Consumed));
    let links = two.endpoint(1).links_of(id).unwrap();
    assert_eq!(links.len(), 1, "{links:?}");
    // The answer goes to the stranger, whom the wire does not know: so it is lost there.
    two.exchange(1);
    let mut changed = question.clone();
    changed[30] ^= 1;
    let engine = &mut two.wire.sides[1].engine;
    assert!(matches!(
        place(engine, now, &changed, stranger),
        Err(Refusal::BadChecksum | Refusal::BadProof)
    ));
    let refusals = two.wire.sides[1].engine.refusals();
    let counted = refusals.of(Refusal::BadChecksum) + refusals.of(Refusal::BadProof);
    assert_eq!((counted, refusals.total()), (1, 1), "{refusals}");
}

/// At an address that is known it is answered as any other, and changes nothing.
#[test]
fn who_has_not_moved_and_asks_is_answered() {
    let mut two = Two::new(config());
    let (now, sender) = (two.wire.now, two.ids[0]);
    let area = two.lend(0, 0, &[1; 500]);
    two.endpoint(0).send(now, sender, area, 1).unwrap();
    let question = asked(&mut two, 0);
    assert_eq!(two.place(1, &question), Ok(Placement::Consumed));
    let answers = two.said(1);
    let is_answer = |packet: &Vec<u8>| {
        op(packet) == Op::RequestStateResponse
            && matches!(
                Message::decode(packet),
                Ok((_, Message::RequestStateResponse(State::Connection { is_link: false, .. })))
            )
    };
    assert!(answers.iter().any(is_answer), "{answers:?}");
    let id = two.ids[1];
    assert_eq!(two.endpoint(1).links_of(id).unwrap().len(), 1);
}

/// One that hears answers has not moved, and does not ask.
#[test]
fn a_connection_that_is_heard_does_not_ask() {
    let mut two = Two::new(config());
    for _ in 0..20 {
        transfer(&mut two, 0, 100_000);
    }
    let until = two.wire.now + Duration::from_secs(60);
    while two.wire.now < until {
        for side in 0..2 {
            for packet in two.said(side) {
                let moved = matches!(
                    Message::decode(&packet),
                    Ok((_, Message::RequestState(Question::Moved { .. })))
                );
                assert!(!moved, "at {}", two.wire.now);
                two.wire.inject(1 - side, packet);
            }
        }
        two.wire.settle(8);
        if !two.wire.pass_time() {
            break;
        }
    }
}
