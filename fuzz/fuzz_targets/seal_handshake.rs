//! An attacker who owns the network between the two ends of a handshake, and knows no secret:
//! no end believes what the other has not said, and nothing panics.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| landfall_seal::model::check(bytes));
