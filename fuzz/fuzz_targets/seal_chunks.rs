//! Messages of a handshake that are longer than a packet, in chunks: a network that loses, repeats
//! and forges some, or a stranger who forges all of them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| landfall_seal::model::check_chunks(bytes));
