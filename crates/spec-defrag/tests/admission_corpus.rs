//! What the fuzz target `defrag_admission` runs, over its corpus: so that what was found
//! stays found. And over random bytes.

use landfall_testkit::corpus::replay;
use landfall_testkit::trials::{rounds, try_inputs};
use spec_defrag::admission::model::{disagreements, misreadings};

fn failures(bytes: &[u8]) -> Vec<String> {
    [disagreements(bytes), misreadings(bytes)].concat()
}

#[test]
fn the_corpus_of_admission_breaks_no_rule() {
    replay("defrag_admission", 20, failures);
}

#[test]
fn random_schedules_of_admission_break_no_rule() {
    try_inputs(0xad01..0xad01 + rounds(100, 20_000), 0..3_000, failures);
}
