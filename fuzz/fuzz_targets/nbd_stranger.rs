//! One end of NBD, in negotiation or in transmission, and bytes of a stranger who knows how
//! messages begin.
#![no_main]

use landfall_nbd::model::withstand;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let failures = withstand(bytes);
    assert!(failures.is_empty(), "{failures:#?}");
});
