//! What the fuzz target `defrag_admission` runs, over its corpus: so that what was found
//! stays found. And over random bytes.

use landfall_placement::Random;
use landfall_testkit::corpus::replay;
use spec_defrag::admission::model::{disagreements, misreadings};

fn failures(bytes: &[u8]) -> Vec<String> {
    [disagreements(bytes), misreadings(bytes)].concat()
}

#[test]
fn the_corpus_of_admission_breaks_no_rule() {
    replay("defrag_admission", 20, failures);
}

#[test]
fn random_schedules_of_admission_break_no_rule() {
    let rounds = if std::env::var_os("LANDFALL_LONG").is_some() { 20_000 } else { 100 };
    for seed in 0..rounds {
        let mut random = Random::from_number(0xad01 + seed);
        let len = random.below(3_000) as usize;
        let bytes: Vec<u8> = (0..len).map(|_| random.next_u32() as u8).collect();
        let failures = failures(&bytes);
        assert!(failures.is_empty(), "schedule {seed}: {failures:#?}");
    }
}
