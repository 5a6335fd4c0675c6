//! What the fuzz targets `qpip_pair` and `qpip_packets` run, over their corpora:
//! so that what was found stays found. And over random bytes.

use landfall_placement::Random;
use landfall_testkit::corpus::replay;
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
    let rounds = if std::env::var_os("LANDFALL_LONG").is_some() { 20_000 } else { 200 };
    for seed in 0..rounds {
        let mut random = Random::from_number(seed);
        let len = random.below(1_500) as usize;
        let bytes: Vec<u8> = (0..len).map(|_| random.next_u32() as u8).collect();
        let failures = withstand(&bytes);
        assert!(failures.is_empty(), "attack {seed}: {failures:#?}");
    }
}
