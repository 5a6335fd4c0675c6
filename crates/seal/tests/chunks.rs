//! Messages that are longer than a packet, over a network that loses, repeats and makes up chunks.

use landfall_seal::model::{Fate, check_chunks, exchange_messages};
use landfall_seal::{HandshakeUnits, MOST_MESSAGE};
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
    fn messages_in_chunks_arrive_whole_once_and_in_order(
        lens in prop::collection::vec(any::<u16>(), 1..6),
        fates in prop::collection::vec(fate(), 0..600),
    ) {
        for units in HandshakeUnits::ALL {
            exchange_messages(units, &lens, &fates);
        }
    }
}

/// What the fuzz target `seal_chunks` runs, over its corpus.
#[test]
fn the_corpus_of_messages_in_chunks_breaks_no_rule() {
    replay("seal_chunks", 6, check_chunks);
}

/// Lengths at the borders of chunks, and the longest.
#[test]
fn messages_at_the_borders_of_chunks_arrive() {
    let longest = (MOST_MESSAGE - 1) as u16;
    for len in [0, 1, 190, 191, 192, 222, 223, 224, 383, 384, 447, 448, longest - 1, longest] {
        for units in HandshakeUnits::ALL {
            exchange_messages(units, &[len, len, 3, len], &[]);
        }
    }
}
