//! The byte stream over the naive wire.

use crate::support::BAD;
use crate::support::stream::{Transfer, framings};
use landfall_placement::PathId;
use landfall_testkit::engines::stream::Config;
use landfall_testkit::model::Faults;

#[test]
fn streams_of_every_framing_come_whole() {
    for framing in framings() {
        for cuts in [false, true] {
            let config = Config::new(framing, PathId(0));
            let small = Transfer { piece: 777, slot: 1000, slots: 7, total: 50_000 };
            small.run(config, cuts, Faults::default(), 1);
            let large = Transfer { piece: 300_000, slot: 57_920, slots: 16, total: 3_000_000 };
            large.run(config.steady(), cuts, Faults::default(), 1);
        }
    }
}

#[test]
fn faults_cost_time_only() {
    for (n, framing) in framings().into_iter().enumerate() {
        for seed in 0..5 {
            let mut config = Config::new(framing, PathId(0));
            config.checksum = true;
            config.give_up_after = 100;
            let cuts = (seed + n as u64).is_multiple_of(2);
            let many = Transfer { piece: 3_001, slot: 2_999, slots: 20, total: 200_000 };
            many.run(config, cuts, BAD, seed);
            let few = Transfer { piece: 100_000, slot: 70_000, slots: 3, total: 500_000 };
            few.run(config, cuts, BAD, seed);
        }
    }
}
