//! Poll, gather, fill in, cut, report.

use std::time::Duration;

use landfall_placement::{
    Ecn, Instant, Peer, RegionId, Segment, SegmentKind, SumSlot, Ticket, Transmit, checksum,
};
use landfall_simnet::{EngineConfig, Error, LinkConfig, Outcome};

use super::{ScriptedEngine, stage};

const REGION: RegionId = RegionId::new(0, 0);

/// The frames that arrive when a puppet sends what it has, and its name of itself.
fn send(
    puppet: ScriptedEngine,
    how: EngineConfig,
    link: LinkConfig,
) -> Vec<landfall_simnet::Frame> {
    let (mut sim, _, inbox, _) = stage(puppet, how, link);
    assert_eq!(sim.run_until(Instant::FAR_FUTURE), Ok(Outcome::Idle));
    sim.node(inbox).unwrap().frames.iter().map(|(.., frame)| frame.clone()).collect()
}

#[test]
fn a_frame_is_a_head_and_gathered_spans() {
    let spans = [REGION.span(10, 2), REGION.span(200, 3)];
    let puppet = ScriptedEngine::default().with_transmit(b"head", &spans, |transmit| {
        transmit.to = Peer::Node(9);
        transmit.ecn = Ecn::Capable0;
    });
    let frames = send(puppet, EngineConfig::default(), LinkConfig::new());
    assert_eq!(frames[0].bytes, [b'h', b'e', b'a', b'd', 10, 11, 200, 201, 202]);
    assert_eq!((frames[0].from, frames[0].to), (Peer::Node(0), Peer::Node(9)));
    assert_eq!(frames[0].ecn, Ecn::Capable0);
}

#[test]
fn a_checksum_is_filled_in() {
    let slot = SumSlot { start: 2, offset: 4 };
    let puppet =
        ScriptedEngine::default()
            .with_transmit(b"..head\0\0", &[REGION.span(0, 101)], |t| t.checksum = Some(slot));
    let frames = send(puppet, EngineConfig::default(), LinkConfig::new());
    assert_eq!(checksum::sum_of(&frames[0].bytes[2..]), 0xffff);
    assert_eq!(&frames[0].bytes[..6], b"..head");
}

#[test]
fn what_is_only_summed_is_not_sent() {
    let (slot, whole) = (SumSlot { start: 2, offset: 4 }, REGION.span(0, 101));
    let sum = |only: u32| {
        let puppet = ScriptedEngine::default().with_transmit(b"..head\0\0", &[whole], |t| {
            (t.checksum, t.sum_only) = (Some(slot), only);
        });
        send(puppet, EngineConfig::default(), LinkConfig::new().mtu(109)).remove(0).bytes
    };
    let all = sum(0);
    for only in 1..=101 {
        assert_eq!(sum(only), all[..all.len() - only as usize]);
    }
}

#[test]
fn a_node_waits_for_room_in_its_queue() {
    let mut puppet = ScriptedEngine::default();
    for n in 0..100 {
        puppet = puppet.with_transmit(&[n; 50], &[], |_| {});
    }
    let slow = LinkConfig::new().rate(1_000_000).queue_frames(2);
    for send_delay in [0, 1, 10_000] {
        let send_delay = Duration::from_micros(send_delay);
        let how = EngineConfig { send_delay, send_ring: 5, ..EngineConfig::default() };
        let puppet =
            ScriptedEngine { transmits: puppet.transmits.clone(), ..ScriptedEngine::default() };
        let firsts: Vec<_> = send(puppet, how, slow).iter().map(|f| f.bytes[0]).collect();
        assert!(firsts.into_iter().eq(0..100), "{send_delay:?}");
    }
}

#[test]
fn invariant_2_memory_is_read_late_and_reported_later() {
    let puppet = ScriptedEngine::default()
        .with_transmit(b"1", &[REGION.span(0, 4)], |_| {})
        .with_transmit(b"2", &[REGION.span(4, 4)], |_| {});
    let delay = Duration::from_micros(70);
    let how = EngineConfig { send_delay: delay, ..EngineConfig::default() };
    let (mut sim, host, inbox, _) = stage(puppet, how, LinkConfig::new());
    sim.run_until(Instant::from_micros(50)).unwrap();
    assert!(sim.node(host).unwrap().engine().sent.is_empty());
    // What a driver still holds must not be taken back; it harms nobody but the unit.
    sim.node_mut(host).unwrap().memory_mut().take_back(REGION).unwrap();
    sim.run_until(Instant::FAR_FUTURE).unwrap();
    let node = sim.node(host).unwrap();
    let at = Instant::ZERO + delay;
    assert_eq!(node.engine().sent, [(at, Ticket::new(0, 0)), (at, Ticket::new(1, 0))]);
    assert_eq!(node.counters().unsendable, 2);
    assert!(sim.node(inbox).unwrap().frames.is_empty());
}

#[test]
fn what_an_engine_may_not_send_ends_the_run() {
    let breach = |head: usize, payload: u32, change: &dyn Fn(&mut Transmit)| {
        let spans = [REGION.span(0, payload)];
        let puppet = ScriptedEngine::default().with_transmit(&vec![0; head], &spans, |t| change(t));
        let segmentation = Some((900, 3));
        let how = EngineConfig { segmentation, ..EngineConfig::default() };
        let (mut sim, host, ..) = stage(puppet, how, LinkConfig::new().mtu(300));
        match sim.run_until(Instant::FAR_FUTURE) {
            Err(Error::Broken { node, what, .. }) => {
                assert_eq!(node, host.id());
                what
            }
            other => panic!("{other:?}"),
        }
    };
    let slot = |start, offset| move |t: &mut Transmit| t.checksum = Some(SumSlot { start, offset });
    let segment =
        |size| move |t: &mut Transmit| t.segment = Some(Segment { kind: SegmentKind::Tcp4, size });
    let cases = [
        (breach(257, 0, &|_| {}), "head of 257"),
        (breach(100, 201, &|_| {}), "301 bytes"),
        (breach(10, 0, &slot(5, 4)), "slot"),
        (breach(10, 0, &slot(u16::MAX, u16::MAX)), "slot"),
        (breach(54, 600, &segment(247)), "segments of 247"),
        (breach(54, 600, &segment(100)), "more than 3 segments"),
        (breach(200, 800, &segment(0)), "segments"),
        (breach(54, 900, &segment(300)), "segments of 300"),
        (breach(54, 10, &|t| t.sum_only = 11), "only summed"),
        (breach(54, 400, &|t| (segment(100)(t), t.sum_only = 100).1), "only summed"),
        (breach(100, 301, &|t| t.sum_only = 100), "301 bytes"),
    ];
    for (what, expected) in cases {
        assert!(what.contains(expected), "{what:?} does not say {expected:?}");
    }
}

#[test]
fn headers_that_cannot_be_cut_are_not_sent() {
    let puppet = ScriptedEngine::default().with_transmit(&[0; 54], &[REGION.span(0, 500)], |t| {
        t.segment = Some(Segment { kind: SegmentKind::Tcp4, size: 200 });
    });
    let how = EngineConfig { segmentation: Some((900, 3)), ..EngineConfig::default() };
    let (mut sim, host, inbox, _) = stage(puppet, how, LinkConfig::new().mtu(300));
    sim.run_until(Instant::FAR_FUTURE).unwrap();
    assert_eq!(sim.node(host).unwrap().counters().unsendable, 1);
    assert_eq!(sim.node(host).unwrap().engine().sent.len(), 1);
    assert!(sim.node(inbox).unwrap().frames.is_empty());
}

#[test]
fn an_engine_that_never_stops_sending_is_noticed() {
    let puppet = ScriptedEngine {
        endless: true,
        ..ScriptedEngine::default().with_transmit(b"and", &[], |_| {})
    };
    let mut sim = landfall_simnet::Sim::with_limits(
        [0; 32],
        landfall_simnet::Limits { events_per_instant: 1_000, ..Default::default() },
    );
    let host = sim.add("puppet", landfall_simnet::EngineNode::new(puppet)).unwrap();
    let other = sim.add("other", crate::common::silent).unwrap();
    sim.connect(host, other, LinkConfig::new()).unwrap();
    let stuck = Err(Error::Stuck { at: Instant::ZERO });
    assert_eq!(sim.run_until(Instant::from_millis(1)), stuck);
}
