//! A SCSI target and two initiators, whose command descriptor blocks make sense or do not.
#![no_main]

use landfall_scsi::model::commands;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let failures = commands(bytes);
    assert!(failures.is_empty(), "{failures:#?}");
});
