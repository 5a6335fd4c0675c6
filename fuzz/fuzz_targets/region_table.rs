//! Sequences of calls to the region table, against a naive model of it.
#![no_main]

use landfall_transport::memory;
use libfuzzer_sys::fuzz_target;

/// The interpreter that the property test uses too.
#[path = "../../crates/transport/src/memory/tests/model/mod.rs"]
mod model;

fuzz_target!(|sequence: &[u8]| model::run(sequence));
