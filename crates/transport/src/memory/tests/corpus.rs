//! The inputs that the fuzz target `region_table` found worth keeping, replayed.

use landfall_testkit::corpus::replay;

use super::model;

#[test]
fn the_corpus_of_the_fuzz_target_agrees_with_the_model() {
    replay("region_table", 1, model::run);
}
