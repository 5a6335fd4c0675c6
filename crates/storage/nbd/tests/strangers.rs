//! Any bytes, by the oracles of the fuzz targets.

use landfall_nbd::model::{disagreements, withstand};
use landfall_testkit::corpus::replay;
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, proptest};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn both_ends_agree_whatever_the_network_cuts(bytes in vec(any::<u8>(), 0..400)) {
        assert_eq!(disagreements(&bytes), Vec::<String>::new());
    }

    #[test]
    fn no_bytes_of_a_stranger_break_a_bound(bytes in vec(any::<u8>(), 0..400)) {
        assert_eq!(withstand(&bytes), Vec::<String>::new());
    }
}

#[test]
fn the_corpus_of_pairs_breaks_no_rule() {
    replay("nbd_pair", 4, |bytes| assert_eq!(disagreements(bytes), Vec::<String>::new()));
}

#[test]
fn the_corpus_of_strangers_breaks_no_rule() {
    replay("nbd_stranger", 4, |bytes| assert_eq!(withstand(bytes), Vec::<String>::new()));
}
