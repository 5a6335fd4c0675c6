//! A host behind a Tigon-II and a host without do the same, bit for bit: whatever
//! comes, whatever its user does, with costs off.

use crate::kept;
use landfall_placement::Random;
use nic_firmware_model::tigon::model::{Fault, adapted, disagreements, disagreements_with, plain};
use proptest::prelude::*;

/// A run of many steps, from a number.
fn steps(seed: u64) -> Vec<u8> {
    let mut random = Random::from_number(seed);
    let len = 60 + random.below(200) as usize;
    let mut bytes: Vec<u8> = (0..len).map(|_| random.next_u32() as u8).collect();
    // A connection, and memory in which something is to come.
    let opening = [1, 0, 62, 0, 14, 0, 200, 90, 3, 14, 0, 210, 4, 0, 5, 0, 199, 80, 6, 0, 213, 7];
    bytes.splice(6..6, opening);
    if seed.is_multiple_of(3) {
        narrow(&mut bytes, &mut random);
    }
    bytes
}

/// Small STUs, a slow link and a small window, so that Blocks stay open for long;
/// and frames of the peer that come again while they are, for the next STU.
fn narrow(bytes: &mut Vec<u8>, random: &mut Random) {
    bytes[2] = bytes[2] & !8 | 32;
    bytes[3] &= !(3 | 32);
    bytes[4] = 0;
    let mut forged = Vec::new();
    for round in 0..12 {
        let (fine, lead) = (random.next_u32() as u8, random.next_u32() as u8 & 0xfe);
        forged.extend([14, 0, 223, 255, lead, 5, 0, 216, fine]);
        for nth in 0..12 {
            let (wait, which) = (random.below(4) as u8, random.below(6) as u8);
            let (how, by) = (9 | (random.next_u32() as u8 & 64), random.below(32) as u8);
            forged.extend([49, wait, 37, which, how, by]);
            // The peer ends what it sends.
            if nth == 8 && round % 3 == 1 {
                forged.extend([29 | 128 | 64, 0]);
            }
        }
    }
    bytes.splice(28..28, forged);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn the_adapter_changes_nothing_that_anybody_can_see(seed in any::<u64>()) {
        let found = disagreements(&steps(seed));
        prop_assert!(found.is_empty(), "{:#?}", found);
    }

    #[test]
    fn whatever_the_bytes_stand_for(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let found = disagreements(&bytes);
        prop_assert!(found.is_empty(), "{:#?}", found);
    }
}

/// The runs in which faults are looked for.
const RUNS: std::ops::Range<u64> = 0..32;

#[test]
fn the_runs_are_worth_it() {
    let mut sum = (0, 0, 0);
    for seed in RUNS.take(20) {
        let record = plain(&steps(seed));
        assert!(record.wrong.is_empty(), "{:?}", record.wrong);
        let (told, sent, came) = record.size();
        sum = (sum.0 + told, sum.1 + sent, sum.2 + came);
    }
    assert!(sum.0 > 200 && sum.1 > 400 && sum.2 > 400, "hardly anything happens: {sum:?}");
    let mut taken = 0;
    for seed in RUNS.take(20) {
        taken += adapted(None, &steps(seed)).size().2;
    }
    assert_eq!(taken, sum.2);
}

#[test]
fn each_of_ten_faults_is_caught() {
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

/// Small STUs and Blocks over a link that loses, doubles and overtakes; sends, a
/// read, a region that is refused, frames that come again altered, a Transfer that
/// is ended.
const RUN: &[u8] = &[
    0, 17, 0x28, 0x04, 0x07, 0x40, // the set-up
    1, 0, 62, 0, // connect
    11, 0, 200, 90, 3, 2, 0, 196, 80, 49, 9, // post, send, wait
    37, 0, 5, 7, 37, 1, 9, 30, 38, 2, 73, 1, 49, 30, // other payload, too far, another key
    11, 0, 196, 9, 2, 3, 0, 66, 200, 62, 0, // post, send
    20, 0, 90, 99, 62, 0, 23, 0, 62, 0, 25, 0, 2, 70, 200, 62, 0, // read, ask
    11, 0, 208, 9, 0, 3, 0, 206, 0, 49, 12, 221, 0, 37, 0, 0, 0, 62, 0, // end under way
];

#[test]
fn the_run_that_is_kept_is_the_same_again() {
    let record = adapted(None, RUN);
    assert!(kept::blocks(&record.frames).len() > 100, "hardly anything happens");
    kept::expect("tigon.pcapng", &record.frames, "tigon.txt", &record.lines());
}

#[test]
fn the_host_without_an_adapter_leaves_the_same_trace() {
    let (ours, theirs) = (adapted(None, RUN), plain(RUN));
    assert_eq!(ours.lines(), theirs.lines());
    kept::compare("the trace of the plain host", &ours.frames, &theirs.frames);
}

/// What the fuzz target `firmware_tigon` runs, over its corpus: so that what was
/// found stays found.
#[test]
fn the_corpus_of_the_fuzzer_shows_no_difference() {
    landfall_testkit::corpus::replay("firmware_tigon", 10, disagreements);
}
