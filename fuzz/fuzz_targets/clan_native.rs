//! Hosts around switches of CLAN: bursts split, joined and interleaved, links damaged,
//! units made up, beside the naive model.
#![no_main]

use clan_dsm::model::native::disagreements;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let failures = disagreements(bytes);
    assert!(failures.is_empty(), "{failures:#?}");
});
