//! Two QPIP adapters under any network schedule and any calls of their users,
//! checked against a naive model.
#![no_main]

use qpip::model::disagreements;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let failures = disagreements(bytes);
    assert!(failures.is_empty(), "{failures:#?}");
});
