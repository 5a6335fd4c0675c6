#![doc = include_str!("../README.md")]
#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

#[cfg(feature = "std")]
pub mod corpus;
#[cfg(feature = "std")]
pub mod document;
pub mod engines;
#[cfg(feature = "model")]
pub mod model;
#[cfg(feature = "std")]
pub mod skip;
#[cfg(feature = "std")]
mod temporary;
#[cfg(feature = "std")]
pub mod trials;
#[cfg(feature = "std")]
pub mod tshark;

#[cfg(feature = "std")]
pub use temporary::TemporaryFolder;

/// The root folder of the repository that the running test belongs to.
///
/// # Panics
///
/// If its package is not in the repository.
#[cfg(feature = "std")]
#[must_use]
pub fn root() -> std::path::PathBuf {
    // Cargo says it when it runs a test, too. That is the better answer: two work trees
    // with one target folder share what is compiled.
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), std::path::PathBuf::from);
    let root = package.ancestors().find(|folder| folder.join("fuzz/corpus").is_dir());
    root.unwrap_or_else(|| panic!("{} is not in the repository", package.display())).to_owned()
}
