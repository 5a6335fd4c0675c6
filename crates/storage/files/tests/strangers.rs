//! Any bytes, by the oracle of the fuzz target.

use landfall_files::model::withstand;
use landfall_testkit::corpus::replay;
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, proptest};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn no_bytes_of_a_stranger_break_a_bound(bytes in vec(any::<u8>(), 0..200)) {
        assert_eq!(withstand(&bytes), Vec::<String>::new());
    }
}

#[test]
fn the_corpus_of_requests_breaks_no_rule() {
    replay("files_requests", 4, |bytes| assert_eq!(withstand(bytes), Vec::<String>::new()));
}
