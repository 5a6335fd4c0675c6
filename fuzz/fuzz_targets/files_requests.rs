//! A request, a reply, entries of a directory and a flag of somebody who writes any bytes.
#![no_main]

use landfall_files::model::withstand;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let failures = withstand(bytes);
    assert!(failures.is_empty(), "{failures:#?}");
});
