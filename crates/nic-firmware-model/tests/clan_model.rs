//! A host behind a CLAN adapter and a host without do the same, bit for bit: whatever
//! comes, whatever its user does, with costs off.

use crate::kept;
use landfall_placement::Random;
use nic_firmware_model::clan::model::{Fault, adapted, disagreements, disagreements_with, plain};
use proptest::prelude::*;

/// A run of many steps, from a number.
fn steps(seed: u64) -> Vec<u8> {
    let mut random = Random::from_number(seed);
    let len = 80 + random.below(400) as usize;
    let mut bytes: Vec<u8> = (0..len).map(|_| random.next_u32() as u8).collect();
    if seed.is_multiple_of(2) {
        // A link that is as good as the paper's.
        bytes[4] = 0;
    }
    // Memory at both ends, some of it watched.
    let opening = [0, 0, 200, 255, 0, 0, 129, 9, 64, 0, 255, 255, 7, 0, 4, 3, 3, 0, 62, 0];
    bytes.splice(5..5, opening);
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn the_adapter_changes_nothing_that_anybody_can_see(seed in any::<u64>()) {
        let found = disagreements(&steps(seed));
        prop_assert!(found.is_empty(), "{:#?}", found);
    }

    #[test]
    fn whatever_the_bytes_stand_for(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let found = disagreements(&bytes);
        prop_assert!(found.is_empty(), "{:#?}", found);
    }
}

/// The runs in which faults are looked for.
const RUNS: std::ops::Range<u64> = 0..48;

#[test]
fn the_runs_are_worth_it() {
    let (mut told, mut sent, mut came, mut offloaded) = (0, 0, 0, 0);
    for seed in RUNS {
        let record = plain(&steps(seed));
        assert!(record.wrong.is_empty(), "{:?}", record.wrong);
        let size = record.size();
        (told, sent, came) = (told + size.0, sent + size.1, came + size.2);
        offloaded += adapted(None, &steps(seed)).placed.0;
    }
    let all = (told, sent, came, offloaded);
    assert!(told > 1_000 && sent > 2_000 && came > 2_000, "hardly anything happens: {all:?}");
    assert!(offloaded > 500, "hardly anything is the adapter's: {all:?}");
}

#[test]
fn each_of_thirteen_faults_is_caught() {
    for seed in RUNS {
        assert_eq!(disagreements(&steps(seed)), [] as [String; 0], "run {seed}, without a fault");
    }
    let caught = |fault| {
        RUNS.into_iter().find(|seed| !disagreements_with(Some(fault), &steps(*seed)).is_empty())
    };
    for fault in Fault::ALL {
        assert!(caught(fault).is_some(), "{fault:?} was not noticed in any run");
    }
}

/// Apertures with tripwires at both ends; writes of bytes and of words, some beyond the
/// end; DMA, reads, a group; units that come again altered; an aperture that goes while
/// it is written.
const RUN: &[u8] = &[
    7, 0x0e, 0xe0, 0x03, 0, // the set-up
    0, 0, 200, 255, 0, 0, 129, 9, 64, 0, 255, 255, // expose twice here, once there
    7, 0, 4, 64, 4, 0, 7, 1, 0, 200, 90, 4, 7, 0, 16, 3, 3, 16, 62, 0, // watch
    145, 0, 4, 200, 90, 0, 145, 1, 3, 64, 40, 1, 145, 0, 255, 2, 44, 3, 56, 40, // write
    160, 1, 8, 201, 7, 160, 0, 16, 200, 31, 56, 90, // move
    39, 0, 8, 200, 90, 167, 1, 0, 130, 7, 62, 0, // read, both ways
    42, 30, 0, 42, 0, 2, 173, 0, 0, 64, 21, 173, 0, 6, 3, 3, 62, 0, // a group
    49, 2, 3, 9, 49, 4, 9, 3, 49, 3, 14, 1, 56, 30, 49, 1, 6, 1, 62, 0, // altered
    145, 0, 4, 201, 90, 0, 5, 0, 145, 0, 4, 3, 6, 0, 62, 0, 55, 3, 40, 62, 0, // revoked
    145, 0, 4, 200, 90, 0, 160, 0, 16, 200, 31, 62, 0,
];

#[test]
fn the_run_that_is_kept_is_the_same_again() {
    let record = adapted(None, RUN);
    assert!(kept::blocks(&record.frames).len() > 60, "hardly anything happens");
    kept::expect("clan.pcapng", &record.frames, "clan.txt", &record.lines());
}

#[test]
fn the_host_without_an_adapter_leaves_the_same_trace() {
    let (ours, theirs) = (adapted(None, RUN), plain(RUN));
    assert_eq!(ours.lines(), theirs.lines());
    kept::compare("the trace of the plain host", &ours.frames, &theirs.frames);
}

/// What the fuzz target `firmware_clan` runs, over its corpus: so that what was found
/// stays found.
#[test]
fn the_corpus_of_the_fuzzer_shows_no_difference() {
    landfall_testkit::corpus::replay("firmware_clan", 10, disagreements);
}
