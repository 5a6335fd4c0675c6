//! Hosts around switches beside the naive model of shared memory with tripwires:
//! whatever is split, joined and interleaved on the way.

use clan_dsm::model::native::disagreements;
use landfall_placement::Random;
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
    let rounds = if std::env::var_os("LANDFALL_LONG").is_some() { 5_000 } else { 50 };
    for seed in 0..rounds {
        let mut random = Random::from_number(seed);
        let len = random.below(4_000) as usize;
        let bytes: Vec<u8> = (0..len).map(|_| random.next_u32() as u8).collect();
        let failures = disagreements(&bytes);
        assert!(failures.is_empty(), "run {seed}: {failures:#?}");
    }
}
