//! Both ends of NBD, a network that cuts anywhere, and a server that answers in any order and
//! in any pieces, checked against a naive device.
#![no_main]

use landfall_nbd::model::disagreements;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let failures = disagreements(bytes);
    assert!(failures.is_empty(), "{failures:#?}");
});
