//! Transfers between two hosts over good and bad networks.

mod world;

use std::time::Duration;

use landfall_placement::{Area, Engine as _};
use landfall_simnet::{EngineConfig, LinkConfig, Loss, Probability, Sim, check};
use stp_core::{Config, Event};
use world::{Pair, is_received, is_sent, noise, read};

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
    assert_eq!((stats.stus_received, stats.block_notifications), (1024, 4), "{stats:?}");
}

#[test]
fn every_length_and_alignment_arrives() {
    let config = Config { block_stus: 3, buffer: 13, ..Config::default() };
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
