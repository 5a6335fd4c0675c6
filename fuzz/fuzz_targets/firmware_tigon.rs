//! A host behind a Tigon-II and one without, under any frames and any calls of
//! their users: they must do the same, bit for bit.
#![no_main]

use nic_firmware_model::tigon::model::disagreements;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let found = disagreements(bytes);
    assert!(found.is_empty(), "{found:#?}");
});
