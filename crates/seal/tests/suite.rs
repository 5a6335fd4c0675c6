//! The tests of `landfall-seal`, in one program.

mod abuse;
mod chunks;
mod groups;
mod handshakes;
mod memory;
mod memory_pair;
mod nonces;
mod pair;
mod providers;
mod records;
mod sealed;
mod sealed_pair;
mod sealed_tls;
mod tls;
mod vectors;
