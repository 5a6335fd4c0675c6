//! A run that is kept: what crossed the link, packet for packet, and what memory held in
//! the end. `UPDATE_GOLDEN=1` writes it anew.

#[path = "support/kept.rs"]
mod kept;

use nic_firmware_model::clan::model::{adapted_trace, disagreements, plain_trace};

/// Apertures with tripwires at both ends; writes of bytes and of words, some beyond the
/// end; DMA, reads, a group; units that come again altered; an aperture that goes while
/// it is written.
const RUN: &[u8] = &[
    7, 0x0e, 0xe0, 0x03, 0, // the set-up
    0, 0, 200, 255, 0, 0, 129, 9, 64, 0, 255, 255, // expose twice here, once there
    7, 0, 4, 64, 4, 0, 7, 1, 0, 200, 90, 4, 7, 0, 16, 3, 3, 16, 62, 0, // watch
    145, 0, 4, 200, 90, 0, 145, 1, 3, 64, 40, 1, 145, 0, 255, 2, 44, 3, 56, 40, // write
    160, 1, 8, 201, 7, 160, 0, 16, 200, 31, 56, 90, // move
    39, 0, 8, 200, 90, 167, 1, 0, 130, 7, 62, 0, // read, both ways
    42, 30, 0, 42, 0, 2, 173, 0, 0, 64, 21, 173, 0, 6, 3, 3, 62, 0, // a group
    49, 2, 3, 9, 49, 4, 9, 3, 49, 3, 14, 1, 56, 30, 49, 1, 6, 1, 62, 0, // altered
    145, 0, 4, 201, 90, 0, 5, 0, 145, 0, 4, 3, 6, 0, 62, 0, 55, 3, 40, 62, 0, // revoked
    145, 0, 4, 200, 90, 0, 160, 0, 16, 200, 31, 62, 0,
];

#[test]
fn the_run_that_is_kept_is_the_same_again() {
    let (capture, lines) = adapted_trace(RUN);
    assert!(kept::blocks(&capture).len() > 60, "hardly anything happens");
    kept::expect("clan.pcapng", &capture, "clan.txt", &lines);
}

#[test]
fn the_host_without_an_adapter_leaves_the_same_trace() {
    let (ours, theirs) = (adapted_trace(RUN), plain_trace(RUN));
    assert_eq!(ours.1, theirs.1);
    kept::compare("the trace of the plain host", &ours.0, &theirs.0);
}

/// What the fuzz target `firmware_clan` runs, over its corpus: so that what was found
/// stays found.
#[test]
fn the_corpus_of_the_fuzzer_shows_no_difference() {
    landfall_testkit::corpus::replay("firmware_clan", 10, disagreements);
}
