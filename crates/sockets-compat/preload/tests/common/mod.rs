//! What tests share that start programs.

use std::path::PathBuf;

/// Cargo builds examples before tests, beside them.
pub(crate) fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let folder = test.parent().and_then(|deps| deps.parent()).expect("target/<profile>/deps");
    let path = folder.join("examples").join(name);
    assert!(path.exists(), "{} is missing: run `cargo test -p landfall-preload`", path.display());
    path
}
