//! All tests of this crate's public face, as one program: this many of their own take longer
//! to link than to run. Each file says what it tests.

#![allow(unreachable_pub, reason = "what the files share is theirs")]

mod abuse;
mod answered_later;
mod answers;
mod captured_run;
mod collectives;
mod congestion;
mod connections;
mod cubic;
mod dissector;
mod eager;
mod endings;
mod independence;
mod invariants;
mod moving;
mod offload;
mod partings;
mod preferences;
mod proofs;
mod puts;
mod ranks;
mod regions;
mod room;
mod runs;
mod scheduling;
mod sizes;
mod striping;
mod support;
mod transfers;
mod two;
mod wire;
mod world;
