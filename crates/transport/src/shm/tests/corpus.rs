//! The inputs that the fuzz target `shm_control_words` found worth keeping, replayed;
//! and random ones.

use landfall_testkit::corpus::replay;
use proptest::prelude::*;

use super::scribbler;

#[test]
fn the_corpus_of_the_fuzz_target_breaks_nothing() {
    replay("shm_control_words", 1, scribbler::run);
}

proptest! {
    /// Invariants 3, 5 and 8 against a peer that writes anything anywhere.
    #[test]
    fn a_peer_that_scribbles_breaks_nothing(
        steps in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        scribbler::run(&steps);
    }
}
