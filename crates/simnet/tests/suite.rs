//! All tests of this crate's public face, as one program: this many of their own take longer
//! to link than to run. Each file says what it tests.

#![allow(unreachable_pub, reason = "what the files share is theirs")]

mod capture;
mod common;
mod contract;
mod halves;
mod links;
mod numbered;
mod replay;
mod stream;
mod switch;
mod traffic;
