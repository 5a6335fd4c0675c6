//! How much is tried: as much as a gate has time for, or more for who asks.

use std::env;
use std::fs::File;
use std::io::Write as _;
use std::ops::Range;

use landfall_placement::Random;

use crate::corpus::Outcome;

/// Whether much is asked for: `LANDFALL_LONG` is set.
#[must_use]
pub fn are_long() -> bool {
    env::var_os("LANDFALL_LONG").is_some()
}

/// How often something is tried: `many` times where much is asked for.
#[must_use]
pub fn rounds(few: u64, many: u64) -> u64 {
    if are_long() { many } else { few }
}

/// How many cases a property test tries: fifty times as many where much is asked for.
#[must_use]
pub fn cases(few: u32) -> u32 {
    if are_long() { few * 50 } else { few }
}

/// How many sequences of operations a model is asked about: as many as
/// `LANDFALL_MODEL_SEQUENCES` says.
#[must_use]
pub fn sequences(usual: u64) -> u64 {
    let asked = env::var("LANDFALL_MODEL_SEQUENCES").ok().and_then(|n| n.parse().ok());
    asked.unwrap_or(usual)
}

/// How often a test that kills processes goes round: `LANDFALL_KILLS` times as often as usual.
#[must_use]
pub fn kills(usual: u64) -> u64 {
    let times = env::var("LANDFALL_KILLS").ok().and_then(|times| times.parse().ok());
    usual * times.unwrap_or(1)
}

/// Counts processes that a test has killed, in the file that `LANDFALL_KILL_COUNT` names:
/// `bash .ci/run kills` adds them up.
///
/// # Panics
/// If the file cannot be written.
pub fn count_kills(of: &str, many: u64) {
    let Some(path) = env::var_os("LANDFALL_KILL_COUNT") else { return };
    let file = File::options().append(true).create(true).open(path);
    let line = format!("{many} {of}\n");
    file.and_then(|mut file| file.write_all(line.as_bytes())).expect("kills are counted");
}

/// Bytes that a seed stands for.
#[must_use]
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    noise_of(&mut Random::from_number(seed), len)
}

fn noise_of(random: &mut Random, len: usize) -> Vec<u8> {
    (0..len).map(|_| random.next_u32() as u8).collect()
}

/// Bytes that a seed stands for, as many as one of these lengths, as a fuzz target takes
/// them.
#[must_use]
pub fn input(seed: u64, lens: Range<u64>) -> Vec<u8> {
    let mut random = Random::from_number(seed);
    let len = lens.start + random.below(lens.end - lens.start);
    noise_of(&mut random, len as usize)
}

/// Runs a check over the inputs of these lengths that seeds stand for.
///
/// # Panics
///
/// With the seed of the first input that the check does not pass.
#[track_caller]
pub fn try_inputs<O: Outcome>(seeds: Range<u64>, lens: Range<u64>, check: impl Fn(&[u8]) -> O) {
    for seed in seeds {
        let findings = check(&input(seed, lens.clone())).findings();
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
        assert!((0..50).all(|seed| (3..10).contains(&input(seed, 3..10).len())));
    }

    #[test]
    #[should_panic(expected = "seed 0: [\n    \"never right\",\n]")]
    fn the_seed_of_what_fails_is_told() {
        try_inputs(0..2, 0..10, |_: &[u8]| vec!["never right".to_owned()]);
    }
}
