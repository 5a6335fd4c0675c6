//! The page about CLAN names the test of each feature: they have to exist.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the tests of CLAN are: in the engine, the front door, the transport for
/// shared memory, and the tool.
const FOLDERS: [&str; 7] = [
    "src",
    "tests",
    "../landfall/src/clan",
    "../landfall/tests",
    "../transport/src/shm",
    "../transport/tests",
    "../landfall-cli",
];

fn sources(folder: &Path, into: &mut String) {
    let entries = fs::read_dir(folder).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn the_tests_that_the_document_names_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("../../docs/spec/clan.md")).unwrap();
    let (_, table) = page.split_once("\n## Features and their tests\n").unwrap();
    let (table, _) = table.split_once("\n## ").unwrap();
    let mut text = String::new();
    for folder in FOLDERS {
        sources(&root.join(folder), &mut text);
    }
    let mut features = 0;
    for line in table.lines().filter(|line| line.starts_with("| ") && !line.contains("---")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [feature, tests] = cells[..] else { panic!("not two cells: {line}") };
        if tests.is_empty() || feature == "feature" {
            continue;
        }
        features += 1;
        let mut named = 0;
        for test in tests.split('`').skip(1).step_by(2) {
            // With parameters of types, where a test runs over several ways to talk.
            let is_there = ["(", "<"].iter().any(|next| text.contains(&format!("fn {test}{next}")));
            assert!(is_there, "{feature}: there is no test `{test}`");
            named += 1;
        }
        assert!(named > 0, "{feature}: no test shows it");
    }
    assert!(features > 40, "{features}");
}
