//! Any bytes as what the two sides of `landfall send` and `landfall receive` say to each
//! other: understood or refused, within bounds, and no name leads out of the folder.
#![no_main]

/// What others say, safe to print.
#[allow(dead_code, reason = "the tool uses more of it")]
#[path = "../../crates/lab/src/printable.rs"]
mod printable;

/// The tool is a program and no library: its own files, as they are.
#[allow(dead_code, unused_imports, unexpected_cfgs, reason = "the tool uses more of them")]
#[path = "../../crates/landfall-cli/src/transfer"]
mod transfer {
    pub(crate) mod path;
    pub(crate) mod wire;
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| transfer::wire::properties::check(bytes));
