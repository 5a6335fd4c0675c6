//! Two ends under an active attacker: [`pair`](crate::pair) has what must hold.

use landfall_testkit::corpus::replay;
use landfall_testkit::trials;
use proptest::prelude::*;

use crate::pair::disagreements;

fn check(bytes: &[u8]) {
    let wrong = disagreements(bytes);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(trials::cases(96))
    })]

    #[test]
    fn no_attacker_delivers_what_was_not_sent(bytes in prop::collection::vec(any::<u8>(), 0..260)) {
        check(&bytes);
    }
}

/// What the fuzz target `seal_pair` runs, over its corpus: so that what was found stays found.
#[test]
fn the_corpus_of_a_sealed_pair_breaks_no_rule() {
    replay("seal_pair", 6, check);
}
