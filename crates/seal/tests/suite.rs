//! The tests of `landfall-seal`, in one program.

mod handshakes;
mod nonces;
mod providers;
mod records;
mod sealed;
mod tls;
mod vectors;
