//! What the fuzz target `placement_bookkeeping` runs: over random operations,
//! and over its corpus, so that what was found stays found.

use landfall_placement::Random;
use landfall_test_engines::model::placement_bookkeeping;
use landfall_testkit::corpus::replay;

fn random_bytes(seed: u64) -> Vec<u8> {
    let mut random = Random::from_number(seed);
    let len = 1 + random.below(900) as usize;
    (0..len).map(|_| random.next_u32() as u8).collect()
}

#[test]
fn random_operations_break_no_rule() {
    let rounds = if std::env::var_os("LANDFALL_LONG").is_some() { 50_000 } else { 1_000 };
    for seed in 0..rounds {
        let failures = placement_bookkeeping(&random_bytes(seed));
        assert!(failures.is_empty(), "seed {seed}: {failures:#?}");
    }
}

#[test]
fn the_corpus_breaks_no_rule() {
    replay("placement_bookkeeping", 20, placement_bookkeeping);
}
