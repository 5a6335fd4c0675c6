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

/// Two flips in one frame, each of which a sum of words sees, and together it does not:
/// what the network of the model must not do, for nothing could be told from it.
#[test]
fn a_frame_is_damaged_in_one_bit_only() {
    let bytes = [
        71, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 38, 0, 0, 36, 0, 0, 0, 0, 0, 185, 0, 0, 0,
        47, 160, 163, 0, 126, 4, 0, 19, 0, 0, 233, 0, 0, 0, 0, 0, 0, 0, 0, 28, 0, 166, 0, 0, 4, 0,
        0, 0, 0, 0, 80, 0, 112, 0, 95, 1, 32, 13, 0, 30, 123, 0, 72, 44, 80, 0, 32, 0, 0, 0, 0, 0,
        0, 0, 249, 115, 14, 181, 25, 0, 0, 0, 249, 18, 13, 61,
    ];
    let failures = disagreements(&bytes);
    assert!(failures.is_empty(), "{failures:#?}");
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
