//! Two adapters over a network that loses, doubles, mixes up and damages frames,
//! beside the naive model.

use clan_dsm::model::pair::{disagreements, withstand};
use landfall_placement::Random;
use proptest::prelude::*;

proptest! {
    /// Invariants 1 to 4 and 7: every write takes effect once, in its order and in
    /// place before it is announced; what is forged, revoked, damaged or repeated
    /// changes nothing; memory and the sequence of firings are the naive model's.
    #[test]
    fn invariants_1_to_4_and_7_writes_are_those_of_the_naive_model(
        bytes in proptest::collection::vec(any::<u8>(), 0..500),
    ) {
        let failures = disagreements(&bytes);
        prop_assert!(failures.is_empty(), "{:?}: {:#?}", bytes, failures);
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

/// Invariants 3 and 8: a peer that says whatever it likes changes nothing but
/// memory that it has cookies for.
#[test]
fn invariants_3_and_8_any_frames_are_withstood() {
    let rounds = if std::env::var_os("LANDFALL_LONG").is_some() { 20_000 } else { 300 };
    for seed in 0..rounds {
        let mut random = Random::from_number(seed);
        let len = random.below(1_500) as usize;
        let bytes: Vec<u8> = (0..len).map(|_| random.next_u32() as u8).collect();
        let failures = withstand(&bytes);
        assert!(failures.is_empty(), "frames {seed}: {failures:#?}");
    }
}
