//! A host behind a CLAN adapter and one without, under any units and any calls of
//! their users: they must do the same, bit for bit.
#![no_main]

use nic_firmware_model::clan::model::disagreements;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let found = disagreements(bytes);
    assert!(found.is_empty(), "{found:#?}");
});
