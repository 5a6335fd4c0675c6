//! A host with a Hamachi under any traffic and any calls of its user, beside a host
//! without: costs off, they are the same.
#![no_main]

use nic_firmware_model::hamachi::model::disagreements;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let differ = disagreements(bytes);
    assert!(differ.is_empty(), "{differ:#?}");
});
