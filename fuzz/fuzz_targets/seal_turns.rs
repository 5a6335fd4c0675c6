//! Messages of a handshake that are longer than a packet, and take turns: a network that loses,
//! repeats and makes up their chunks, or a stranger who makes up all of them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| landfall_seal::model::check_turns(bytes));
