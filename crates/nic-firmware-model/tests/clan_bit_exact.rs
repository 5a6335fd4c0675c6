//! A host behind a CLAN adapter and a host without do the same, bit for bit: whatever
//! comes, whatever its user does, with costs off.

use landfall_placement::Random;
use nic_firmware_model::clan::model::{
    Fault, disagreements, disagreements_with, plain, put_in_place,
};
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
        assert_eq!(record.failure(), None);
        let size = record.size();
        (told, sent, came) = (told + size.0, sent + size.1, came + size.2);
        offloaded += put_in_place(&steps(seed));
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
        RUNS.into_iter().find(|seed| !disagreements_with(&steps(*seed), Some(fault)).is_empty())
    };
    for fault in Fault::ALL {
        assert!(caught(fault).is_some(), "{fault:?} was not noticed in any run");
    }
}
