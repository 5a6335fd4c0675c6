//! Any frames: read, joined by speculation and without, cut and joined again.
#![no_main]

use spec_defrag::model::withstand;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let failures = withstand(bytes);
    assert!(failures.is_empty(), "{failures:#?}");
});
