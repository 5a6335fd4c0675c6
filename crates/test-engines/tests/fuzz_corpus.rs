//! What the fuzz target `placement_bookkeeping` runs: over random operations,
//! and over its corpus, so that what was found stays found.

use std::path::PathBuf;

use landfall_placement::Random;
use landfall_test_engines::model::placement_bookkeeping;

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/placement_bookkeeping")
}

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
    let mut count = 0;
    for entry in std::fs::read_dir(corpus()).expect("the corpus is in the repository") {
        let path = entry.unwrap().path();
        let failures = placement_bookkeeping(&std::fs::read(&path).unwrap());
        assert!(failures.is_empty(), "{}: {failures:#?}", path.display());
        count += 1;
    }
    assert!(count >= 20, "only {count} files");
}

/// Writes the seeds of the corpus again: `cargo test -p landfall-test-engines
/// --test fuzz_corpus -- --ignored`.
#[test]
#[ignore = "writes to the repository"]
fn write_the_seeds() {
    // A whole transfer, step by step, for each engine and configuration.
    const POST: [u8; 3] = [10 | 0x80, 0x47, 0xff];
    const SEND: [u8; 3] = [0, 0x47, 0xff];
    const STEPS: [u8; 12] =
        [20, 0x10, 50 | 0x80, 0, 75 | 0x80, 0x1f, 20 | 0x80, 0x10, 50, 0, 75, 0x1f];
    std::fs::create_dir_all(corpus()).unwrap();
    for (n, first) in
        [0x00, 0x01, 0x02, 0x04, 0x0b, 0x80, 0x81, 0x82, 0x84, 0x9f].iter().enumerate()
    {
        let mut bytes = vec![*first];
        bytes.extend([POST, SEND].concat());
        for _ in 0..20 {
            bytes.extend(STEPS);
        }
        bytes.extend([107 | 0x80, 98 | 0x80, 0, 101, 1, 2, 3, 119, 119 | 0x80, 111, 1]);
        std::fs::write(corpus().join(format!("transfer-{n:02}")), bytes).unwrap();
    }
    // 11100 found that a repeated placement had the ticket of the first.
    for seed in (0..11).chain([11_100]) {
        std::fs::write(corpus().join(format!("random-{seed:05}")), random_bytes(seed)).unwrap();
    }
}
