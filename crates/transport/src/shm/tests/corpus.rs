//! The inputs that the fuzz target `shm_control_words` found worth keeping, replayed;
//! and random ones.

use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::scribbler;

#[test]
fn the_corpus_of_the_fuzz_target_breaks_nothing() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/shm_control_words");
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} has no inputs", folder.display());
    for file in files {
        // What breaks is said below; the name says which input it was.
        println!("{}", file.display());
        scribbler::run(&fs::read(&file).unwrap());
    }
}

proptest! {
    /// Invariants 3, 5 and 8 against a peer that writes anything anywhere.
    #[test]
    fn a_peer_that_scribbles_breaks_nothing(
        steps in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        scribbler::run(&steps);
    }
}
