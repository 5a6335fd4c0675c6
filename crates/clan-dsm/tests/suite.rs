//! All tests of this crate's public face, as one program: this many of their own take longer
//! to link than to run. Each file says what it tests.

#![allow(unreachable_pub, reason = "what the files share is theirs")]

mod by_hand;
mod dissector;
mod endings;
mod faults;
mod grants;
mod invariants;
mod invariants_of_bounds;
mod multicast;
mod native_link;
mod native_network;
mod net;
mod questions;
mod scenarios;
mod world;
