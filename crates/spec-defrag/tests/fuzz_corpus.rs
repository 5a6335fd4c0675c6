//! What the fuzz targets `defrag_pair` and `defrag_frames` run, over their corpora:
//! so that what was found stays found. And over random bytes.

use std::path::PathBuf;

use landfall_placement::Random;
use spec_defrag::model::{disagreements, withstand};

fn replay(target: &str, check: fn(&[u8]) -> Vec<String>) {
    let corpus = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut count = 0;
    for entry in std::fs::read_dir(corpus).expect("the corpus is in the repository") {
        let path = entry.unwrap().path();
        let failures = check(&std::fs::read(&path).unwrap());
        assert!(failures.is_empty(), "{}: {failures:#?}", path.display());
        count += 1;
    }
    assert!(count >= 10, "only {count} files");
}

#[test]
fn the_corpus_of_pairs_breaks_no_rule() {
    replay("defrag_pair", disagreements);
}

#[test]
fn the_corpus_of_frames_breaks_no_rule() {
    replay("defrag_frames", withstand);
}

#[test]
fn random_frames_break_no_rule() {
    let rounds = if std::env::var_os("LANDFALL_LONG").is_some() { 20_000 } else { 200 };
    for seed in 0..rounds {
        let mut random = Random::from_number(seed);
        let len = random.below(1_500) as usize;
        let bytes: Vec<u8> = (0..len).map(|_| random.next_u32() as u8).collect();
        let failures = withstand(&bytes);
        assert!(failures.is_empty(), "frames {seed}: {failures:#?}");
    }
}
