//! Two hosts of CLAN under `Sealed` that write into each other's memory, and an attacker who may do
//! anything but know keys: no word lies there that was not written, not even for a moment.
#![no_main]

#[path = "../../crates/seal/tests/memory/mod.rs"]
mod memory;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let wrong = memory::disagreements(bytes);
    assert!(wrong.is_empty(), "{wrong:#?}");
});
