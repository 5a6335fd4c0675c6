//! All tests of this crate's public face, as one program: this many of their own take longer
//! to link than to run. Each file says what it tests.

#![cfg(feature = "std")]

mod clan_faults;
mod clan_flow;
mod clan_switch;
mod hamachi_faults;
mod kept;
mod lanai_faults;
mod lanai_switch;
mod models;
mod reproduction;
mod tigon_faults;
