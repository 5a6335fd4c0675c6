//! The requester by itself.

use std::vec::Vec;

use super::super::frame::{Mac, Nonce, Ticket};
use super::*;

const ME: Mac = [2, 0, 0, 0, 0, 1];
const GATE: Mac = [2, 0, 0, 0, 0, 0xff];

fn requester(change: impl FnOnce(&mut RequesterConfig)) -> Requester {
    let mut config = RequesterConfig::new(ME, GATE);
    change(&mut config);
    Requester::new(config, [3; 32]).unwrap()
}

fn ms(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// The one frame that it sends now.
fn sent(requester: &mut Requester, now: Instant) -> ControlFrame {
    let frame = requester.poll_transmit(now).expect("it has something to say");
    let frame = ControlFrame::parse(&frame).unwrap();
    assert_eq!((frame.to, frame.from), (GATE, ME));
    frame
}

/// An answer to a frame.
fn answer(to: &ControlFrame, message: Message) -> ControlFrame {
    ControlFrame { to: to.from, from: to.to, message, ..*to }
}

fn hear(requester: &mut Requester, now: Instant, frame: &ControlFrame) -> Result<(), Refusal> {
    requester.handle_frame(now, &frame.to_bytes())
}

fn ack(lease: u64, millis: u64) -> Message {
    Message::FastAck { lease: Lease::from_number(lease), time: Duration::from_millis(millis) }
}

fn nack(position: u16, millis: u64) -> Message {
    let ticket = Some(Ticket::from_number(77));
    Message::FastNAck { ticket, position: Some(position), wait: Duration::from_millis(millis) }
}

fn events(requester: &mut Requester) -> Vec<RequesterEvent> {
    core::iter::from_fn(|| requester.poll_event()).collect()
}

/// One that asked at 0 and has a lease of 100 ms from then on.
fn fast() -> (Requester, ControlFrame, TransferId) {
    let mut requester = requester(|_| {});
    let transfer = requester.ask(ms(0)).unwrap();
    let request = sent(&mut requester, ms(0));
    hear(&mut requester, ms(1), &answer(&request, ack(5, 100))).unwrap();
    assert_eq!(events(&mut requester), [RequesterEvent::Granted { until: ms(100) }]);
    (requester, request, transfer)
}

#[test]
fn a_large_transfer_asks_by_itself_and_a_small_one_does_not() {
    let mut requester = requester(|config| config.implicit = Some(1_000));
    requester.begin(ms(0), 999).unwrap();
    assert_eq!((requester.mode(ms(0)), requester.poll_transmit(ms(0))), (Mode::Plain, None));
    let large = requester.begin(ms(0), 1_000).unwrap();
    assert_eq!(requester.mode(ms(0)), Mode::Slow);
    assert!(requester.allowance(ms(0)).bytes >= 4_096, "it starts at once");
    assert_eq!(requester.answer(ms(0), large), Answer::Pending);
    assert_eq!(sent(&mut requester, ms(0)).message, Message::FastReq { ticket: None });
}

#[test]
fn sending_much_asks_and_sending_nothing_lets_go() {
    let mut requester = requester(|config| config.implicit = Some(100_000));
    for n in 0..99 {
        requester.handle_sent(Instant::from_micros(n * 100), 1_000);
    }
    assert_eq!(requester.mode(ms(10)), Mode::Plain);
    requester.handle_sent(ms(10), 1_000);
    assert_eq!(requester.mode(ms(10)), Mode::Slow);
    let request = sent(&mut requester, ms(10));
    hear(&mut requester, ms(10), &answer(&request, ack(5, 100))).unwrap();
    assert_eq!(requester.poll_timeout(), Some(ms(30)), "nothing was sent for 20 ms");
    requester.handle_timeout(ms(30));
    let release = sent(&mut requester, ms(30)).message;
    assert_eq!(release, Message::Release { what: Lease::from_number(5).0 });
    assert_eq!((requester.mode(ms(30)), requester.poll_timeout()), (Mode::Plain, None));
}

/// Large packets at a low rate have long pauses between: they are no reason to leave.
#[test]
fn a_throttled_stream_is_not_taken_for_a_silent_one() {
    for delay in [0, 300] {
        let mut requester = requester(|config| {
            config.slow_rate = 500_000;
            config.delay = Duration::from_millis(delay);
        });
        let (mut now, mut sent, mut release_at) = (ms(0), 0, None);
        while now < ms(2_000) {
            if let Some(frame) = requester.poll_transmit(now) {
                let request = ControlFrame::parse(&frame).unwrap();
                match request.message {
                    Message::FastReq { .. } => {
                        hear(&mut requester, now, &answer(&request, nack(1, 20))).unwrap();
                    }
                    other => panic!("{now}: {other:?}"),
                }
            }
            if requester.allowance(now).bytes > 0 {
                requester.handle_sent(now, 65_535);
                sent += 65_535;
            }
            let again = requester.allowance(now).again.unwrap_or(now);
            now = again.min(requester.poll_timeout().unwrap_or(again)).max(now);
        }
        // What it sent before it was noticed, and half a megabyte each second.
        assert!((700_000..=1_450_000).contains(&sent), "{sent} with {delay}");
        assert_eq!(requester.mode(now), Mode::Slow);
        while let Some(at) = requester.poll_timeout().filter(|at| *at < ms(4_000)) {
            requester.handle_timeout(at);
            let Some(frame) = requester.poll_transmit(at) else { continue };
            let request = ControlFrame::parse(&frame).unwrap();
            if matches!(request.message, Message::Release { .. }) {
                release_at = Some(at);
            } else {
                hear(&mut requester, at, &answer(&request, nack(1, 20))).unwrap();
            }
        }
        assert!(release_at.is_some_and(|at| at < ms(2_200)), "who may send and does not, leaves");
        assert_eq!(requester.mode(ms(4_000)), Mode::Plain);
    }
}

#[test]
fn without_implicit_mode_only_a_call_asks() {
    let mut requester = requester(|config| config.implicit = None);
    let silent = requester.begin(ms(0), u64::MAX).unwrap();
    requester.handle_sent(ms(0), u64::MAX);
    assert_eq!(requester.mode(ms(0)), Mode::Plain);
    let asked = requester.ask(ms(0)).unwrap();
    assert_eq!(requester.mode(ms(0)), Mode::Slow);
    assert_eq!(requester.answer(ms(0), silent), Answer::NotAsked);
    assert_eq!(requester.answer(ms(0), asked), Answer::Pending);
}

#[test]
fn it_switches_in_mid_stream_and_the_lease_counts_from_the_request() {
    let (requester, _, transfer) = fast();
    let until = ms(100);
    assert_eq!(requester.mode(ms(99)), Mode::Fast { until });
    assert_eq!(requester.answer(ms(99), transfer), Answer::Granted { until });
    assert_eq!(requester.allowance(ms(99)).bytes, u64::MAX);
    assert_eq!(requester.mode(ms(100)), Mode::Slow, "whether or not anybody looks at the timer");
    assert_eq!(requester.poll_timeout(), Some(ms(50)), "refreshed at half its time");
}

#[test]
fn a_lease_is_refreshed_and_released() {
    let (mut requester, request, transfer) = fast();
    assert_eq!(requester.poll_transmit(ms(49)), None);
    let refresh = sent(&mut requester, ms(50));
    assert_eq!(refresh.message, Message::Refresh { lease: Lease::from_number(5) });
    assert_eq!(refresh.nonce, request.nonce);
    hear(&mut requester, ms(51), &answer(&refresh, ack(5, 100))).unwrap();
    assert_eq!(requester.mode(ms(149)), Mode::Fast { until: ms(150) });
    requester.end(ms(60), transfer);
    let release = sent(&mut requester, ms(60)).message;
    assert_eq!(release, Message::Release { what: Lease::from_number(5).0 });
    assert_eq!((requester.poll_transmit(ms(60)), requester.poll_timeout()), (None, None));
    requester.end(ms(60), transfer);
    assert_eq!(requester.answer(ms(60), transfer), Answer::NotAsked);
}

#[test]
fn a_lease_that_nobody_renews_runs_out_and_is_asked_for_again() {
    let (mut requester, request, _) = fast();
    let mut refreshes = 0;
    while let Some(at) = requester.poll_timeout().filter(|at| *at < ms(100)) {
        requester.handle_timeout(at);
        refreshes += u32::from(requester.poll_transmit(at).is_some());
    }
    assert!((3..=8).contains(&refreshes), "{refreshes}");
    requester.handle_timeout(ms(100));
    assert_eq!(events(&mut requester), [RequesterEvent::Lost(Lost::RanOut)]);
    let again = sent(&mut requester, ms(100));
    assert_eq!(again.message, Message::FastReq { ticket: None });
    assert_ne!(again.nonce, request.nonce);
}

#[test]
fn a_turn_that_is_over_is_given_back_at_once() {
    let (mut requester, request, transfer) = fast();
    let refresh = sent(&mut requester, ms(50));
    let wait = Duration::ZERO;
    let over = Message::FastNAck { ticket: None, position: None, wait };
    hear(&mut requester, ms(51), &answer(&refresh, over)).unwrap();
    assert_eq!(requester.mode(ms(51)), Mode::Slow);
    assert_eq!(requester.answer(ms(51), transfer), Answer::Pending);
    assert_eq!(events(&mut requester), [RequesterEvent::Lost(Lost::TurnOver)]);
    let release = sent(&mut requester, ms(51));
    assert_eq!(release.message, Message::Release { what: Lease::from_number(5).0 });
    assert_eq!(release.nonce, request.nonce);
    assert_ne!(sent(&mut requester, ms(51)).nonce, request.nonce);
}

#[test]
fn what_is_refused_is_throttled_and_never_stopped() {
    let mut requester = requester(|_| {});
    let transfer = requester.ask(ms(0)).unwrap();
    let request = sent(&mut requester, ms(0));
    hear(&mut requester, ms(1), &answer(&request, nack(4, 20))).unwrap();
    let refused = Answer::Refused { position: Some(4), ask_again: ms(21) };
    assert_eq!(requester.answer(ms(1), transfer), refused);
    let wait = Duration::from_millis(20);
    let told = RequesterEvent::Refused { position: Some(4), wait };
    assert_eq!(events(&mut requester), [told]);

    let (mut now, mut bytes) = (ms(1), 0);
    while now < ms(1_001) {
        let allowance = requester.allowance(now);
        assert_eq!(allowance.mode, Mode::Slow);
        if allowance.bytes == 0 {
            now = allowance.again.unwrap();
            continue;
        }
        requester.handle_sent(now, 65_535);
        bytes += 65_535;
    }
    assert!((1_900_000..=2_150_000).contains(&bytes), "{bytes} in a second");
}

#[test]
fn who_is_refused_asks_again_with_its_ticket_when_it_was_told() {
    let mut requester = requester(|_| {});
    requester.ask(ms(0)).unwrap();
    let request = sent(&mut requester, ms(0));
    hear(&mut requester, ms(1), &answer(&request, nack(4, 20))).unwrap();
    assert_eq!(requester.poll_timeout(), Some(ms(21)));
    let again = sent(&mut requester, ms(21));
    assert_eq!(again.message, Message::FastReq { ticket: Some(Ticket::from_number(77)) });
    assert_eq!((again.nonce, again.serial), (request.nonce, request.serial + 1));
}

#[test]
fn an_invitation_is_followed_at_once_and_repetitions_put_nothing_off() {
    let mut requester = requester(|_| {});
    requester.ask(ms(0)).unwrap();
    let request = sent(&mut requester, ms(0));
    hear(&mut requester, ms(1), &answer(&request, nack(4, 20))).unwrap();
    for now in 2..20 {
        hear(&mut requester, ms(now), &answer(&request, nack(4, 900))).unwrap();
        assert_eq!(requester.poll_timeout(), Some(ms(21)));
    }
    hear(&mut requester, ms(20), &answer(&request, nack(0, 0))).unwrap();
    assert_eq!(requester.poll_timeout(), Some(ms(20)));
    sent(&mut requester, ms(20));
}

#[test]
fn two_that_hurry_each_other_slow_down() {
    let mut requester = requester(|_| {});
    requester.ask(ms(0)).unwrap();
    let (mut now, mut requests) = (ms(0), 0);
    while now < ms(1_000) {
        if let Some(frame) = requester.poll_transmit(now) {
            requests += 1;
            let request = ControlFrame::parse(&frame).unwrap();
            hear(&mut requester, now, &answer(&request, nack(0, 0))).unwrap();
        }
        now = requester.poll_timeout().unwrap().max(now);
    }
    assert!(requests < 30, "{requests}");
}

#[test]
fn a_refused_transfer_may_be_delayed_for_a_while() {
    let mut requester = requester(|config| config.delay = Duration::from_millis(50));
    requester.ask(ms(0)).unwrap();
    // Nothing of it is used up in this test.
    let slowly = Allowance { mode: Mode::Slow, bytes: 16 * 1024, again: None };
    assert_eq!(requester.allowance(ms(0)), slowly, "before the answer it starts");
    let request = sent(&mut requester, ms(0));
    hear(&mut requester, ms(1), &answer(&request, nack(0, 20))).unwrap();
    let delayed = Allowance { mode: Mode::Slow, bytes: 0, again: Some(ms(51)) };
    assert_eq!(requester.allowance(ms(1)), delayed);
    let again = sent(&mut requester, ms(21));
    hear(&mut requester, ms(22), &answer(&again, nack(0, 20))).unwrap();
    assert_eq!(requester.allowance(ms(22)), delayed, "it counts from the first refusal");
    assert_eq!(requester.allowance(ms(51)), slowly);
}

#[test]
fn a_receiver_without_a_gate_throttles_nobody() {
    let mut requester = requester(|_| {});
    let transfer = requester.ask(ms(0)).unwrap();
    let mut requests = 0;
    while let Some(at) = requester.poll_timeout().filter(|at| *at < ms(40)) {
        requester.handle_timeout(at);
        requests += u32::from(requester.poll_transmit(at).is_some());
    }
    assert_eq!(requests, 5);
    assert_eq!(events(&mut requester), [RequesterEvent::NoGate]);
    assert_eq!(requester.mode(ms(40)), Mode::Plain);
    assert_eq!(requester.answer(ms(40), transfer), Answer::NoGate);
    requester.end(ms(40), transfer);
    requester.ask(ms(50)).unwrap();
    assert_eq!(requester.mode(ms(50)), Mode::Plain, "it remembers");
    // It asks again once in a while, and an answer is welcome.
    let at = requester.poll_timeout().unwrap();
    assert_eq!(at, ms(31) + Duration::from_secs(1));
    let request = sent(&mut requester, at);
    hear(&mut requester, at, &answer(&request, ack(1, 100))).unwrap();
    assert!(matches!(requester.mode(at), Mode::Fast { .. }));
}

#[test]
fn a_forged_answer_changes_a_counter() {
    let mut requester = requester(|_| {});
    requester.ask(ms(0)).unwrap();
    let request = sent(&mut requester, ms(0));
    let good = answer(&request, ack(5, 100));
    let nonce = Nonce::from_number(request.nonce.number() ^ 1);
    let stranger = [2, 0, 0, 0, 0, 9];
    for (frame, refusal) in [
        (ControlFrame { nonce, ..good }, Refusal::WrongKey),
        (ControlFrame { from: stranger, ..good }, Refusal::WrongAddress),
        (ControlFrame { to: stranger, ..good }, Refusal::WrongAddress),
        (ControlFrame { serial: request.serial + 1, ..good }, Refusal::Duplicate),
        (ControlFrame { message: Message::FastReq { ticket: None }, ..good }, Refusal::Unexpected),
    ] {
        let before = requester.refusals().of(refusal);
        let state = (requester.mode(ms(1)), requester.poll_timeout());
        assert_eq!(hear(&mut requester, ms(1), &frame), Err(refusal), "{frame:?}");
        assert_eq!(requester.refusals().of(refusal), before + 1);
        assert_eq!((requester.mode(ms(1)), requester.poll_timeout()), state);
        assert_eq!((requester.poll_event(), requester.poll_transmit(ms(0))), (None, None));
    }
    hear(&mut requester, ms(1), &good).unwrap();
}

#[test]
fn invariant_7_answers_that_are_late_or_repeated_do_nothing() {
    let (mut requester, request, transfer) = fast();
    assert_eq!(
        hear(&mut requester, ms(2), &answer(&request, ack(5, 900))),
        Err(Refusal::Duplicate)
    );
    assert_eq!(hear(&mut requester, ms(2), &answer(&request, nack(0, 0))), Err(Refusal::Duplicate));
    assert_eq!(requester.mode(ms(2)), Mode::Fast { until: ms(100) });
    let refresh = sent(&mut requester, ms(50));
    let late = hear(&mut requester, ms(99), &answer(&refresh, ack(5, 49)));
    assert_eq!(late, Err(Refusal::OutOfBounds), "it was over before it came");
    requester.end(ms(99), transfer);
    sent(&mut requester, ms(99));
    assert_eq!(
        hear(&mut requester, ms(99), &answer(&request, ack(5, 900))),
        Err(Refusal::WrongKey)
    );
    assert_eq!(requester.mode(ms(99)), Mode::Plain);
}

#[test]
fn a_place_that_is_not_wanted_any_more_is_given_back() {
    let mut requester = requester(|_| {});
    let transfer = requester.ask(ms(0)).unwrap();
    let request = sent(&mut requester, ms(0));
    hear(&mut requester, ms(1), &answer(&request, nack(3, 20))).unwrap();
    requester.end(ms(2), transfer);
    let what = Ticket::from_number(77).0;
    assert_eq!(sent(&mut requester, ms(2)).message, Message::Release { what });
    assert_eq!((requester.mode(ms(2)), requester.poll_timeout()), (Mode::Plain, None));
}

#[test]
fn invariant_5_transfers_and_events_are_bounded() {
    let mut requester = requester(|config| config.transfers = 3);
    let transfers = [(); 3].map(|()| requester.ask(ms(0)).unwrap());
    assert_eq!(requester.ask(ms(0)), Err(TooMany { most: 3 }));
    assert_eq!(requester.begin(ms(0), 1), Err(TooMany { most: 3 }));
    requester.end(ms(0), transfers[1]);
    requester.begin(ms(0), 1).unwrap();
    for round in 0..1_000 {
        let now = ms(round * 200);
        requester.handle_timeout(now);
        if let Some(frame) = requester.poll_transmit(now) {
            let request = ControlFrame::parse(&frame).unwrap();
            let _ = hear(&mut requester, now, &answer(&request, ack(round + 1, 100)));
        }
    }
    assert!(requester.events.len() <= MOST_EVENTS);
}

#[test]
fn configurations_that_cannot_work_are_refused() {
    let refused = |change: fn(&mut RequesterConfig)| {
        let mut config = RequesterConfig::new(ME, GATE);
        change(&mut config);
        Requester::new(config, [0; 32]).err()
    };
    assert_eq!(refused(|config| config.address = [1; 6]), Some(ConfigError::Address));
    assert_eq!(refused(|config| config.receiver = [0; 6]), Some(ConfigError::Address));
    assert_eq!(refused(|config| config.receiver = ME), Some(ConfigError::SameAddress));
    let name = |error| match error {
        Some(ConfigError::Range(error)) => error.field,
        other => panic!("{other:?}"),
    };
    assert_eq!(name(refused(|config| config.implicit = Some(0))), "implicit");
    assert_eq!(name(refused(|config| config.slow_rate = 0)), "slow_rate", "never nothing");
    assert_eq!(name(refused(|config| config.slow_burst = 0)), "slow_burst");
    assert_eq!(name(refused(|config| config.attempts = 0)), "attempts");
    assert_eq!(name(refused(|config| config.transfers = 0)), "transfers");
    assert_eq!(name(refused(|config| config.window = Duration::ZERO)), "window");
    assert_eq!(name(refused(|config| config.linger = Duration::ZERO)), "linger");
    assert_eq!(name(refused(|config| config.delay = Duration::MAX)), "delay");
    assert_eq!(name(refused(|config| config.retry = Duration::ZERO)), "retry");
    assert_eq!(name(refused(|config| config.silent_retry = Duration::ZERO)), "silent_retry");
}
