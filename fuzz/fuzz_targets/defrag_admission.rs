//! A gate and its senders under any network schedule, checked by a naive judge; and the
//! same bytes as a control frame.
#![no_main]

use spec_defrag::admission::model::{disagreements, misreadings};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let failures = [disagreements(bytes), misreadings(bytes)].concat();
    assert!(failures.is_empty(), "{failures:#?}");
});
