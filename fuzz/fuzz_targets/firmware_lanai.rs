//! Two hosts under any network, any calls of their users and forged frames: with
//! LANai 9 cards and without all is the same.
#![no_main]

use nic_firmware_model::lanai::model::disagreements;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let differ = disagreements(bytes);
    assert!(differ.is_empty(), "{differ:#?}");
});
