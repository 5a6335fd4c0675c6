//! What the fuzz targets `clan_pair`, `clan_native` and `clan_frames` run, over their
//! corpora: so that what was found stays found.

use clan_dsm::model::{native, pair};
use landfall_testkit::corpus::replay;

#[test]
fn the_corpus_of_pairs_breaks_no_rule() {
    replay("clan_pair", 10, pair::disagreements);
}

#[test]
fn the_corpus_of_native_links_breaks_no_rule() {
    replay("clan_native", 10, native::disagreements);
}

#[test]
fn the_corpus_of_frames_breaks_no_rule() {
    replay("clan_frames", 10, pair::withstand);
}
