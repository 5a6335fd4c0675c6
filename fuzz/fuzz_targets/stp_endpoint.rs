//! One STP endpoint with a connection and much under way, and any packets: keys
//! and checksums are made right, so that they get deep.
#![no_main]

use stp_core::model::withstand;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let failures = withstand(bytes);
    assert!(failures.is_empty(), "{failures:#?}");
});
