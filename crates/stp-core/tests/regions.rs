//! Persistent memory: Put, Get and FetchOp over good and bad networks.

use crate::world;
use std::time::Duration;

use crate::world::{Pair, noise, place, read};
use landfall_placement::{Area, Engine as _, Peer, WordFunction, WordWidth};
use landfall_simnet::{EngineConfig, LinkConfig, Loss, Probability, Sim, check};
use stp_core::{Config, Ended, Error, Event, ExposedId, PutOptions, RemoteRegion, Rights};

fn ethernet() -> LinkConfig {
    LinkConfig::ethernet(10_000_000_000).delay(Duration::from_micros(5)).mtu(1_500)
}

fn terrible() -> LinkConfig {
    ethernet()
        .loss(Loss::Uniform(Probability::percent(20)))
        .duplication(Probability::percent(20))
        .reordering(Probability::percent(20), Duration::from_micros(300))
        .corruption(Probability::percent(5))
}

fn patient() -> Config {
    Config { give_up_after: 200, ..Config::default() }.with_checksum()
}

/// Alice asks for a region, and Bob gives her this memory.
pub(crate) fn expose(pair: &mut Pair, memory: Area, rights: Rights) -> (ExposedId, RemoteRegion) {
    let (now, id) = (pair.now(), pair.from_a);
    pair.alice().request_region(now, id, 99, memory.len, Rights::ALL).unwrap();
    let before = pair.count_a(|e| matches!(e, Event::RegionAvailable { .. }));
    let asked = pair.count_b(|e| matches!(e, Event::RegionRequested { .. }));
    pair.run_until("the question", |_, b| {
        b.iter().filter(|e| matches!(e, Event::RegionRequested { .. })).count() > asked
    });
    let last =
        *pair.b_log.borrow().iter().rfind(|e| matches!(e, Event::RegionRequested { .. })).unwrap();
    let Event::RegionRequested { request, name, len, .. } = last else { unreachable!() };
    assert_eq!((name, len), (99, memory.len));
    let exposed = pair.bob().expose(request, memory, rights).unwrap();
    pair.run_until("the region", |a, _| {
        a.iter().filter(|e| matches!(e, Event::RegionAvailable { .. })).count() > before
    });
    let log = pair.a_log.borrow();
    let region = log.iter().rev().find_map(|event| match event {
        Event::RegionAvailable { region, .. } => Some(*region),
        _ => None,
    });
    (exposed, region.unwrap())
}

fn word(pair: &Pair, memory: Area, at: u64) -> u64 {
    let bytes = pair.sim.node(pair.b).unwrap().memory().read(memory.span(at, 8)).unwrap();
    u64::from_ne_bytes(bytes.try_into().unwrap())
}

#[test]
fn a_put_is_one_packet_each_way() {
    let mut pair = Pair::new(Sim::from_number(1), Config::default(), &[ethernet()]);
    let memory = place(&mut pair.sim, pair.b, 0, &[0; 4096]);
    let (_, region) = expose(&mut pair, memory, Rights::ALL);
    let source = place(&mut pair.sim, pair.a, 0, &noise(1, 8));
    let bytes = read(&pair.sim, pair.a, source);
    let link = pair.links[0];
    let (there, back) = (pair.sim.stats(link.there()).sent, pair.sim.stats(link.back()).sent);
    let (now, id) = (pair.now(), pair.from_a);
    pair.alice().put(now, id, &region, 16, source, PutOptions::default()).unwrap();
    pair.run_until("the put", |a, _| a.iter().any(|e| matches!(e, Event::PutDone { .. })));
    let sent = (pair.sim.stats(link.there()).sent - there, pair.sim.stats(link.back()).sent - back);
    assert_eq!(sent, (1, 1));
    assert_eq!(read(&pair.sim, pair.b, Area::new(memory.region, 16, 8)), bytes);
    let got = place(&mut pair.sim, pair.a, 3, &[0; 8]);
    let now = pair.now();
    pair.alice().get(now, id, &region, 16, got).unwrap();
    pair.run_until("the get", |a, _| a.iter().any(|e| matches!(e, Event::GetDone { .. })));
    let sent = (pair.sim.stats(link.there()).sent - there, pair.sim.stats(link.back()).sent - back);
    assert_eq!(sent, (2, 2), "a get is one packet each way, too");
    assert_eq!(read(&pair.sim, pair.a, got), bytes);
}

#[test]
fn operations_take_effect_once_and_in_order_over_a_terrible_network() {
    for how in [EngineConfig::default(), EngineConfig::guessing(8)] {
        check(1..=60, |sim| {
            let sim = std::mem::replace(sim, Sim::from_number(0));
            let mut pair = Pair::with(sim, patient(), patient(), how, &[terrible()]);
            let memory = place(&mut pair.sim, pair.b, 0, &[0; 64 << 10]);
            let (_, region) = expose(&mut pair, memory, Rights::ALL);
            let id = pair.from_a;
            let long = noise(7, 20_000);
            let mut expected = vec![0; 64 << 10];
            // Overlapping puts: the last of them wins, everywhere.
            for n in 0..10 {
                let at = n * 1_500;
                let bytes = &long[n * 13..n * 13 + 4_000];
                expected[8 + at..8 + at + 4_000].copy_from_slice(bytes);
                let source = place(&mut pair.sim, pair.a, n, bytes);
                let now = pair.now();
                let options = PutOptions { notice: n == 9, ..PutOptions::default() };
                pair.alice().put(now, id, &region, 8 + at as u64, source, options).unwrap();
                let function = WordFunction::Add(1 + n as u64);
                pair.alice().fetch_op(now, id, &region, 0, WordWidth::Eight, function).unwrap();
            }
            expected[..8].copy_from_slice(&55u64.to_ne_bytes());
            let got = place(&mut pair.sim, pair.a, 5, &vec![0; 64 << 10]);
            let now = pair.now();
            pair.alice().get(now, id, &region, 0, got).unwrap();
            pair.run_until("all operations", |a, b| {
                a.iter().filter(|e| matches!(e, Event::PutDone { .. })).count() == 10
                    && a.iter().filter(|e| matches!(e, Event::Fetched { .. })).count() == 10
                    && a.iter().any(|e| matches!(e, Event::GetDone { .. }))
                    && b.iter().any(|e| matches!(e, Event::Written { .. }))
            });
            let olds: Vec<u64> = pair
                .a_log
                .borrow()
                .iter()
                .filter_map(|event| match event {
                    Event::Fetched { old, .. } => Some(*old),
                    _ => None,
                })
                .collect();
            let sums: Vec<u64> = (0..10)
                .scan(0, |sum, n| {
                    let old = *sum;
                    *sum += n + 1;
                    Some(old)
                })
                .collect();
            assert_eq!(olds, sums);
            assert_eq!(word(&pair, memory, 0), 55);
            assert!(read(&pair.sim, pair.b, memory) == expected);
            assert!(
                read(&pair.sim, pair.a, got) == expected,
                "the get sees all that was begun before"
            );
        });
    }
}

#[test]
fn what_is_not_allowed_is_answered_and_those_behind_it_go_on() {
    let mut pair = Pair::new(Sim::from_number(3), Config::default(), &[ethernet()]);
    let memory = place(&mut pair.sim, pair.b, 0, &[0; 4096]);
    let (_, region) = expose(&mut pair, memory, Rights::PUT);
    assert_eq!(region.rights, Rights::PUT, "what was asked for and what was given");
    let (now, id) = (pair.now(), pair.from_a);
    let source = place(&mut pair.sim, pair.a, 0, &[9; 100]);
    let alice = pair.alice();
    assert_eq!(alice.get(now, id, &region, 0, source), Err(Error::Forbidden));
    assert_eq!(
        alice.put(now, id, &region, 4_000, source, PutOptions::default()),
        Err(Error::OutOfBounds)
    );
    // Who lies about the region is refused at the other side.
    let wider = RemoteRegion { len: 1 << 40, rights: Rights::ALL, ..region };
    let strange = RemoteRegion { handle: region.handle ^ 0x10000, ..wider };
    alice.put(now, id, &wider, 4_000, source, PutOptions::default()).unwrap();
    alice.put(now, id, &region, 0, source, PutOptions::default()).unwrap();
    alice.fetch_op(now, id, &wider, 8, WordWidth::Eight, WordFunction::Load).unwrap();
    alice.put(now, id, &strange, 0, source, PutOptions::default()).unwrap();
    alice.put(now, id, &region, 200, source, PutOptions::default()).unwrap();
    alice.get(now, id, &wider, 0, source).unwrap();
    pair.run_until("six endings", |a, _| {
        a.iter().filter(|e| matches!(e, Event::OperationEnded { why: Ended::There(_), .. })).count()
            == 3
            && a.iter().filter(|e| matches!(e, Event::PutDone { .. })).count() == 2
            && a.iter().any(|e| matches!(e, Event::ReceiveEnded { why: Ended::There(_), .. }))
    });
    let bytes = read(&pair.sim, pair.b, memory);
    assert!(bytes[..100].iter().all(|b| *b == 9) && bytes[200..300].iter().all(|b| *b == 9));
    assert!(bytes[100..200].iter().chain(&bytes[300..]).all(|b| *b == 0));
}

#[test]
fn a_revoked_region_is_given_back_and_refuses() {
    check(1..=10, |sim| {
        let sim = std::mem::replace(sim, Sim::from_number(0));
        let mut pair = Pair::new(sim, patient(), &[terrible()]);
        let memory = place(&mut pair.sim, pair.b, 0, &[0; 64 << 10]);
        let (exposed, region) = expose(&mut pair, memory, Rights::ALL);
        let (now, id) = (pair.now(), pair.from_a);
        let source = place(&mut pair.sim, pair.a, 0, &noise(1, 60_000));
        for _ in 0..3 {
            pair.alice().put(now, id, &region, 0, source, PutOptions::default()).unwrap();
            pair.alice().get(now, id, &region, 0, source).unwrap();
        }
        world::run_for(&mut pair.sim, Duration::from_micros(200));
        pair.bob().revoke(exposed).unwrap();
        pair.run_until("the end of all", |a, b| {
            b.iter().any(|e| matches!(e, Event::Revoked { .. }))
                && a.iter()
                    .filter(|e| matches!(e, Event::PutDone { .. } | Event::OperationEnded { .. }))
                    .count()
                    == 3
                && a.iter()
                    .filter(|e| matches!(e, Event::GetDone { .. } | Event::ReceiveEnded { .. }))
                    .count()
                    == 3
        });
        // What comes now finds nothing to write to.
        let after = read(&pair.sim, pair.b, memory);
        let now = pair.now();
        pair.alice().put(now, id, &region, 0, source, PutOptions::default()).unwrap();
        pair.run_until("a refusal", |a, _| {
            a.iter()
                .filter(|e| matches!(e, Event::PutDone { .. } | Event::OperationEnded { .. }))
                .count()
                == 4
        });
        assert!(matches!(
            pair.a_log.borrow().last(),
            Some(Event::OperationEnded { why: Ended::There(_), .. })
        ));
        assert!(read(&pair.sim, pair.b, memory) == after);
        let peer = Peer::Node(pair.b.id().0);
        assert!(pair.alice().links_of(id).unwrap().iter().all(|link| link.peer == peer));
        assert_eq!(pair.alice().granted_bytes(), 0);
        assert!(pair.alice().refusals().total() < 1_000_000);
    });
}

/// The other side remembers the answers to 32 of them until they are confirmed.
#[test]
fn more_fetch_ops_than_can_be_remembered_are_confirmed_and_forgotten() {
    check(1..=10, |sim| {
        let sim = std::mem::replace(sim, Sim::from_number(0));
        let mut pair = Pair::new(sim, patient(), &[terrible()]);
        let memory = place(&mut pair.sim, pair.b, 0, &[0; 64]);
        let (_, region) = expose(&mut pair, memory, Rights::FETCH);
        let id = pair.from_a;
        for wave in 1..=4 {
            for _ in 0..50 {
                let now = pair.now();
                let one = WordFunction::Add(1);
                pair.alice().fetch_op(now, id, &region, 8, WordWidth::Eight, one).unwrap();
            }
            pair.run_until("a wave", |a, _| {
                a.iter().filter(|e| matches!(e, Event::Fetched { .. })).count() == wave * 50
            });
        }
        let olds: Vec<u64> = pair
            .a_log
            .borrow()
            .iter()
            .filter_map(|event| match event {
                Event::Fetched { old, .. } => Some(*old),
                _ => None,
            })
            .collect();
        assert!(olds.iter().copied().eq(0..200), "{olds:?}");
        assert_eq!(word(&pair, memory, 8), 200);
    });
}
