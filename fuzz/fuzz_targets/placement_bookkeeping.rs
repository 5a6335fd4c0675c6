//! Two test engines, watched by the contract checker, under a sequence of
//! operations: sends, losses, repetitions, wrong guesses, late landings.
#![no_main]

use landfall_testkit::model::placement_bookkeeping;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let failures = placement_bookkeeping(bytes);
    assert!(failures.is_empty(), "{failures:#?}");
});
