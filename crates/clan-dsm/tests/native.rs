//! Hosts around switches beside the naive model of shared memory with tripwires:
//! whatever is split, joined and interleaved on the way.

use clan_dsm::model::native::disagreements;
use landfall_testkit::trials::{rounds, try_inputs};
use proptest::prelude::*;

fn assert_agreement(bytes: &[u8]) {
    let failures = disagreements(bytes);
    assert!(failures.is_empty(), "{bytes:?}: {failures:#?}");
}

proptest! {
    /// Invariant 1: each write takes effect once and in its order, and memory and
    /// the sequence of firings are those of the naive model.
    #[test]
    fn invariant_1_splits_and_joins_are_not_seen(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        assert_agreement(&bytes);
    }
}

#[test]
fn long_runs_agree_with_the_naive_model() {
    try_inputs(0..rounds(50, 5_000), 0..4_000, disagreements);
}
