//! Puts for whose end nobody waits: they are answered with later ones, and otherwise asked for
//! after a time-out; nothing of that is taken for a loss.

use landfall_placement::{Area, Duration};
use stp_core::wire::message::{Question, State};
use stp_core::wire::{Message, Op};
use stp_core::{Config, Event, PutOptions, RemoteRegion};

use crate::two::{Two, decode, op, small};

const LATER: PutOptions = PutOptions { notice: false, answered_later: true };

fn config() -> Config {
    Config { operations: 64, ..small() }
}

fn begin(config: Config) -> (Two, RemoteRegion, Area) {
    let mut two = Two::new(config);
    let (region, _, area) = two.region(two.ids, 1024);
    let _ = (two.said(0), two.said(1));
    (two, region, area)
}

/// Side 0 writes eight bytes.
fn put(two: &mut Two, region: &RemoteRegion, nth: u64, options: PutOptions) {
    let (now, id) = (two.wire.now, two.ids[0]);
    let from = two.lend(0, 0, &[nth as u8 + 1; 8]);
    two.endpoint(0).put(now, id, region, 8 * nth, from, options).unwrap();
}

/// What of these packets says what took effect: up to there.
fn applied(packets: &[Vec<u8>]) -> Vec<u32> {
    let of = |packet: &Vec<u8>| match decode(packet).1 {
        Message::RequestStateResponse(State::Memory { applied, .. }) => Some(applied),
        _ => None,
    };
    packets.iter().filter_map(of).collect()
}

fn is_question(packet: &[u8]) -> bool {
    matches!(decode(packet).1, Message::RequestState(Question::Memory))
}

fn done(two: &Two) -> usize {
    two.log[0].iter().filter(|event| matches!(event, Event::PutDone { .. })).count()
}

/// Side 0 says something, and side 1 takes it in; what side 1 says.
fn answers(two: &mut Two) -> Vec<Vec<u8>> {
    two.exchange(0);
    two.said(1)
}

/// Until then nothing is due.
fn pass_time(two: &mut Two) {
    assert!(two.wire.pass_time(), "nothing is due");
}

#[test]
fn of_sixteen_short_ones_the_last_is_answered() {
    let (mut two, region, area) = begin(config());
    for nth in 0..15 {
        put(&mut two, &region, nth, LATER);
        assert_eq!(applied(&answers(&mut two)), [0; 0], "{nth}");
        assert_eq!(two.bytes(1, area)[8 * nth as usize], nth as u8 + 1, "it is in place");
    }
    assert_eq!(done(&two), 0);
    put(&mut two, &region, 15, LATER);
    two.exchange(0);
    two.exchange(1);
    assert_eq!(done(&two), 16);
    two.check_contract();
}

#[test]
fn one_that_is_waited_for_ends_those_before_it() {
    let (mut two, region, _) = begin(config());
    for nth in 0..5 {
        put(&mut two, &region, nth, LATER);
    }
    put(&mut two, &region, 5, PutOptions::default());
    two.exchange(0);
    two.exchange(1);
    assert_eq!(done(&two), 6);
}

#[test]
fn where_half_of_the_operations_are_under_way_each_is_answered() {
    let (mut two, region, _) = begin(Config { operations: 8, ..config() });
    for nth in 0..3 {
        put(&mut two, &region, nth, LATER);
        assert_eq!(applied(&answers(&mut two)).len(), 0, "{nth}");
    }
    put(&mut two, &region, 3, LATER);
    assert_eq!(applied(&answers(&mut two)), [4]);
}

/// No packet is sent again, no window becomes smaller, no round trip is as long as the wait.
#[test]
fn the_last_is_asked_for_after_a_time_out_and_that_is_no_loss() {
    let (mut two, region, _) = begin(config());
    // A round trip is known, and the window has learnt of it.
    put(&mut two, &region, 0, PutOptions::default());
    two.run_until("the first", |log| log[0].iter().any(|e| matches!(e, Event::PutDone { .. })));
    let patience = |two: &mut Two, nth: u64| {
        let began = two.wire.now;
        put(two, &region, nth, LATER);
        two.exchange(0);
        pass_time(two);
        let packets = two.said(0);
        assert_eq!(packets.len(), 1, "{packets:?}");
        assert!(is_question(&packets[0]));
        two.wire.hand_in(1, &packets);
        two.exchange(1);
        two.wire.now.since(began)
    };
    let first = patience(&mut two, 1);
    assert_eq!(done(&two), 2);
    assert!(first >= Duration::from_millis(5), "{first:?}");
    // What a wait has taught would be longer, and longer.
    for round in 2..20 {
        assert_eq!(patience(&mut two, round), first, "{round}");
        assert_eq!(done(&two) as u64, round + 1);
    }
    assert_eq!(two.endpoint(0).stats().operations_repeated, 0);
    two.check_contract();
}

#[test]
fn one_that_is_lost_is_found_by_the_question_and_sent_again() {
    let (mut two, region, area) = begin(config());
    put(&mut two, &region, 0, LATER);
    let lost = two.said(0);
    assert_eq!(lost.len(), 1);
    pass_time(&mut two);
    let question = two.said(0);
    assert!(is_question(&question[0]));
    two.wire.hand_in(1, &question);
    two.exchange(1);
    let again = two.said(0);
    assert_eq!(again.iter().map(|packet| op(packet)).collect::<Vec<_>>(), [Op::Put]);
    two.wire.hand_in(1, &again);
    two.hear();
    two.exchange(1);
    assert_eq!((done(&two), two.bytes(1, area)[0]), (1, 1));
}

/// Question and answer can be lost, too.
#[test]
fn what_is_asked_for_in_vain_times_out_as_others_do() {
    let (mut two, region, _) = begin(config());
    put(&mut two, &region, 0, LATER);
    two.exchange(0);
    for _ in 0..2 {
        pass_time(&mut two);
        assert!(two.said(0).iter().any(|packet| is_question(packet)), "it is lost");
    }
    two.run_until("the end", |log| log[0].iter().any(|e| matches!(e, Event::PutDone { .. })));
    assert!(two.endpoint(0).stats().operations_repeated > 0);
}

#[test]
fn who_closes_asks_at_once() {
    let (mut two, region, _) = begin(config());
    put(&mut two, &region, 0, LATER);
    two.exchange(0);
    let (now, id) = (two.wire.now, two.ids[0]);
    two.endpoint(0).close(now, id).unwrap();
    let is_over = |event: &Event| matches!(event, Event::Closed { why: None, .. });
    for _ in 0..4 {
        two.exchange(0);
        two.exchange(1);
    }
    assert_eq!(done(&two), 1);
    assert!(two.log.iter().all(|log| log.iter().any(is_over)), "no time has passed: {:?}", two.log);
}
