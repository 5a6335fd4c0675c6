//! The naive models of shared memory with tripwires beside the engine: two adapters over a
//! network that loses, doubles, mixes up and damages frames; hosts around switches, where
//! bursts are split, joined and interleaved on the way. And what the fuzz targets `clan_pair`,
//! `clan_native` and `clan_frames` run, over their corpora: so that what was found stays found.

use clan_dsm::model::{native, pair};
use landfall_testkit::corpus::replay;
use landfall_testkit::trials::{rounds, try_inputs};
use proptest::prelude::*;

proptest! {
    /// Invariants 1 to 4 and 7: every write takes effect once, in its order and in
    /// place before it is announced; what is forged, revoked, damaged or repeated
    /// changes nothing; memory and the sequence of firings are the naive model's.
    #[test]
    fn invariants_1_to_4_and_7_writes_are_those_of_the_naive_model(
        bytes in proptest::collection::vec(any::<u8>(), 0..500),
    ) {
        let failures = pair::disagreements(&bytes);
        prop_assert!(failures.is_empty(), "{:?}: {:#?}", bytes, failures);
    }

    /// Invariant 1: each write takes effect once and in its order, and memory and
    /// the sequence of firings are those of the naive model.
    #[test]
    fn invariant_1_splits_and_joins_are_not_seen(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let failures = native::disagreements(&bytes);
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
    let failures = pair::disagreements(&bytes);
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn long_runs_agree_with_the_naive_model() {
    try_inputs(0..rounds(50, 5_000), 0..4_000, pair::disagreements);
}

/// Invariants 3 and 8: a peer that says whatever it likes changes nothing but
/// memory that it has cookies for.
#[test]
fn invariants_3_and_8_any_frames_are_withstood() {
    try_inputs(0..rounds(300, 20_000), 0..1_500, pair::withstand);
}

#[test]
fn long_runs_around_switches_agree_with_the_naive_model() {
    try_inputs(0..rounds(50, 5_000), 0..4_000, native::disagreements);
}

#[test]
fn the_corpus_of_pairs_breaks_no_rule() {
    replay("clan_pair", 10, pair::disagreements);
}

#[test]
fn the_corpus_of_native_links_breaks_no_rule() {
    replay("clan_native", 10, native::disagreements);
}

#[test]
fn the_corpus_of_frames_breaks_no_rule() {
    replay("clan_frames", 10, pair::withstand);
}
