//! What the fuzz targets `qpip_pair` and `qpip_packets` run, over their corpora:
//! so that what was found stays found. And over random bytes.

use landfall_testkit::corpus::replay;
use landfall_testkit::trials::{rounds, try_inputs};
use qpip::model::{disagreements, withstand};

#[test]
fn the_corpus_of_pairs_breaks_no_rule() {
    replay("qpip_pair", 10, disagreements);
}

#[test]
fn the_corpus_of_attacks_breaks_no_rule() {
    replay("qpip_packets", 10, withstand);
}

#[test]
fn random_attacks_break_no_rule() {
    try_inputs(0..rounds(200, 20_000), 0..1_500, withstand);
}
