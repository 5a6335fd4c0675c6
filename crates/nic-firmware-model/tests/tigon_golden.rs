//! A run that is kept: what crossed the link, packet for packet, and what memory
//! held in the end. `UPDATE_GOLDEN=1` writes it anew.

#[path = "support/kept.rs"]
mod kept;

use nic_firmware_model::tigon::model::{adapted_trace, disagreements, plain_trace};

/// Small STUs and Blocks over a link that loses, doubles and overtakes; sends, a
/// read, a region that is refused, frames that come again altered, a Transfer that
/// is ended.
const RUN: &[u8] = &[
    0, 17, 0x28, 0x04, 0x07, 0x40, // the set-up
    1, 0, 62, 0, // connect
    11, 0, 200, 90, 3, 2, 0, 196, 80, 49, 9, // post, send, wait
    37, 0, 5, 7, 37, 1, 9, 30, 38, 2, 73, 1, 49, 30, // other payload, too far, another key
    11, 0, 196, 9, 2, 3, 0, 66, 200, 62, 0, // post, send
    20, 0, 90, 99, 62, 0, 23, 0, 62, 0, 25, 0, 2, 70, 200, 62, 0, // read, ask
    11, 0, 208, 9, 0, 3, 0, 206, 0, 49, 12, 221, 0, 37, 0, 0, 0, 62, 0, // end under way
];

#[test]
fn the_run_that_is_kept_is_the_same_again() {
    let (capture, lines) = adapted_trace(RUN);
    assert!(kept::blocks(&capture).len() > 100, "hardly anything happens");
    kept::expect("tigon.pcapng", &capture, "tigon.txt", &lines);
}

#[test]
fn the_host_without_an_adapter_leaves_the_same_trace() {
    let (ours, theirs) = (adapted_trace(RUN), plain_trace(RUN));
    assert_eq!(ours.1, theirs.1);
    kept::compare("the trace of the plain host", &ours.0, &theirs.0);
}

/// What the fuzz target `firmware_tigon` runs, over its corpus: so that what was
/// found stays found.
#[test]
fn the_corpus_of_the_fuzzer_shows_no_difference() {
    landfall_testkit::corpus::replay("firmware_tigon", 10, disagreements);
}
