//! What the fuzz targets `defrag_pair` and `defrag_frames` run, over their corpora:
//! so that what was found stays found. And over random bytes.

use landfall_testkit::corpus::replay;
use landfall_testkit::trials::{rounds, try_inputs};
use spec_defrag::model::{disagreements, withstand};

#[test]
fn the_corpus_of_pairs_breaks_no_rule() {
    replay("defrag_pair", 10, disagreements);
}

#[test]
fn the_corpus_of_frames_breaks_no_rule() {
    replay("defrag_frames", 10, withstand);
}

#[test]
fn random_frames_break_no_rule() {
    try_inputs(0..rounds(200, 20_000), 0..1_500, withstand);
}
