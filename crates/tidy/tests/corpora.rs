//! Rules for the corpora of the fuzz targets.

use std::collections::BTreeSet;
use std::fs;

use landfall_testkit::corpus::{Corpus, path};
use landfall_tidy::{Repository, expect_none};

/// A corpus keeps findings found: `cargo test` replays it where there is no fuzzer.
#[test]
fn every_fuzz_target_has_a_corpus() {
    let without: Vec<_> = targets()
        .into_iter()
        .filter(|target| Corpus::open(target).map_or(true, |corpus| corpus.is_empty()))
        .collect();
    expect_none("these need at least one input in fuzz/corpus/<target>.hex", &without);
}

/// A misspelt name would never be replayed. Folders are what a fuzzer works in; git ignores
/// them.
#[test]
fn every_corpus_is_that_of_a_fuzz_target() {
    let expected: BTreeSet<_> = targets().iter().map(|target| path(target)).collect();
    let strangers: Vec<_> = fs::read_dir(Repository::here().root().join("fuzz/corpus"))
        .expect("there are corpora")
        .map(|entry| entry.expect("it can be read").path())
        .filter(|file| !file.is_dir())
        .filter(|file| !expected.iter().any(|path| path.file_name() == file.file_name()))
        .map(|file| file.display().to_string())
        .collect();
    expect_none("these belong to no fuzz target", &strangers);
}

/// Whoever adds an input by the program changes no other line.
#[test]
fn every_corpus_is_as_it_is_written() {
    let different: Vec<_> = targets()
        .into_iter()
        .filter(|target| {
            let text = fs::read_to_string(path(target)).unwrap_or_default();
            Corpus::open(target).map_or(true, |corpus| corpus.to_string() != text)
        })
        .collect();
    expect_none("these are not as `corpus` writes them", &different);
}

fn targets() -> Vec<String> {
    let manifest = Repository::here().read("fuzz/Cargo.toml").expect("fuzz has a Cargo.toml");
    let names = manifest.split("[[bin]]").skip(1);
    let targets: Vec<_> = names
        .filter_map(|target| target.split_once("name = \"")?.1.split('"').next())
        .map(str::to_owned)
        .collect();
    assert!(!targets.is_empty(), "fuzz/Cargo.toml names no target");
    targets
}
