//! A receiver of speculative defragmentation under any traffic and any calls of its
//! user, beside a naive reassembler.
#![no_main]

use spec_defrag::model::disagreements;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let failures = disagreements(bytes);
    assert!(failures.is_empty(), "{failures:#?}");
});
