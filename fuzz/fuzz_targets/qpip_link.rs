//! One QPIP adapter that finds its addresses, and any hosts on its link.
#![no_main]

use qpip::model::withstand_strangers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let failures = withstand_strangers(bytes);
    assert!(failures.is_empty(), "{failures:#?}");
});
