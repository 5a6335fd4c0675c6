//! For any sequence of frames, the speculative engine and a naive reassembler
//! deliver the same packets with the same bytes.

use landfall_placement::Random;
use proptest::prelude::*;
use spec_defrag::model::disagreements;

/// How many cases a property test runs: more if the environment asks for it.
fn cases(few: u32) -> ProptestConfig {
    let cases = if std::env::var_os("LANDFALL_LONG").is_some() { few * 50 } else { few };
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) }
}

/// How many sequences of steps the model is asked about.
fn sequences() -> u64 {
    let asked = std::env::var("LANDFALL_MODEL_SEQUENCES").ok().and_then(|n| n.parse().ok());
    asked.unwrap_or(120)
}

fn random_bytes(seed: u64) -> Vec<u8> {
    let mut random = Random::from_number(seed);
    let len = 4 + random.below(700) as usize;
    (0..len).map(|_| random.next_u32() as u8).collect()
}

/// Whatever senders, the network and the user do.
#[test]
fn model_agrees() {
    for seed in 0..sequences() {
        let bytes = random_bytes(seed);
        let failures = disagreements(&bytes);
        // `model::story` tells how it came to it.
        assert!(failures.is_empty(), "sequence {seed}: {failures:#?}");
    }
}

proptest! {
    #![proptest_config(cases(15))]

    /// The same, with sequences that shrink.
    #[test]
    fn model_agrees_with_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..700)) {
        prop_assert_eq!(disagreements(&bytes), Vec::<String>::new());
    }
}
