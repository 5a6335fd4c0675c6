//! The target's end of iSCSI, and an initiator that keeps the rules or does not.
#![no_main]

use landfall_scsi::model::sessions;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let failures = sessions(bytes);
    assert!(failures.is_empty(), "{failures:#?}");
});
