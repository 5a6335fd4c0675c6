//! Transfers between two hosts over good and bad networks.

use std::time::Duration;

use crate::world::{Pair, is_received, is_sent, noise, read};
use landfall_placement::{Area, Engine as _};
use landfall_simnet::sim::Fate;
use landfall_simnet::{EngineConfig, LinkConfig, Loss, Probability, Sim, check};
use stp_core::{Config, Event};

fn ethernet() -> LinkConfig {
    LinkConfig::ethernet(10_000_000_000).delay(Duration::from_micros(5)).mtu(1_500)
}

/// Every fault at once.
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

#[test]
fn a_write_arrives_whole_and_is_acknowledged() {
    let mut pair = Pair::new(Sim::from_number(1), Config::default(), &[ethernet()]);
    let bytes = noise(1, 1 << 20);
    let area = pair.post(0, bytes.len());
    pair.send(0, &bytes);
    pair.run_until("the transfer", |a, b| a.iter().any(is_sent) && b.iter().any(is_received));
    assert_eq!(read(&pair.sim, pair.b, area), bytes);
    assert_eq!(pair.bob().refusals().total(), 0, "{}", pair.bob().refusals());
    assert_eq!(pair.bob().granted_bytes(), 0);
    let stats = *pair.bob().stats();
    // 256 KiB in STUs of 1456 bytes: what a packet of 1500 holds.
    assert_eq!((stats.stus_received, stats.block_notifications), (4 * 181, 4), "{stats:?}");
}

#[test]
fn every_length_and_alignment_arrives() {
    let config = Config { block_stus: 3, max_stu: 13, buffer: 13, ..Config::default() };
    let mut pair = Pair::new(Sim::from_number(2), config, &[ethernet()]);
    let lengths = [0, 1, 39, 1023, 1024, 1025, 8191, 8192, 8193, 50_000];
    let mut wanted: Vec<(Area, Vec<u8>)> = Vec::new();
    for (n, len) in lengths.into_iter().enumerate() {
        for before in [0, 1, 1023, 8191] {
            let bytes = noise((n * 10 + before) as u64, len);
            let area = pair.post(before, len);
            pair.send(before / 2, &bytes);
            wanted.push((area, bytes));
            let all = wanted.len();
            pair.run_until("the transfer", |a, b| {
                a.iter().filter(|e| is_sent(e)).count() == all
                    && b.iter().filter(|e| is_received(e)).count() == all
            });
        }
    }
    for (area, bytes) in wanted {
        assert_eq!(read(&pair.sim, pair.b, area), bytes, "{area}");
    }
    assert_eq!(pair.bob().refusals().total(), 0, "{}", pair.bob().refusals());
}

#[test]
fn a_transfer_survives_every_mix_of_faults() {
    for how in [EngineConfig::default(), EngineConfig::guessing(16)] {
        check(1..=20, |sim| {
            let sim = std::mem::replace(sim, Sim::from_number(0));
            let mut pair = Pair::with(sim, patient(), patient(), how, &[terrible()]);
            let bytes = noise(3, 300_000);
            let areas: Vec<_> = (0..3).map(|n| pair.post(n * 777, bytes.len())).collect();
            for n in 0..3 {
                pair.send(n * 555, &bytes);
            }
            pair.run_until("three transfers", |a, b| {
                a.iter().filter(|e| is_sent(e)).count() == 3
                    && b.iter().filter(|e| is_received(e)).count() == 3
            });
            for area in areas {
                assert!(read(&pair.sim, pair.b, area) == bytes, "{area}");
            }
            assert_eq!(pair.bob().granted_bytes(), 0);
            assert!(!pair.a_log.borrow().iter().any(|e| matches!(e, Event::Closed { .. })));
        });
    }
}

#[test]
fn what_is_guessed_right_is_never_copied() {
    let how = EngineConfig::guessing(16);
    let config = Config::default();
    let mut pair = Pair::with(Sim::from_number(4), config.clone(), config, how, &[ethernet()]);
    let bytes = noise(1, 1 << 20);
    for n in 0..4 {
        let area = pair.post(n * 1024, bytes.len());
        pair.send(0, &bytes);
        pair.run_until("the transfer", |_, b| b.iter().filter(|e| is_received(e)).count() == n + 1);
        assert!(read(&pair.sim, pair.b, area) == bytes);
    }
    let counters = *pair.sim.node(pair.b).unwrap().counters();
    let share = counters.copied_bytes as f64 / f64::from(4 << 20);
    assert!(share < 0.01, "{share:.4} of the payload was copied: {counters:?}");
    assert_eq!(counters.guessed_wrong, 0, "{counters:?}");
}

/// Ethernet fills short frames up.
#[test]
fn padding_behind_short_packets_is_not_received() {
    let mut pair = Pair::new(Sim::from_number(5), Config::default(), &[ethernet()]);
    for way in [pair.links[0].there(), pair.links[0].back()] {
        pair.sim
            .intercept(way, |_, frame| {
                if frame.bytes.len() < 46 {
                    frame.bytes.resize(46, 0xee);
                }
                Fate::Pass
            })
            .unwrap();
    }
    for len in 1..=8 {
        let bytes = noise(len as u64, len);
        let area = pair.post(0, 16);
        pair.send(0, &bytes);
        pair.run_until("the transfer", |a, _| a.iter().filter(|e| is_sent(e)).count() == len);
        let got = read(&pair.sim, pair.b, area);
        assert_eq!(got[..len], bytes);
        assert!(got[len..].iter().all(|byte| *byte == 0), "{got:?}");
    }
}

#[test]
fn every_packet_twice_is_as_good_as_once() {
    let twice = ethernet().duplication(Probability::percent(100));
    let mut pair = Pair::new(Sim::from_number(6), Config::default(), &[twice]);
    let bytes = noise(1, 100_000);
    for n in 1..=10 {
        let area = pair.post(n, bytes.len());
        pair.send(0, &bytes);
        pair.run_until("the transfer", |a, b| {
            a.iter().filter(|e| is_sent(e)).count() == n
                && b.iter().filter(|e| is_received(e)).count() == n
        });
        assert!(read(&pair.sim, pair.b, area) == bytes);
    }
    // Each grant counted once: no STU was sent again.
    assert_eq!(pair.alice().stats().stus_sent, 10 * 69);
    let (now, id) = (pair.now(), pair.from_a);
    pair.alice().close(now, id).unwrap();
    let closed = |event: &Event| matches!(event, Event::Closed { why: None, .. });
    pair.run_until("the end", |a, b| a.iter().any(closed) && b.iter().any(closed));
    assert_eq!(pair.a_log.borrow().iter().filter(|e| closed(e)).count(), 1);
}

/// Where the answer to a repeated grant counted as the answer to the first, each
/// loss made the measured round trip longer, and the next repetition later.
#[test]
fn what_is_asked_for_again_does_not_slow_down_what_is_asked_for_next() {
    let bad = LinkConfig::ethernet(10_000_000_000)
        .delay(Duration::from_micros(5))
        .mtu(1_500)
        .loss(Loss::Uniform(Probability::percent(10)))
        .duplication(Probability::percent(10))
        .reordering(Probability::percent(10), Duration::from_millis(2))
        .corruption(Probability::percent(2));
    for seed in 1..=20 {
        let mut pair = Pair::new(Sim::from_number(seed), patient(), &[bad]);
        let bytes = noise(3, 100_000);
        // The others wait for memory meanwhile, and ask for it.
        for _ in 0..10 {
            pair.send(0, &bytes);
        }
        for n in 0..10 {
            let start = pair.now();
            pair.post(0, bytes.len());
            pair.run_until("a transfer", |_, b| b.iter().filter(|e| is_received(e)).count() > n);
            let took = pair.now().since(start);
            assert!(took < Duration::from_secs(2), "seed {seed}: {took:?}");
        }
    }
}
