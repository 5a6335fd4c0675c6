//! A run of two engines in which every operation occurs, as Wireshark sees it.

use crate::world;
use std::time::Duration;

use crate::support::capture::check_capture;
use crate::world::{Pair, connect, is_received, is_sent, noise, place, read};
use landfall_placement::{PathId, Peer, WordFunction, WordWidth};
use landfall_simnet::{Encapsulation, LinkConfig, Loss, Probability, Sim};
use landfall_testkit::tshark::CaptureFile;
use stp_core::wire::Op;
use stp_core::wire::carrier::UDP_PORT;
use stp_core::{Config, Event, PutOptions, Rights};

/// The first of one side's events that the function takes something out of.
fn find<T>(log: &world::Log, take: impl Fn(&Event) -> Option<T>) -> T {
    log.borrow().iter().find_map(take).expect("it was waited for")
}

fn transfers(pair: &mut Pair) {
    let bytes = noise(1, 100_000);
    let written = pair.post(5, bytes.len());
    pair.send(3, &bytes);
    pair.run_until("the write", |a, b| a.iter().any(is_sent) && b.iter().any(is_received));
    assert!(read(&pair.sim, pair.b, written) == bytes);

    // Bob has memory for a part of the next one only when it was offered.
    pair.send(0, &bytes);
    pair.run_until("the offer", |_, b| b.iter().any(|e| matches!(e, Event::Offered { .. })));
    let offer = find(&pair.b_log, |event| match event {
        Event::Offered { receive, .. } => Some(*receive),
        _ => None,
    });
    let part = place(&mut pair.sim, pair.b, 0, &[0; 30_000]);
    let now = pair.now();
    pair.bob().accept(now, offer, part, true).unwrap();
    pair.run_until("a part", |a, _| a.iter().filter(|event| is_sent(event)).count() == 2);
    assert!(read(&pair.sim, pair.b, part) == bytes[..30_000]);

    let into = place(&mut pair.sim, pair.a, 0, &[0; 20_000]);
    let (now, id) = (pair.now(), pair.from_a);
    pair.alice().read(now, id, into, 7).unwrap();
    pair.run_until("the question", |_, b| {
        b.iter().any(|event| matches!(event, Event::ReadRequested { .. }))
    });
    let asked = find(&pair.b_log, |event| match event {
        Event::ReadRequested { read, .. } => Some(*read),
        _ => None,
    });
    let from = place(&mut pair.sim, pair.b, 0, &bytes[..20_000]);
    let now = pair.now();
    pair.bob().answer_read(now, asked, from, 8).unwrap();
    pair.run_until("the read", |a, b| a.iter().any(is_received) && b.iter().any(is_sent));
    assert!(read(&pair.sim, pair.a, into) == bytes[..20_000]);

    let unwanted = place(&mut pair.sim, pair.a, 0, &bytes);
    let now = pair.now();
    let send = pair.alice().send(now, id, unwanted, 9).unwrap();
    pair.run_until("the other offer", |_, b| {
        b.iter().filter(|event| matches!(event, Event::Offered { .. })).count() == 2
    });
    let now = pair.now();
    pair.alice().cancel_send(now, send).unwrap();
    pair.run_until("the end", |a, _| a.iter().any(|e| matches!(e, Event::SendEnded { .. })));
}

fn memory(pair: &mut Pair) {
    let memory = place(&mut pair.sim, pair.b, 0, &[0; 4096]);
    let (now, id) = (pair.now(), pair.from_a);
    pair.alice().request_region(now, id, 99, 4096, Rights::ALL).unwrap();
    pair.run_until("the question", |_, b| {
        b.iter().any(|event| matches!(event, Event::RegionRequested { .. }))
    });
    let request = find(&pair.b_log, |event| match event {
        Event::RegionRequested { request, .. } => Some(*request),
        _ => None,
    });
    pair.bob().expose(request, memory, Rights::ALL).unwrap();
    pair.run_until("the region", |a, _| {
        a.iter().any(|event| matches!(event, Event::RegionAvailable { .. }))
    });
    let region = find(&pair.a_log, |event| match event {
        Event::RegionAvailable { region, .. } => Some(*region),
        _ => None,
    });
    let bytes = noise(2, 3_000);
    let source = place(&mut pair.sim, pair.a, 0, &bytes);
    let into = place(&mut pair.sim, pair.a, 0, &[0; 3_000]);
    let now = pair.now();
    let alice = pair.alice();
    alice.put(now, id, &region, 1_000, source, PutOptions::WITH_NOTICE).unwrap();
    alice.fetch_op(now, id, &region, 8, WordWidth::Eight, WordFunction::Add(1)).unwrap();
    alice.get(now, id, &region, 1_000, into).unwrap();
    pair.run_until("put, fetch and get", |a, _| {
        a.iter().any(|event| matches!(event, Event::PutDone { .. }))
            && a.iter().any(|event| matches!(event, Event::Fetched { old: 0, .. }))
            && a.iter().any(|event| matches!(event, Event::GetDone { .. }))
    });
    assert!(read(&pair.sim, pair.a, into) == bytes);
}

/// Runs every operation over a link, and gives the capture of it.
fn run(link: LinkConfig, config: Config) -> Vec<u8> {
    let mut pair = Pair::new(Sim::from_number(11), config, &[link]);
    pair.sim.capture_all(Encapsulation::Udp { port: UDP_PORT });
    // The first connection was there before the capture began.
    let (a, b) = (pair.a, pair.b);
    connect(&mut pair.sim, a, PathId(0), Peer::Node(b.id().0));
    pair.run_until("another connection", |a, _| {
        a.iter().filter(|event| matches!(event, Event::Connected { .. })).count() == 2
    });
    transfers(&mut pair);
    memory(&mut pair);
    let idle = pair.now() + Duration::from_secs(20);
    pair.sim.run_until(idle).unwrap();
    let (now, id) = (pair.now(), pair.from_a);
    pair.alice().close(now, id).unwrap();
    pair.run_until("the close", |a, b| {
        let is_closed = |event: &Event| matches!(event, Event::Closed { why: None, .. });
        a.iter().any(is_closed) && b.iter().any(is_closed)
    });
    assert_eq!(pair.sim.capture_missed(), 0);
    pair.sim.captured().to_vec()
}

fn assert_all_seen(capture: &CaptureFile) {
    let Some(seen) = check_capture(capture.path()) else { return };
    let missing: Vec<_> = Op::ALL.iter().filter(|op| !seen.contains_key(&(**op as u8))).collect();
    assert!(missing.is_empty(), "these did not occur: {missing:?}");
}

fn ethernet() -> LinkConfig {
    LinkConfig::ethernet(10_000_000_000).delay(Duration::from_micros(5)).mtu(1_500)
}

#[test]
fn every_packet_of_a_run_is_dissected() {
    let capture = run(ethernet(), Config::default());
    assert_all_seen(&CaptureFile::new(&capture));
}

#[test]
fn every_packet_of_a_run_with_checksums_and_losses_is_dissected() {
    let link = ethernet()
        .loss(Loss::Uniform(Probability::percent(10)))
        .duplication(Probability::percent(10))
        .reordering(Probability::percent(10), Duration::from_micros(300));
    let config = Config { give_up_after: 200, ..Config::default() }.with_checksum();
    let capture = run(link, config);
    assert_all_seen(&CaptureFile::new(&capture));
}
