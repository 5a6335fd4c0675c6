//! What the fuzz target `placement_bookkeeping` runs: over random operations,
//! and over its corpus, so that what was found stays found.

use landfall_testkit::corpus::replay;
use landfall_testkit::model::placement_bookkeeping;
use landfall_testkit::trials::{rounds, try_inputs};

#[test]
fn random_operations_break_no_rule() {
    try_inputs(0..rounds(1_000, 50_000), 1..901, placement_bookkeeping);
}

#[test]
fn the_corpus_breaks_no_rule() {
    replay("placement_bookkeeping", 20, placement_bookkeeping);
}
