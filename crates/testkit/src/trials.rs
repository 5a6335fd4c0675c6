//! How much is tried: as much as a gate has time for, or more for who asks.

use std::env;

use landfall_placement::Random;

use crate::corpus::Outcome;

/// Whether much is asked for: `LANDFALL_LONG` is set.
#[must_use]
pub fn are_long() -> bool {
    env::var_os("LANDFALL_LONG").is_some()
}

/// How many cases a property test tries: fifty times as many where much is asked for.
#[must_use]
pub fn cases(few: u32) -> u32 {
    if are_long() { few * 50 } else { few }
}

/// Bytes that a seed stands for.
#[must_use]
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    noise_of(&mut Random::from_number(seed), len)
}

fn noise_of(random: &mut Random, len: usize) -> Vec<u8> {
    (0..len).map(|_| random.next_u32() as u8).collect()
}

/// Fewer than `most` bytes that a seed stands for, as a fuzz target takes them.
#[must_use]
pub fn input(seed: u64, most: u64) -> Vec<u8> {
    let mut random = Random::from_number(seed);
    let len = random.below(most) as usize;
    noise_of(&mut random, len)
}

/// Runs a check over random inputs of fewer than `most` bytes: `few` of them, or `many`
/// where much is asked for.
///
/// # Panics
///
/// With the seed of the first input that the check does not pass.
#[track_caller]
pub fn try_inputs<O: Outcome>(few: u64, many: u64, most: u64, check: impl Fn(&[u8]) -> O) {
    for seed in 0..if are_long() { many } else { few } {
        let findings = check(&input(seed, most)).findings();
        assert!(findings.is_empty(), "seed {seed}: {findings:#?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_stands_for_the_same_bytes_always() {
        assert_eq!(noise(3, 50), noise(3, 50));
        assert_ne!(noise(3, 50), noise(4, 50));
        assert!((0..50).all(|seed| input(seed, 10).len() < 10));
    }

    #[test]
    #[should_panic(expected = "seed 0: [\n    \"never right\",\n]")]
    fn the_seed_of_what_fails_is_told() {
        try_inputs(2, 2, 10, |_: &[u8]| vec!["never right".to_owned()]);
    }
}
