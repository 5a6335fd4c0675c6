//! Two adapters of CLAN under any calls over any network schedule, beside the naive model.
#![no_main]

use clan_dsm::model::pair::disagreements;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let failures = disagreements(bytes);
    assert!(failures.is_empty(), "{failures:#?}");
});
