//! Two ends that talk STP under `Sealed`, and an attacker who may do anything but know keys:
//! nothing is delivered that was not sent, nothing twice, and what can go on goes on.
#![no_main]

#[path = "../../crates/seal/tests/pair/mod.rs"]
mod pair;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let wrong = pair::disagreements(bytes);
    assert!(wrong.is_empty(), "{wrong:#?}");
});
