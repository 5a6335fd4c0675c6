//! Messages that are longer than a packet, over a network that loses, repeats and makes up chunks.

use landfall_seal::MOST_MESSAGE;
use landfall_seal::model::{Fate, check_turns, take_turns};
use landfall_testkit::corpus::replay;
use proptest::prelude::*;

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        4 => Just(Fate::Pass),
        3 => Just(Fate::Cut(0)),
        1 => Just(Fate::Repeat),
        1 => prop::collection::vec(any::<u8>(), 0..300).prop_map(Fate::Replace),
    ]
}

proptest! {
    #[test]
    fn messages_in_turns_are_heard_whole_once_and_in_order(
        lens in prop::collection::vec(any::<u16>(), 1..6),
        fates in prop::collection::vec(fate(), 0..600),
    ) {
        take_turns(&lens, &fates);
    }
}

/// What the fuzz target `seal_turns` runs, over its corpus.
#[test]
fn the_corpus_of_messages_in_turns_breaks_no_rule() {
    replay("seal_turns", 6, check_turns);
}

/// Lengths at the borders of chunks, and the longest.
#[test]
fn messages_at_the_borders_of_chunks_are_heard() {
    let longest = (MOST_MESSAGE - 1) as u16;
    for len in [0, 1, 222, 223, 224, 447, 448, longest - 1, longest] {
        take_turns(&[len, len, 3, len], &[]);
    }
}
