//! An adapter of CLAN in the middle of its work, and whatever frames its peer makes up.
#![no_main]

use clan_dsm::model::pair::withstand;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let failures = withstand(bytes);
    assert!(failures.is_empty(), "{failures:#?}");
});
