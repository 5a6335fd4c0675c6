//! The eight invariants of the architecture, each held by tests that name it,
//! and the engine beside a naive model of it.

use landfall_placement::Random;
use stp_core::model::disagreements;

/// How many sequences of operations the model is asked about.
fn sequences() -> u64 {
    let asked = std::env::var("LANDFALL_MODEL_SEQUENCES").ok().and_then(|n| n.parse().ok());
    asked.unwrap_or(400)
}

fn random_bytes(seed: u64) -> Vec<u8> {
    let mut random = Random::from_number(seed);
    let len = 4 + random.below(900) as usize;
    (0..len).map(|_| random.next_u32() as u8).collect()
}

/// Whatever users, drivers and the network do: the engines and the naive model
/// of them agree, and all that was begun ends.
#[test]
fn model_agrees() {
    for seed in 0..sequences() {
        let failures = disagreements(&random_bytes(seed));
        assert!(failures.is_empty(), "sequence {seed}: {failures:#?}");
    }
}
