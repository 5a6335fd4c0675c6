//! Fragments in any order, with and without tags: a reassembler by itself beside a naive one.
#![no_main]

use spec_defrag::model::reassemble;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let failures = reassemble(bytes).failures;
    assert!(failures.is_empty(), "{failures:#?}");
});
