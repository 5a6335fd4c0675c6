//! The gate by itself.

use std::vec::Vec;

use super::*;

const GATE: Mac = [2, 0, 0, 0, 0, 0xff];
const NONE: Message = Message::FastReq { ticket: None };

fn gate(change: impl FnOnce(&mut GateConfig)) -> Gate {
    let mut config = GateConfig::new(GATE);
    change(&mut config);
    Gate::new(config, [7; 32]).unwrap()
}

fn mac(n: u8) -> Mac {
    [2, 0, 0, 0, 0, n]
}

fn ms(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// A frame of sender `n` in its series `series`, to the gate; and the answer.
fn say(gate: &mut Gate, now: Instant, n: u8, series: u64, message: Message) -> Option<Message> {
    let (from, nonce) = (mac(n), Nonce::from_number(series));
    let frame = ControlFrame { to: GATE, from, priority: None, nonce, serial: 9, message };
    let _ = gate.handle_frame(now, &frame.to_bytes());
    let answers = sent(gate, now);
    let mine: Vec<_> = answers.iter().filter(|answer| answer.to == from).collect();
    assert!(mine.len() <= 1, "{answers:?}");
    mine.first().map(|answer| {
        assert_eq!((answer.from, answer.nonce, answer.serial), (GATE, nonce, 9));
        answer.message
    })
}

fn sent(gate: &mut Gate, now: Instant) -> Vec<ControlFrame> {
    core::iter::from_fn(|| gate.poll_transmit(now))
        .map(|frame| ControlFrame::parse(&frame).unwrap())
        .collect()
}

fn granted(answer: Option<Message>) -> Lease {
    match answer {
        Some(Message::FastAck { lease, .. }) => lease,
        other => panic!("not granted: {other:?}"),
    }
}

/// Asks as often as it takes to get a place, and gives the ticket and the position.
fn queue(gate: &mut Gate, now: Instant, n: u8, series: u64) -> (Ticket, u16) {
    let Some(Message::FastNAck { ticket: Some(ticket), position: None, wait: Duration::ZERO }) =
        say(gate, now, n, series, NONE)
    else {
        panic!("it must come back and show its ticket");
    };
    match say(gate, now, n, series, Message::FastReq { ticket: Some(ticket) }) {
        Some(Message::FastNAck { position: Some(position), wait, .. }) if !wait.is_zero() => {
            (ticket, position)
        }
        other => panic!("no place: {other:?}"),
    }
}

#[test]
fn one_stream_is_fast_and_the_others_wait_in_the_order_they_came() {
    let mut gate = gate(|_| {});
    let lease = granted(say(&mut gate, ms(0), 1, 1, NONE));
    let (second, _) = queue(&mut gate, ms(1), 2, 2);
    assert_eq!(queue(&mut gate, ms(1), 3, 3).1, 1);
    assert_eq!(gate.fast(ms(1)).collect::<Vec<_>>(), [(mac(1), ms(20))], "on trial");

    assert_eq!(say(&mut gate, ms(2), 1, 1, Message::Release { what: lease.0 }), None);
    assert_eq!(gate.fast(ms(2)).count(), 0);
    // The invitation went out with the release: say() shows only what is for sender 1.
    let third = Message::FastReq { ticket: None };
    let answer = say(&mut gate, ms(3), 3, 3, third);
    assert!(matches!(answer, Some(Message::FastNAck { position: Some(1), .. })), "{answer:?}");
    granted(say(&mut gate, ms(3), 2, 2, Message::FastReq { ticket: Some(second) }));
    assert_eq!(gate.fast(ms(3)).collect::<Vec<_>>(), [(mac(2), ms(103))], "it had a ticket");
    let ended = GateEvent::Ended { source: mac(1), why: Ended::Released };
    assert!(core::iter::from_fn(|| gate.poll_event()).any(|event| event == ended));
}

#[test]
fn an_invitation_repeats_the_last_request() {
    let mut gate = gate(|_| {});
    let lease = granted(say(&mut gate, ms(0), 1, 1, NONE));
    let (ticket, _) = queue(&mut gate, ms(1), 2, 2);
    let nonce = Nonce::from_number(1);
    let message = Message::Release { what: lease.0 };
    let release =
        ControlFrame { to: GATE, from: mac(1), priority: None, nonce, serial: 3, message };
    gate.handle_frame(ms(2), &release.to_bytes()).unwrap();
    let frames = sent(&mut gate, ms(2));
    let message =
        Message::FastNAck { ticket: Some(ticket), position: Some(0), wait: Duration::ZERO };
    let nonce = Nonce::from_number(2);
    let invitation =
        ControlFrame { to: mac(2), from: GATE, priority: None, nonce, serial: 9, message };
    assert_eq!(frames, [invitation]);
}

#[test]
fn who_falls_silent_is_forgotten_when_its_lease_runs_out() {
    let mut gate = gate(|_| {});
    let lease = granted(say(&mut gate, ms(0), 1, 1, NONE));
    granted(say(&mut gate, ms(10), 1, 1, Message::Refresh { lease }));
    assert_eq!(gate.poll_timeout(), Some(ms(110)));
    assert!(gate.is_fast(ms(109), mac(1)));
    assert!(!gate.is_fast(ms(110), mac(1)), "whether or not anybody looks at the timer");
    gate.handle_timeout(ms(110));
    assert_eq!(gate.poll_timeout(), None);
    granted(say(&mut gate, ms(110), 2, 2, NONE));
}

#[test]
fn a_turn_ends_only_when_others_wait() {
    let mut gate = gate(|_| {});
    let lease = granted(say(&mut gate, ms(0), 1, 1, NONE));
    let refresh = Message::Refresh { lease };
    for now in (10..2_000).step_by(10) {
        granted(say(&mut gate, ms(now), 1, 1, refresh));
    }
    queue(&mut gate, ms(2_000), 2, 2);
    let answer = say(&mut gate, ms(2_000), 1, 1, refresh);
    let refused = Message::FastNAck { ticket: None, position: None, wait: Duration::ZERO };
    assert_eq!(answer, Some(refused));
    assert!(gate.is_fast(ms(2_089), mac(1)), "what was granted last stays granted");
    assert!(!gate.is_fast(ms(2_090), mac(1)));
}

#[test]
fn a_renewal_goes_no_further_than_the_turn() {
    let mut gate = gate(|_| {});
    let lease = granted(say(&mut gate, ms(0), 1, 1, NONE));
    queue(&mut gate, ms(1), 2, 2);
    let mut now = 0;
    while let Some(Message::FastAck { time, .. }) =
        say(&mut gate, ms(now), 1, 1, Message::Refresh { lease })
    {
        assert!(ms(now) + time <= ms(500), "{now}");
        now += 10;
        queue_again(&mut gate, ms(now), 2, 2);
    }
    assert!((480..=500).contains(&now), "{now}");
}

fn queue_again(gate: &mut Gate, now: Instant, n: u8, series: u64) {
    let answer = say(gate, now, n, series, NONE);
    assert!(matches!(answer, Some(Message::FastNAck { position: Some(0), .. })), "{answer:?}");
}

#[test]
fn one_that_misses_its_turn_keeps_its_place() {
    let mut gate = gate(|config| config.waiting = 2);
    let lease = granted(say(&mut gate, ms(0), 1, 1, NONE));
    let (second, _) = queue(&mut gate, ms(1), 2, 2);
    let (third, _) = queue(&mut gate, ms(1), 3, 3);
    say(&mut gate, ms(2), 1, 1, Message::Release { what: lease.0 });
    gate.handle_timeout(ms(7)); // Sender 2 did not come; now the stream is kept for 3.
    let answer = say(&mut gate, ms(8), 2, 2, Message::FastReq { ticket: Some(second) });
    assert!(matches!(answer, Some(Message::FastNAck { position: Some(0), .. })), "{answer:?}");
    let lease = granted(say(&mut gate, ms(9), 3, 3, Message::FastReq { ticket: Some(third) }));
    say(&mut gate, ms(10), 3, 3, Message::Release { what: lease.0 });
    granted(say(&mut gate, ms(11), 2, 2, NONE));
    assert_eq!(gate.waiting(), 0);
}

#[test]
fn who_waits_and_falls_silent_loses_its_place() {
    let mut gate = gate(|_| {});
    granted(say(&mut gate, ms(0), 1, 1, NONE));
    queue(&mut gate, ms(1), 2, 2);
    gate.handle_timeout(ms(60));
    assert_eq!(gate.waiting(), 1);
    gate.handle_timeout(ms(61));
    assert_eq!(gate.waiting(), 0);
}

#[test]
fn forged_addresses_get_no_place() {
    let mut gate = gate(|_| {});
    granted(say(&mut gate, ms(0), 1, 1, NONE));
    for n in 0..100_000_u32 {
        let [_, a, b, c] = n.to_be_bytes();
        let nonce = Nonce::from_number(n.into());
        let message =
            Message::FastReq { ticket: (n % 2 == 0).then(|| Ticket::from_number(n.into())) };
        let from = [6, a, b, c, 0, 0];
        let frame = ControlFrame { to: GATE, from, priority: None, nonce, serial: 1, message };
        gate.handle_frame(ms(1), &frame.to_bytes()).unwrap();
        if n % 3 == 0 {
            assert_eq!(sent(&mut gate, ms(1)).last().map(|answer| answer.to), Some(from));
        }
    }
    assert_eq!(gate.waiting(), 0);
    assert_eq!(queue(&mut gate, ms(2), 2, 2).1, 0, "who is real has no one before it");
}

#[test]
fn a_trial_lasts_no_longer_for_being_asked_for_again() {
    let mut gate = gate(|_| {});
    granted(say(&mut gate, ms(0), 1, 1, NONE));
    for now in 1..20 {
        let answer = say(&mut gate, ms(now), 1, 1, NONE);
        let left = Duration::from_millis(20 - now);
        assert!(
            matches!(answer, Some(Message::FastAck { time, .. }) if time == left),
            "{answer:?}"
        );
    }
    assert!(!gate.is_fast(ms(20), mac(1)));
}

#[test]
fn a_full_queue_refuses_and_grows_no_further() {
    let mut gate = gate(|config| config.waiting = 3);
    granted(say(&mut gate, ms(0), 1, 1, NONE));
    for n in 2..=4 {
        queue(&mut gate, ms(1), n, n.into());
    }
    let Some(Message::FastNAck { ticket, .. }) = say(&mut gate, ms(1), 9, 9, NONE) else {
        panic!()
    };
    let answer = say(&mut gate, ms(1), 9, 9, Message::FastReq { ticket });
    let wait = Duration::from_millis(20);
    assert_eq!(answer, Some(Message::FastNAck { ticket, position: None, wait }));
    assert_eq!(gate.waiting(), 3);
}

#[test]
fn a_request_of_another_series_ends_no_lease() {
    let mut gate = gate(|_| {});
    let lease = granted(say(&mut gate, ms(0), 1, 1, NONE));
    for series in 2..50 {
        let answer = say(&mut gate, ms(1), 1, series, NONE);
        let wait = Duration::from_millis(19);
        assert_eq!(answer, Some(Message::FastNAck { ticket: None, position: None, wait }));
    }
    granted(say(&mut gate, ms(2), 1, 1, Message::Refresh { lease }));
    let wrong = Lease::from_number(lease.number() ^ 1);
    for message in [Message::Release { what: wrong.0 }, Message::Refresh { lease: wrong }] {
        say(&mut gate, ms(3), 1, 1, message);
    }
    assert_eq!(gate.refusals().of(Refusal::UnknownId), 2);
    assert!(gate.is_fast(ms(3), mac(1)));
}

#[test]
fn a_gate_that_was_started_again_waits_until_old_leases_have_run_out() {
    let mut gate = gate(|_| {}).closed_until(ms(100));
    let (ticket, _) = queue(&mut gate, ms(50), 2, 2);
    assert_eq!(gate.poll_timeout(), Some(ms(100)));
    say(&mut gate, ms(99), 2, 2, Message::FastReq { ticket: Some(ticket) });
    assert_eq!(gate.fast(ms(99)).count(), 0);
    gate.handle_timeout(ms(100));
    assert_eq!(sent(&mut gate, ms(100)).len(), 1, "the invitation");
    granted(say(&mut gate, ms(100), 2, 2, Message::FastReq { ticket: Some(ticket) }));
}

#[test]
fn as_many_streams_as_configured() {
    let mut gate = gate(|config| config.streams = 3);
    for n in 1..=3 {
        granted(say(&mut gate, ms(0), n, n.into(), NONE));
    }
    queue(&mut gate, ms(0), 4, 4);
    assert_eq!(gate.fast(ms(0)).count(), 3);
}

#[test]
fn what_is_for_others_changes_a_counter() {
    let mut gate = gate(|_| {});
    let nonce = Nonce::from_number(1);
    let frame =
        |to, from, message| ControlFrame { to, from, priority: None, nonce, serial: 1, message };
    let ack = Message::FastAck { lease: Lease::from_number(1), time: Duration::from_secs(1) };
    let wait = Duration::ZERO;
    let nack = Message::FastNAck { ticket: None, position: None, wait };
    for (frame, refusal) in [
        (frame(mac(8), mac(1), NONE), Refusal::WrongAddress),
        (frame(GATE, GATE, NONE), Refusal::WrongAddress),
        (frame(GATE, mac(1), ack), Refusal::Unexpected),
        (frame(GATE, mac(1), nack), Refusal::Unexpected),
    ] {
        let before = gate.refusals().of(refusal);
        assert_eq!(gate.handle_frame(ms(0), &frame.to_bytes()), Err(refusal));
        assert_eq!(gate.refusals().of(refusal), before + 1);
        assert_eq!((gate.poll_transmit(ms(0)), gate.poll_event()), (None, None));
    }
}

#[test]
fn nobody_who_drains_nothing_makes_it_grow() {
    let mut gate = gate(|_| {});
    let from = mac(1);
    for serial in 0..10_000 {
        let nonce = Nonce::from_number(1);
        let frame = ControlFrame { to: GATE, from, priority: None, nonce, serial, message: NONE };
        gate.handle_frame(ms(u64::from(serial) * 200), &frame.to_bytes()).unwrap();
    }
    assert!(gate.frames.len() <= MOST_FRAMES && gate.events.len() <= MOST_EVENTS);
    let overflows = gate.overflows();
    assert_eq!(overflows.frames + MOST_FRAMES as u64, 10_000, "each has one answer");
    // A lease is granted and runs out, but for the last one.
    assert_eq!(overflows.events + MOST_EVENTS as u64, 2 * 10_000 - 1);
}

#[test]
fn configurations_that_cannot_work_are_refused() {
    let refused = |change: fn(&mut GateConfig)| {
        let mut config = GateConfig::new(GATE);
        change(&mut config);
        Gate::new(config, [0; 32]).err()
    };
    assert_eq!(refused(|config| config.address = [0xff; 6]), Some(ConfigError::Address));
    let name = |error| match error {
        Some(ConfigError::Range(error)) => error.field,
        other => panic!("{other:?}"),
    };
    assert_eq!(name(refused(|config| config.streams = 0)), "streams");
    assert_eq!(name(refused(|config| config.waiting = 5_000)), "waiting");
    assert_eq!(name(refused(|config| config.trial = Duration::ZERO)), "trial");
    assert_eq!(name(refused(|config| config.lease = config.trial / 2)), "lease");
    assert_eq!(name(refused(|config| config.turn = config.lease / 2)), "turn");
    assert_eq!(name(refused(|config| config.ask_again = Duration::MAX)), "ask_again");
    assert_eq!(name(refused(|config| config.reserve = Duration::ZERO)), "reserve");
}
