//! The tests of `landfall-seal`, in one program.

mod handshakes;
mod nonces;
mod pair;
mod providers;
mod records;
mod sealed;
mod sealed_pair;
mod sealed_tls;
mod tls;
mod turns;
mod vectors;
