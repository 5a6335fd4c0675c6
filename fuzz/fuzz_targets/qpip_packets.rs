//! One QPIP adapter with connections, a listener and a queue pair for datagrams,
//! and any frames: checksums are made right, so that they get deep.
#![no_main]

use qpip::model::withstand;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let failures = withstand(bytes);
    assert!(failures.is_empty(), "{failures:#?}");
});
