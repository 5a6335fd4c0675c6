//! The eight invariants of the architecture, each held by tests that name it,
//! and the engine beside a naive model of it: over random bytes, and over the corpora of the
//! fuzz targets, so that what was found stays found.

use landfall_placement::{
    Engine, Instant, Landing, PathLimits, PathState, Placement, Random, Ticket,
};
use landfall_testkit::corpus::replay;
use landfall_testkit::model::Faults;
use landfall_testkit::trials::{self, input, rounds, sequences, try_inputs};
use proptest::prelude::*;
use qpip::model::{disagreements, run, withstand, withstand_strangers};
use qpip::{Config, Error, Mapping, PostError, Service, Status};

use crate::two;
use crate::two::{Two, Wire, ack, flags, forge, noise, payload_at, place, plain, seq, ticket};

const MAPPINGS: [Mapping; 3] = [Mapping::Segment, Mapping::Message, Mapping::Stream];

fn cases(few: u32) -> ProptestConfig {
    ProptestConfig::with_cases(trials::cases(few))
}

/// Whatever users, drivers and the wire do: the adapters and the naive model of
/// them agree, and all that was begun ends.
#[test]
fn model_agrees() {
    try_inputs(0..sequences(300), 4..904, disagreements);
}

proptest! {
    #![proptest_config(cases(40))]

    /// The same, with sequences that shrink.
    #[test]
    fn model_agrees_with_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..900)) {
        prop_assert_eq!(disagreements(&bytes), Vec::<String>::new());
    }

    /// Each segment with a twin that carries other bytes, in front of it with a
    /// checksum that is wrong, behind it with one that is right; and all of them
    /// again when the message is there.
    #[test]
    fn invariant_1_delivered_bytes_are_final(len in 1usize..9_000, which in 0usize..3, seed: u64) {
        let mut two = Two::new(&plain(), MAPPINGS[which], Faults::default(), seed);
        let bytes = noise(len as u64, len);
        let (id, area) = two.receive(1, len);
        two.settle();
        two.send(0, &bytes);
        let mut came: Vec<Vec<u8>> = Vec::new();
        for _ in 0..100 {
            for frame in two.said(0) {
                let twin = |seals: bool| {
                    let from = if frame[20] & 0x3f == 0 && frame[21] == 0 { payload_at(&frame) } else { frame.len() };
                    let change = |twin: &mut Vec<u8>| twin[from..].iter_mut().for_each(|b| *b ^= 0xff);
                    let mut twin = forge(&frame, change);
                    // One bit away from a right sum no sum is right.
                    if !seals && from < twin.len() {
                        *twin.last_mut().expect("a frame has bytes") ^= 1;
                    }
                    twin
                };
                // Each in a turn of its own: in one turn the first takes the place.
                for frame in [twin(false), frame.clone(), twin(true)] {
                    two.hand_in(1, &[frame]);
                }
                came.push(frame);
            }
            if two.is_done(1, id) {
                break;
            }
            let said = two.said(1);
            two.hand_in(0, &said);
            if said.is_empty() {
                two.wire.pass_time();
            }
        }
        prop_assert!(two.is_done(1, id));
        prop_assert_eq!(two.bytes(1, area), &bytes[..]);
        two.hand_in(1, &came);
        prop_assert_eq!(two.bytes(1, area), &bytes[..]);
        prop_assert_eq!(two.done[1].iter().filter(|done| done.id == id && done.ends_request).count(), 1);
        two.check_contract();
    }
}

#[test]
fn invariant_2_in_place_before_announced() {
    for mapping in [Mapping::Message, Mapping::Stream] {
        let mut two = Two::new(&plain(), mapping, Faults::default(), 1);
        let (id, _) = two.receive(1, 4_000);
        two.settle();
        let sent = two.send(0, &noise(1, 4_000));
        let frames = two.said(0);
        assert!(frames.len() >= 3, "{}", frames.len());
        let now = two.wire.now;
        let before = {
            two.said(1);
            seq(&frames[0])
        };
        let engine = &mut two.wire.sides[1].engine;
        let tickets: Vec<Ticket> =
            frames.iter().map(|frame| ticket(place(engine, now, frame).unwrap())).collect();
        // The places are known, and nothing is there yet.
        two.wire.pass_time();
        let is_silent = |said: &[Vec<u8>]| said.iter().all(|frame| ack(frame) == before);
        let said = two.said(1);
        assert!(is_silent(&said), "{mapping:?} acknowledges what is not in place");
        two.hear();
        assert!(two.done[1].is_empty() && two.done[0].is_empty());
        // What failed to land is not acknowledged, and neither is what is behind it.
        let now = two.wire.now;
        for (nth, ticket) in tickets.into_iter().enumerate() {
            let landing = if nth == 0 { Landing::Failed } else { Landing::Verified };
            two.wire.sides[1].engine.handle_placed(now, ticket, landing);
        }
        let said = two.said(1);
        assert!(!said.is_empty() && is_silent(&said), "{mapping:?} acknowledges beyond a hole");
        two.hand_in(0, &said);
        assert!(!two.is_done(0, sent) && !two.is_done(1, id));
        two.until("it is sent again", |two| two.is_done(0, sent) && two.is_done(1, id));
        two.check_contract();
    }
}

#[test]
fn invariant_2_a_send_completes_when_no_driver_holds_its_memory() {
    let mut two = Two::new(&plain(), Mapping::Message, Faults::default(), 1);
    let (id, _) = two.receive(1, 500);
    two.settle();
    let bytes = noise(2, 500);
    let sent = two.send(0, &bytes);
    let (mut head, mut from) = ([0; 256], landfall_placement::Spans::new());
    let now = two.wire.now;
    let engine = &mut two.wire.sides[0].engine;
    let held = engine.poll_transmit(now, Wire::PATH, &mut head, &mut from).unwrap();
    // The frame arrives and is acknowledged, and the driver still has its memory:
    // a card that tells late.
    let mut frame = head[..usize::from(held.head_len)].to_vec();
    frame.extend_from_slice(&bytes);
    two.hand_in(1, &[forge(&frame, |_| {})]);
    assert!(two.is_done(1, id));
    two.pass(1);
    assert!(!two.is_done(0, sent), "its memory is still read");
    two.wire.sides[0].engine.handle_sent(now, held.ticket);
    two.hear();
    assert!(two.is_done(0, sent));
}

#[test]
fn invariant_3_a_bad_segment_changes_a_counter_and_nothing_else() {
    let mut two = Two::new(&plain(), Mapping::Message, Faults::default(), 1);
    let (id, area) = two.receive(1, 1_000);
    two.settle();
    let bytes = noise(3, 1_000);
    two.send(0, &bytes);
    let frame = two.said(0).remove(0);
    let flip = |at: usize| {
        let mut bad = frame.clone();
        bad[at] ^= 1;
        bad
    };
    // Every byte that a check covers: all but the addresses of the stations, the
    // length of the head, and what of IP nobody reads.
    for at in (14..frame.len()).filter(|at| at % 7 == 0 || *at < 60) {
        let before = two.refusals(1);
        two.hand_in(1, &[flip(at)]);
        assert_eq!(two.refusals(1), before + 1, "byte {at} changed and nobody noticed");
        assert_eq!(two.received(1), 0);
        assert!(two.bytes(1, area).iter().all(|byte| *byte == 0), "byte {at}: something is there");
    }
    two.hand_in(1, &[frame]);
    assert!(two.is_done(1, id));
    assert_eq!(two.bytes(1, area), bytes);
    two.check_contract();
}

proptest! {
    #![proptest_config(cases(20))]

    /// Guesses that are wrong for every second frame, super-segments that are cut
    /// or not, losses: all of it costs copies and time only.
    #[test]
    fn invariant_4_misses_lose_nothing(which in 0usize..3, seed: u64) {
        let faults = Faults {
            loss: 20_000,
            duplication: 20_000,
            reordering: 300_000,
            corruption: 10_000,
            cutting: 500_000,
            failing: 10_000,
        };
        let mut two = Two::new(&Config::default(), MAPPINGS[which], faults, seed);
        let messages: Vec<Vec<u8>> = (0..12).map(|n| noise(seed ^ n, 1 + (n as usize) * 700)).collect();
        let places: Vec<_> = (0..12).map(|_| two.receive(1, 9_000)).collect();
        let sent: Vec<u64> = messages.iter().map(|bytes| two.send(0, bytes)).collect();
        two.until("all is sent", |two| sent.iter().all(|id| two.is_done(0, *id)));
        two.hear();
        let got: Vec<u8> = places.iter().flat_map(|(id, area)| {
            let parts = two.done[1].iter().filter(|done| done.id == *id);
            let len: u32 = parts.map(|done| done.len).sum();
            two.bytes(1, *area)[..len as usize].to_vec()
        }).collect();
        let all = messages.concat();
        // What a stream has not pushed yet is reported in its time.
        prop_assert_eq!(&got[..], &all[..got.len()]);
        prop_assert!(MAPPINGS[which] == Mapping::Stream || got.len() == all.len());
    }
}

/// The first request of this run arrives with a damaged station in front of it, which
/// no checksum covers: its repetitions say where the answer goes.
#[test]
fn a_request_that_comes_again_says_where_its_answer_goes() {
    let faults = Faults {
        loss: 20_000,
        duplication: 20_000,
        reordering: 300_000,
        corruption: 10_000,
        cutting: 500_000,
        failing: 10_000,
    };
    let two = Two::new(&Config::default(), MAPPINGS[0], faults, 14_168_625_165_372_619_151);
    two.check_contract();
}

#[test]
fn invariant_5_at_each_bound_there_is_an_error() {
    let config =
        Config { queue_pairs: 3, domains: 2, completion_queues: 2, listeners: 2, ..plain() };
    let mut two = Two::new(&config, Mapping::Message, Faults::default(), 1);
    let full =
        |result: Result<(), Error>| assert!(matches!(result, Err(Error::Full(_))), "{result:?}");
    let (domain, queue) = (two.domains[0], two.queues[0]);
    let setup = qpip::QueuePairSetup {
        domain,
        send_completions: queue,
        receive_completions: queue,
        service: Service::Udp,
        send_depth: 4,
        receive_depth: 4,
        shared_receives: None,
    };
    let adapter = two.adapter(0);
    adapter.create_domain().unwrap();
    full(adapter.create_domain().map(drop));
    adapter.create_completion_queue(1).unwrap();
    full(adapter.create_completion_queue(1).map(drop));
    adapter.listen(two::address(0, 80)).unwrap();
    full(adapter.listen(two::address(0, 81)).map(drop));
    adapter.create_queue_pair(&setup).unwrap();
    adapter.create_queue_pair(&setup).unwrap();
    full(adapter.create_queue_pair(&setup).map(drop));
    // A queue of requests, and what waits to be sent when nobody listens.
    two.settle();
    for _ in 0..64 {
        two.send(0, &[1; 10]);
    }
    let (_, buffer) = two.lend(0, vec![1; 10]);
    let (now, pair) = (two.wire.now, two.pairs[0]);
    let work =
        qpip::SendWork { id: 9, from: &[buffer], to: None, is_signaled: true, immediate: None };
    assert_eq!(two.adapter(0).post_send(now, pair, &work), Err(PostError::QueueFull));
    two.check_contract();
}

#[test]
fn invariant_6_two_runs_give_the_same_bytes() {
    for seed in 0..40 {
        let bytes = input(seed, 4..904);
        assert_eq!(run(&bytes), run(&bytes), "sequence {seed}");
    }
}

#[test]
fn invariant_7_stale_tickets_do_nothing() {
    let mut two = Two::new(&plain(), Mapping::Message, Faults::default(), 1);
    let (first, _) = two.receive(1, 300);
    let (second, area) = two.receive(1, 300);
    two.settle();
    two.send(0, &noise(1, 300));
    let frame = two.said(0).remove(0);
    let now = two.wire.now;
    let old = ticket(place(&mut two.wire.sides[1].engine, now, &frame).unwrap());
    two.wire.sides[1].engine.handle_placed(now, old, Landing::Corrupt);
    two.hand_in(1, &[frame]);
    assert!(two.is_done(1, first));
    two.send(0, &noise(2, 300));
    let frame = two.said(0).remove(0);
    let new = ticket(place(&mut two.wire.sides[1].engine, now, &frame).unwrap());
    // The slot is used again: the old ticket must not stand for the new one.
    for stale in [old, Ticket::new(new.index(), new.generation() + 1), Ticket::from_raw(u64::MAX)] {
        assert_ne!(stale, new);
        two.adapter(1).handle_placed(now, stale, Landing::Verified);
        two.adapter(1).handle_sent(now, stale);
        two.hear();
        assert!(!two.is_done(1, second), "{stale:?} counted");
    }
    two.wire.sides[1].engine.handle_placed(now, new, Landing::Failed);
    two.hand_in(1, &[frame]);
    assert!(two.is_done(1, second));
    assert_eq!(two.bytes(1, area), noise(2, 300));
    two.adapter(1).handle_placed(now, new, Landing::Failed);
    two.until("the rest", |two| two.done[0].len() == 2);
}

#[test]
fn invariant_7_a_connection_that_is_over_hears_nothing() {
    let mut two = Two::new(&plain(), Mapping::Message, Faults::default(), 1);
    let (id, area) = two.receive(1, 300);
    two.settle();
    two.send(0, &noise(1, 300));
    let frames = two.said(0);
    let (now, pair) = (two.wire.now, two.pairs[1]);
    two.adapter(1).destroy_queue_pair(now, pair).unwrap();
    two.hear();
    assert_eq!(two.done[1].last().map(|done| (done.id, done.status)), Some((id, Status::Flushed)));
    two.hand_in(1, &frames);
    assert!(two.bytes(1, area).iter().all(|byte| *byte == 0), "memory that was given back");
    let said = two.said(1);
    assert!(said.iter().all(|frame| flags(frame) & two::RST != 0), "it is reset");
    let id = two.wire.sides[1].engine.engine.local_address(pair);
    assert_eq!(id, None);
}

/// Any landing for whatever was placed, and whatever else a driver may do.
fn treat_somehow(two: &mut Two, side: usize, frame: &[u8], random: &mut Random) {
    let now = Instant::from_nanos(random.next_u64() >> random.below(60));
    let engine = &mut two.wire.sides[side].engine.engine;
    if let Ok(Placement::Into { ticket, .. }) = place(engine, now, frame) {
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
    let (mut head, mut spans) = ([0; 256], landfall_placement::Spans::new());
    while engine.poll_event().is_some() {}
    if let Some(deposit) = engine.poll_deposit(now, &mut spans) {
        let ticket = deposit.ticket;
        engine.handle_placed(now, ticket, Landing::Verified);
    }
    for _ in 0..4 {
        spans.clear();
        engine.handle_timeout(Instant::from_nanos(random.next_u64() >> random.below(60)));
        engine.guess(Wire::PATH, random.below(5) as usize);
        let room = [256, 66, 54, 42, 0][random.below(5) as usize];
        if let Some(sent) = engine.poll_transmit(now, Wire::PATH, &mut head[..room], &mut spans) {
            engine.handle_sent(now, sent.ticket);
        }
    }
    if random.below(30) == 0 {
        let limits = PathLimits::plain(random.below(3_000) as u32);
        let states =
            [PathState::Down, PathState::Up(limits), PathState::Up(PathLimits::plain(1_514))];
        engine.handle_path(now, Wire::PATH, states[random.below(3) as usize]);
    }
}

proptest! {
    #![proptest_config(cases(60))]

    /// Real frames with any bytes written over any part, cut anywhere, with their
    /// checksums right; any time, any landing, any path.
    #[test]
    fn invariant_8_no_panic_on_input(
        changes in prop::collection::vec(
            (any::<prop::sample::Index>(), any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 1..9)),
            60,
        ),
        junk in prop::collection::vec(any::<u8>(), 0..200),
        which in 0usize..3,
        seed: u64,
    ) {
        let mut random = Random::from_number(seed);
        let mut two = Two::new(&Config::default(), MAPPINGS[which], Faults::default(), seed);
        for side in [0, 1] {
            two.receive(side, 700);
            two.receive(side, 3_000);
        }
        two.settle();
        for side in [0, 1] {
            two.send(side, &noise(seed, 600));
            two.send(side, &noise(seed, 2_500));
            let (now, pair) = (two.wire.now, two.pairs[side]);
            two.adapter(side).shutdown(now, pair).unwrap();
        }
        let said = [two.said(0), two.said(1)];
        for (which, at, bytes) in &changes {
            let side = usize::from(bytes[0] & 1);
            let mut frame = which.get(&said[1 - side]).clone();
            let at = at.index(frame.len());
            let len = bytes.len().min(frame.len() - at);
            frame[at..at + len].copy_from_slice(&bytes[..len]);
            if bytes[0] % 8 == 6 {
                frame.truncate(at);
            } else if bytes[0] % 8 < 6 {
                qpip::model::seal(&mut frame);
            }
            treat_somehow(&mut two, side, &frame, &mut random);
        }
        treat_somehow(&mut two, 0, &junk, &mut random);
        prop_assert_eq!(withstand(&junk), Vec::<String>::new());
    }
}

#[test]
fn the_corpus_of_pairs_breaks_no_rule() {
    replay("qpip_pair", 10, disagreements);
}

#[test]
fn the_corpus_of_attacks_breaks_no_rule() {
    replay("qpip_packets", 10, withstand);
}

#[test]
fn random_attacks_break_no_rule() {
    try_inputs(0..rounds(200, 20_000), 0..1_500, withstand);
}

#[test]
fn the_corpus_of_strangers_breaks_no_rule() {
    replay("qpip_link", 10, withstand_strangers);
}

#[test]
fn random_strangers_break_no_rule() {
    try_inputs(0..rounds(300, 30_000), 0..1_500, withstand_strangers);
}
