//! Properties that hold for whatever comes, and the inputs of the fuzz target `region_table`
//! that were found worth keeping, replayed.

#[cfg(not(miri))]
use landfall_testkit::corpus::replay;
use proptest::prelude::*;

use super::model;
use crate::memory::{Memory, Pins, Regions, Rights};

/// Miri is slow, and may not write failures to a file.
fn config() -> ProptestConfig {
    let cases = if cfg!(miri) { 3 } else { 512 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    /// Invariants 1, 3, 5 and 7 too: the model knows what a stale name, a
    /// wrong right, a span out of bounds or a full table has to give, and
    /// that nothing else changes a byte.
    #[test]
    fn invariant_8_no_sequence_of_calls_panics_or_strays_from_the_model(
        sequence in prop::collection::vec(any::<u8>(), 0..if cfg!(miri) { 200 } else { 2000 }),
    ) {
        model::run(&sequence);
    }

    #[test]
    fn copies_and_sums_are_exact_at_every_offset(
        offset in 0usize..40,
        bytes in prop::collection::vec(any::<u8>(), 0..if cfg!(miri) { 70 } else { 3000 }),
        behind in 0usize..20,
        fill in any::<u8>(),
    ) {
        let regions = Regions::new(1);
        let mut memory = Memory::zeroed(offset + bytes.len() + behind);
        memory.fill(fill);
        let mut expected = memory.to_vec();
        expected[offset..offset + bytes.len()].copy_from_slice(&bytes);

        let id = regions.lend(memory, Rights::ALL).unwrap();
        let span = id.span(offset as u64, bytes.len() as u32);
        let mut pins = Pins::new(&regions);
        pins.copy_in(&span, &bytes).unwrap();
        let mut out = vec![0; bytes.len()];
        pins.copy_out(&span, &mut out).unwrap();
        prop_assert_eq!(&out, &bytes);
        let mut sum = landfall_placement::InternetSum::new();
        sum.add(&bytes);
        prop_assert_eq!(pins.sum(&[span]).unwrap(), sum);
        pins.release();
        prop_assert_eq!(&regions.take_back(id).unwrap()[..], &expected[..]);
    }
}

// Miri has no files.
#[cfg(not(miri))]
#[test]
fn the_corpus_of_the_fuzz_target_agrees_with_the_model() {
    replay("region_table", 1, model::run);
}
