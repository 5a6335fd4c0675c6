//! What the fuzz targets `defrag_pair`, `defrag_frames` and `defrag_admission` run, over
//! their corpora: so that what was found stays found. And over random bytes.

use landfall_testkit::corpus::replay;
use landfall_testkit::trials::{rounds, try_inputs};
use spec_defrag::admission;
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

fn failures_of_admission(bytes: &[u8]) -> Vec<String> {
    [admission::model::disagreements(bytes), admission::model::misreadings(bytes)].concat()
}

#[test]
fn the_corpus_of_admission_breaks_no_rule() {
    replay("defrag_admission", 20, failures_of_admission);
}

#[test]
fn random_schedules_of_admission_break_no_rule() {
    try_inputs(0xad01..0xad01 + rounds(100, 20_000), 0..3_000, failures_of_admission);
}
