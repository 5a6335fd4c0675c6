//! The page about speculative defragmentation names the tests of what it says: they
//! have to exist, and each row of a table of tests has to name one.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The names of all functions in the sources of a folder.
fn functions(folder: &Path, into: &mut BTreeSet<String>) {
    let entries = fs::read_dir(folder).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            functions(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(path).unwrap();
            let names = text.split("fn ").skip(1).filter_map(|rest| rest.split_once('('));
            into.extend(names.map(|(name, _)| name.to_owned()));
        }
    }
}

/// Tests have names like sentences: of four words or more.
fn is_test(name: &str) -> bool {
    let of_words = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    name.chars().all(of_words) && name.matches('_').count() >= 3
}

fn page() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(root.join("../../docs/spec/spec-defrag.md")).unwrap()
}

/// What stands in backticks, in one piece.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn the_tests_that_the_document_names_exist() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut known = BTreeSet::new();
    functions(&crates, &mut known);
    functions(&crates.join("../benches"), &mut known);
    let page = page();
    let named: BTreeSet<&str> =
        page.lines().flat_map(quoted).filter(|name| is_test(name)).collect();
    let missing: Vec<_> = named.iter().filter(|name| !known.contains(**name)).collect();
    assert!(missing.is_empty(), "the page names tests that are not there: {missing:#?}");
    assert!(named.len() > 60, "only {} tests are named", named.len());
}

#[test]
fn each_row_of_a_table_of_tests_names_one() {
    let page = page();
    let mut in_table = false;
    let mut rows = 0;
    for line in page.lines() {
        if !line.starts_with('|') {
            in_table = false;
            continue;
        }
        let last = line.trim_end_matches('|').rsplit(" | ").next().unwrap_or_default().trim();
        if matches!(last, "test" | "tests") {
            in_table = true;
        } else if in_table && !line.starts_with("| ---") {
            assert!(quoted(last).any(is_test), "no test shows it: {line}");
            rows += 1;
        }
    }
    assert!(rows > 30, "only {rows} rows");
}
