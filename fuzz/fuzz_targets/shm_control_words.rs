//! Shared memory whose control words a peer writes as it likes.
#![no_main]

use landfall_transport::{memory, shm};
use libfuzzer_sys::fuzz_target;

/// The peer that the property test plays too.
#[path = "../../crates/transport/src/shm/tests/scribbler.rs"]
mod scribbler;

fuzz_target!(|steps: &[u8]| scribbler::run(steps));
