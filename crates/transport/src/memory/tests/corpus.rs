//! The inputs that the fuzz target `region_table` found worth keeping, replayed.

use std::fs;
use std::path::Path;

use super::model;

#[test]
fn the_corpus_of_the_fuzz_target_agrees_with_the_model() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/region_table");
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} has no inputs", folder.display());
    for file in files {
        // What differs is said by the model; the name says which input it was.
        println!("{}", file.display());
        model::run(&fs::read(&file).unwrap());
    }
}
