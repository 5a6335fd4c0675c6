//! What the fuzz targets `clan_pair`, `clan_native` and `clan_frames` run, over their
//! corpora: so that what was found stays found.

use std::path::PathBuf;

use clan_dsm::model::{native, pair};

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
    replay("clan_pair", pair::disagreements);
}

#[test]
fn the_corpus_of_native_links_breaks_no_rule() {
    replay("clan_native", native::disagreements);
}

#[test]
fn the_corpus_of_frames_breaks_no_rule() {
    replay("clan_frames", pair::withstand);
}
