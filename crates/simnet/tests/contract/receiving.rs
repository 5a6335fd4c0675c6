//! Guess, place, write, report.

use landfall_placement::{
    Check, Ecn, Guess, Instant, Landing, PathLimits, PathState, Placement, Refusal, RegionId, Span,
    Ticket, WordFunction, WordOp, WordWidth, checksum,
};
use landfall_simnet::engine_node::Counters;
use landfall_simnet::{
    EcnThreshold, EngineConfig, EngineNode, Error, Frame, LinkConfig, PortId, Red, Sim, TailDrop,
};
use proptest::prelude::*;

use super::{Answer, Handle, Host, ScriptedEngine, stage};

const REGION: RegionId = RegionId::new(0, 0);

fn ticket(n: u32) -> Ticket {
    Ticket::new(n, 7)
}

fn into(n: u32, at: u16, spans: &[Span]) -> Answer {
    checked(n, at, spans, Check::None)
}

fn checked(n: u32, at: u16, spans: &[Span], check: Check) -> Answer {
    (Ok(Placement::Into { at, check, ticket: ticket(n) }), spans.to_vec())
}

/// Gives frames to a puppet that answers so; the run must end without error.
fn receive(
    puppet: ScriptedEngine,
    how: EngineConfig,
    frames: &[&[u8]],
) -> (Sim, Handle<Host>, Result<(), Error>) {
    let (mut sim, host, inbox, _) = stage(puppet, how, LinkConfig::new());
    for bytes in frames {
        sim.send(inbox, PortId(0), Frame::raw(*bytes)).unwrap();
    }
    let result = sim.run_until(Instant::FAR_FUTURE).map(|_| ());
    (sim, host, result)
}

fn host(sim: &Sim, host: Handle<Host>) -> (&ScriptedEngine, Counters, &[u8]) {
    let node = sim.node(host).unwrap();
    (node.engine(), *node.counters(), node.memory().bytes(REGION).unwrap())
}

fn guess(head_len: u16, payload_len: u32, span: Span) -> Option<Guess> {
    Some(Guess { span, head_len, payload_len })
}

#[test]
fn a_right_guess_is_not_copied_and_a_wrong_one_is() {
    let puppet = ScriptedEngine {
        guess: guess(4, 8, REGION.span(100, 24)),
        answers: [
            into(1, 4, &[REGION.span(100, 8)]),
            into(2, 4, &[REGION.span(500, 4), REGION.span(600, 4)]),
            into(3, 4, &[REGION.span(116, 5)]),
        ]
        .into(),
        ..ScriptedEngine::default()
    };
    let frames: [&[u8]; 3] = [b"headpayload1", b"headpayload2", b"headlast3"];
    let (sim, handle, result) = receive(puppet, EngineConfig::guessing(3), &frames);
    assert_eq!(result, Ok(()));
    let (engine, counters, memory) = host(&sim, handle);
    assert_eq!(engine.heads, [(4, Ecn::NotCapable); 3], "only the head is at hand");
    assert_eq!(engine.landings, [1, 2, 3].map(|n| (ticket(n), Landing::Unchecked)));
    assert_eq!(&memory[100..124], b"payload1payload2last3yz{", "junk where it was guessed");
    assert_eq!((&memory[500..504], &memory[600..604]), (&b"payl"[..], &b"oad2"[..]));
    assert_eq!((counters.guessed_right, counters.guessed_wrong), (2, 1));
    assert_eq!(counters.copied_bytes, 8);
}

#[test]
fn payloads_that_landed_in_each_others_places_are_exchanged() {
    let puppet = ScriptedEngine {
        guess: guess(4, 8, REGION.span(0, 16)),
        answers: [into(1, 4, &[REGION.span(8, 8)]), into(2, 4, &[REGION.span(0, 8)])].into(),
        ..ScriptedEngine::default()
    };
    let frames: [&[u8]; 2] = [b"headpayload1", b"headpayload0"];
    let (sim, handle, result) = receive(puppet, EngineConfig::guessing(2), &frames);
    assert_eq!(result, Ok(()));
    assert_eq!(&host(&sim, handle).2[..16], b"payload0payload1");
}

#[test]
fn a_longer_head_is_shown_when_asked_for() {
    let puppet = ScriptedEngine {
        guess: guess(2, 4, REGION.span(0, 4)),
        answers: [
            (Ok(Placement::NeedHead(5)), vec![REGION.span(0, 1)]),
            (Ok(Placement::NeedHead(9)), vec![]),
            into(1, 9, &[REGION.span(50, 3)]),
            (Ok(Placement::NeedHead(13)), vec![]),
            (Ok(Placement::NeedHead(2)), vec![]),
        ]
        .into(),
        ..ScriptedEngine::default()
    };
    let frame: &[u8] = b"head too short";
    let (sim, handle, result) = receive(puppet, EngineConfig::guessing(1), &[&frame[..12]; 3]);
    assert_eq!(result, Ok(()));
    let (engine, _, memory) = host(&sim, handle);
    let heads: Vec<_> = engine.heads.iter().map(|(len, _)| *len).collect();
    assert_eq!(heads, [2, 5, 9, 2, 2]);
    assert_eq!(engine.landings.len(), 1);
    assert_eq!(&memory[50..53], &frame[9..12]);
    let refusals = sim.node(handle).unwrap().refusals();
    assert_eq!(refusals.of(Refusal::Truncated), 2, "longer than the unit; not longer at all");
}

#[test]
fn invariant_3_a_corrupt_payload_is_not_written_to_its_place() {
    let frame = b"head checked payload";
    let check = |seed, len| Check::InternetSum { from: 5, len, seed };
    let right = !checksum::sum_of(&frame[5..]);
    let spans = [REGION.span(40, 7)];
    let puppet = ScriptedEngine {
        answers: [
            checked(1, 13, &spans, check(right ^ 1, 15)),
            checked(2, 13, &[REGION.span(50, 7)], check(right, 15)),
            checked(3, 13, &spans, check(right, 16)),
            checked(4, 13, &spans, check(right, u32::MAX)),
        ]
        .into(),
        ..ScriptedEngine::default()
    };
    let (sim, handle, _) = receive(puppet, EngineConfig::default(), &[&frame[..]; 4]);
    let (engine, counters, memory) = host(&sim, handle);
    let landings: Vec<_> = engine.landings.iter().map(|(_, landing)| *landing).collect();
    use Landing::{Corrupt, Verified};
    assert_eq!(landings, [Corrupt, Verified, Corrupt, Corrupt]);
    assert_eq!((memory[40], &memory[50..57]), (40, &b"payload"[..]));
    assert_eq!(counters.corrupt, 3);
}

#[test]
fn memory_that_is_not_there_is_not_written() {
    let puppet = ScriptedEngine {
        guess: guess(0, 8, RegionId::new(0, 1).span(0, 8)),
        answers: [
            into(1, 0, &[REGION.span(0, 4), RegionId::new(0, 1).span(0, 4)]),
            into(2, 0, &[REGION.span(996, 5)]),
            into(3, 9, &[REGION.span(0, 1)]),
            into(4, 1, &[REGION.span(0, 8)]),
            into(5, 8, &[]),
        ]
        .into(),
        ..ScriptedEngine::default()
    };
    let (sim, handle, result) = receive(puppet, EngineConfig::guessing(1), &[&b"payloads"[..]; 5]);
    assert_eq!(result, Ok(()));
    let (engine, counters, memory) = host(&sim, handle);
    let landings: Vec<_> = engine.landings.iter().map(|(_, landing)| *landing).collect();
    use Landing::{Failed, Unchecked};
    assert_eq!(landings, [Failed, Failed, Failed, Failed, Unchecked]);
    assert!(memory.iter().enumerate().all(|(n, byte)| *byte == n as u8), "something was written");
    assert_eq!(counters.failed, 4);
}

#[test]
fn words_are_changed_in_their_order() {
    let op = |offset, function| {
        let op = WordOp { region: REGION, offset, width: WordWidth::Four, function };
        (Ok(Placement::Word(op, ticket(1))), vec![])
    };
    let answers = [
        op(8, WordFunction::Store(5)),
        op(8, WordFunction::Add(2)),
        op(9, WordFunction::Add(2)),
        op(8, WordFunction::Load),
    ];
    let puppet = ScriptedEngine { answers: answers.into(), ..ScriptedEngine::default() };
    let how = EngineConfig { batch: 4, ..EngineConfig::default() };
    let (sim, handle, _) = receive(puppet, how, &[&b"word"[..]; 4]);
    let landings: Vec<_> = host(&sim, handle).0.landings[1..].iter().map(|l| l.1).collect();
    assert_eq!(landings, [Landing::Old(5), Landing::Failed, Landing::Old(7)]);
}

#[test]
fn placements_under_way_that_overlap_end_the_run() {
    let answers = [into(1, 0, &[REGION.span(10, 8)]), into(2, 0, &[REGION.span(17, 8)])];
    let both = |batch| {
        let puppet =
            ScriptedEngine { answers: answers.clone().into(), ..ScriptedEngine::default() };
        let how = EngineConfig { batch, ..EngineConfig::default() };
        receive(puppet, how, &[&b"payload "[..]; 2]).2
    };
    assert_eq!(both(1), Ok(()), "one after the other is no overlap");
    match both(2) {
        Err(Error::Broken { what, .. }) => assert!(what.contains("overlap"), "{what}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn fewer_frames_than_a_batch_wait_no_longer_than_they_may() {
    let how = EngineConfig { batch: 100, ..EngineConfig::default() };
    let (sim, handle, _) = receive(ScriptedEngine::default(), how, &[b"a", b"b"]);
    assert_eq!(host(&sim, handle).0.heads.len(), 2);
    assert_eq!(sim.now(), Instant::ZERO + how.hold);
}

#[test]
fn an_engine_is_told_of_its_links() {
    let (mut sim, handle, _, link) =
        stage(ScriptedEngine::default(), EngineConfig::default(), LinkConfig::new().mtu(9_000));
    sim.schedule_link(Instant::from_millis(1), link, false).unwrap();
    sim.schedule_link(Instant::from_millis(2), link, true).unwrap();
    sim.run_until(Instant::from_millis(3)).unwrap();
    sim.configure(link.there(), LinkConfig::new().mtu(1_500)).unwrap();
    let units: Vec<_> = host(&sim, handle)
        .0
        .paths
        .iter()
        .map(|(_, state)| match state {
            PathState::Up(PathLimits { unit, .. }) => *unit,
            PathState::Down => 0,
        })
        .collect();
    assert_eq!(units, [9_000, 0, 9_000, 1_500]);
}

#[test]
fn congestion_reaches_the_engine() {
    let (mut sim, handle, inbox, _) =
        stage(ScriptedEngine::default(), EngineConfig::default(), LinkConfig::new());
    let frame = Frame { ecn: Ecn::CongestionExperienced, ..Frame::raw([1]) };
    sim.send(inbox, PortId(0), frame).unwrap();
    sim.run_until(Instant::FAR_FUTURE).unwrap();
    assert_eq!(host(&sim, handle).0.heads, [(1, Ecn::CongestionExperienced)]);
}

#[test]
fn invariant_5_events_that_have_no_room_stay_in_the_engine() {
    let puppet = ScriptedEngine { events: (0..10).collect(), ..ScriptedEngine::default() };
    let how = EngineConfig { events: 3, ..EngineConfig::default() };
    let (mut sim, handle, _) = receive(puppet, how, &[b"wake up"]);
    assert_eq!(host(&sim, handle).0.events.len(), 7);
    let mut seen = Vec::new();
    while let Some(event) = sim.node_mut(handle).unwrap().poll_event() {
        seen.push(event);
        sim.run_until(Instant::FAR_FUTURE).unwrap();
    }
    assert!(seen.into_iter().eq(0..10));
}

fn any_span() -> impl Strategy<Value = Span> {
    (0u32..2, 0u32..2, prop_oneof![0u64..1_100, any::<u64>()], 0u32..200)
        .prop_map(|(index, generation, at, len)| RegionId::new(index, generation).span(at, len))
}

fn any_answer() -> impl Strategy<Value = Answer> {
    let check = prop_oneof![
        Just(Check::None),
        (any::<u16>(), any::<u32>(), any::<u16>())
            .prop_map(|(from, len, seed)| Check::InternetSum { from, len, seed }),
    ];
    let placement = prop_oneof![
        (0u16..200, check, any::<u32>()).prop_map(|(at, check, n)| Placement::Into {
            at,
            check,
            ticket: ticket(n)
        }),
        (0u16..200).prop_map(Placement::NeedHead),
        any::<u64>().prop_map(|offset| {
            let (width, function) = (WordWidth::Eight, WordFunction::Add(offset));
            let offset = offset >> (offset % 64);
            Placement::Word(WordOp { region: REGION, offset, width, function }, ticket(0))
        }),
        Just(Placement::Consumed),
    ];
    (placement.prop_map(Ok), prop::collection::vec(any_span(), 0..4))
}

proptest! {
    #[test]
    fn invariant_8_no_answer_of_an_engine_makes_the_node_panic(
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..150), 1..20),
        answers in prop::collection::vec(any_answer(), 0..40),
        guess in prop::option::of((any_span(), 0u16..200, any::<u32>())),
        batch in 0usize..8,
    ) {
        let guess = guess.map(|(span, head_len, payload_len)| Guess { span, head_len, payload_len });
        let puppet = ScriptedEngine { guess, answers: answers.into(), ..ScriptedEngine::default() };
        let frames: Vec<_> = frames.iter().map(Vec::as_slice).collect();
        let (sim, handle, result) = receive(puppet, EngineConfig::guessing(batch), &frames);
        let (engine, counters, _) = host(&sim, handle);
        // Every ticket comes back once and in order, even where the run ends with an error.
        let back: Vec<_> = engine.landings.iter().map(|(ticket, _)| *ticket).collect();
        prop_assert_eq!(&back, &engine.given);
        if result.is_ok() {
            prop_assert_eq!(counters.units, frames.len() as u64);
        }
        if let Err(error) = result {
            let said = error.to_string();
            prop_assert!(said.contains("overlap"), "{}", said);
        }
    }
}

// A mark of congestion goes from a queue to the engine that has to know.

/// Sends ten units with this codepoint at once, through a queue in mid-path
/// that marks from the fourth waiting one on; gives what the other engine sees.
fn seen(sent: Ecn) -> (Vec<Ecn>, u64) {
    let mut puppet = ScriptedEngine::default();
    for n in 0..10 {
        puppet = puppet.with_transmit(&[n; 100], &[], |transmit| transmit.ecn = sent);
    }
    let mut sim = Sim::from_number(1);
    let from = sim.add("from", EngineNode::new(puppet)).unwrap();
    let middle = sim.add("middle", landfall_simnet::Switch::learning()).unwrap();
    let to = sim.add("to", EngineNode::new(ScriptedEngine::default())).unwrap();
    sim.connect(from, middle, LinkConfig::new()).unwrap();
    let bottleneck = sim.connect(middle, to, LinkConfig::new().rate(1_000_000)).unwrap();
    let policy = EcnThreshold::frames(3, TailDrop::frames(20));
    sim.set_queue_policy(bottleneck.there(), policy).unwrap();
    sim.run_until(Instant::FAR_FUTURE).unwrap();
    let ecn = sim.node(to).unwrap().engine().heads.iter().map(|(_, ecn)| *ecn).collect();
    (ecn, sim.stats(bottleneck.there()).marked)
}

#[test]
fn an_engine_is_told_which_units_met_a_queue() {
    for sent in [Ecn::Capable0, Ecn::Capable1] {
        let (ecn, marked) = seen(sent);
        // The first leaves at once, three wait unmarked.
        assert_eq!(ecn[..4], [sent; 4]);
        assert_eq!(ecn[4..], [Ecn::CongestionExperienced; 6]);
        assert_eq!(marked, 6);
    }
}

#[test]
fn who_does_not_understand_marks_loses_units_instead() {
    assert_eq!(seen(Ecn::NotCapable), (vec![Ecn::NotCapable; 4], 0));
}

#[test]
fn red_marks_what_engines_send() {
    let mut puppet = ScriptedEngine::default();
    for _ in 0..1_000 {
        puppet = puppet.with_transmit(&[7; 100], &[], |transmit| transmit.ecn = Ecn::Capable0);
    }
    let mut sim = Sim::from_number(1);
    let from = sim.add("from", EngineNode::new(ScriptedEngine::default())).unwrap();
    let to = sim.add("to", EngineNode::new(ScriptedEngine::default())).unwrap();
    let link = sim.connect(from, to, LinkConfig::new().rate(1_000_000)).unwrap();
    // The sending host keeps the queue full: between the thresholds.
    let mut red = Red::new(5_000, 1_000_000);
    (red.min, red.max, red.weight) = (2_000, 10_000, 4);
    sim.set_queue_policy(link.there(), red).unwrap();
    sim.node_mut(from).unwrap().engine_mut().transmits = puppet.transmits;
    sim.run_until(Instant::FAR_FUTURE).unwrap();
    let heads = &sim.node(to).unwrap().engine().heads;
    let marked = heads.iter().filter(|(_, ecn)| *ecn == Ecn::CongestionExperienced).count();
    let stats = sim.stats(link.there());
    assert_eq!((heads.len(), marked as u64), (1_000, stats.marked), "{stats}");
    assert!((30..150).contains(&marked), "{stats}");
}
