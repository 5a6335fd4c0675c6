//! Any bytes as the head of an STP packet: refused for a reason that fits, or
//! decoded to something that encodes and decodes to the same again.
#![no_main]

use libfuzzer_sys::fuzz_target;

/// What the tests of the crate check too.
#[path = "../../crates/stp-core/tests/support/header_properties.rs"]
mod header_properties;

fuzz_target!(|bytes: &[u8]| header_properties::check(bytes));
