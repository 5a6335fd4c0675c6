#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod corpus;
pub mod document;
pub mod tshark;

use std::env;
use std::path::PathBuf;

/// The root folder of the repository that the running test belongs to.
///
/// # Panics
///
/// If its package is not in the repository.
#[must_use]
pub fn root() -> PathBuf {
    // Cargo says it when it runs a test, too. That is the better answer: two work trees
    // with one target folder share what is compiled.
    let package = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    let root = package.ancestors().find(|folder| folder.join("fuzz/corpus").is_dir());
    root.unwrap_or_else(|| panic!("{} is not in the repository", package.display())).to_owned()
}
