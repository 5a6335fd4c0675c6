//! A host whose LANai 9 places what comes as expected, against one whose engine
//! places everything: costs off, the same frames and calls at the same moments.

use crate::kept;
use landfall_placement::Random;
use nic_firmware_model::lanai::model::{
    Carded, Fault, Plain, disagreements, disagreements_with, play,
};
use proptest::prelude::*;

/// What some seed stands for.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::from_number(seed);
    (0..len).map(|_| random.next_u32() as u8).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn with_and_without_a_card_it_is_the_same(bytes in proptest::collection::vec(any::<u8>(), 0..900)) {
        let differ = disagreements(&bytes);
        prop_assert!(differ.is_empty(), "{differ:#?}");
    }
}

/// The property says something only if the card takes much of what comes.
#[test]
fn the_card_takes_much_of_what_comes() {
    let (mut card, mut seam) = (0, 0);
    for seed in 0..8 {
        let bytes = bytes(seed, 1_200);
        let (with, without) = (play::<Carded>(None, &bytes), play::<Plain>(None, &bytes));
        let differ = with.differences(&without);
        assert!(differ.is_empty(), "seed {seed}: {differ:#?}");
        card += with.placed.0;
        seam += without.placed.0;
    }
    // Without a card the engine runs the same seam in its own memory.
    assert!(card > 100 && card * 2 > seam, "cards placed {card} units, the seam {seam}");
}

/// What the fuzz target `firmware_lanai` runs, over its corpus: what was found stays found.
#[test]
fn the_corpus_finds_no_difference() {
    landfall_testkit::corpus::replay("firmware_lanai", 10, disagreements);
}

/// The comparison sees what a programmer may have got wrong.
#[test]
fn every_fault_of_a_firmware_is_seen() {
    for fault in Fault::ALL {
        let is_seen =
            (0..40).any(|seed| !disagreements_with(Some(fault), &bytes(seed, 1_200)).is_empty());
        assert!(is_seen, "{fault:?} is not seen");
    }
}

/// Connections, datagrams, losses and forged frames.
fn scenario() -> Vec<u8> {
    let mut random = Random::from_number(5);
    (0..700).map(|_| random.next_u32() as u8).collect()
}

#[test]
fn it_is_as_it_always_was() {
    let record = play::<Carded>(None, &scenario());
    assert!(record.wrong.is_empty(), "{:?}", record.wrong);
    assert!(record.placed.0 > 0, "the cards placed nothing");
    let memory = record.memory.iter().flat_map(|regions| regions.values());
    let memory: String = memory.map(|bytes| format!("{:016x}\n", kept::digest(bytes))).collect();
    kept::expect("lanai.pcapng", &record.frames, "lanai.memory", &memory);
}
