//! What the fuzz targets `stp_pair` and `stp_endpoint` run, over their corpora:
//! so that what was found stays found. And over random bytes.

use landfall_testkit::corpus::replay;
use landfall_testkit::trials::{rounds, try_inputs};
use stp_core::model::{disagreements, withstand};

#[test]
fn the_corpus_of_pairs_breaks_no_rule() {
    replay("stp_pair", 10, disagreements);
}

#[test]
fn the_corpus_of_attacks_breaks_no_rule() {
    replay("stp_endpoint", 10, withstand);
}

#[test]
fn random_attacks_break_no_rule() {
    try_inputs(0..rounds(200, 20_000), 0..1_500, withstand);
}
