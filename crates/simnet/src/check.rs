//! Running a test under many seeds, and telling which one failed.

use std::ops::RangeInclusive;
use std::string::String;

use crate::sim::Sim;

/// The environment variable that replays one run.
pub const SEED_VARIABLE: &str = "LANDFALL_SEED";

/// Prints the seed of a run that panics.
struct Printer(u64);

impl Drop for Printer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let seed = self.0;
            eprintln!("this run had seed {seed}: repeat it with {SEED_VARIABLE}={seed}");
        }
    }
}

/// Runs a test once for each seed, with a network of that seed.
///
/// A run that panics prints its seed. With `LANDFALL_SEED=n` in the
/// environment only the run of that seed takes place.
///
/// # Panics
/// As the test does, and where `LANDFALL_SEED` is not a number.
pub fn check(seeds: RangeInclusive<u64>, mut test: impl FnMut(&mut Sim)) {
    let replay = std::env::var(SEED_VARIABLE).ok().map(|value| parse(&value));
    for seed in replay.map_or(seeds, |seed| seed..=seed) {
        let _printer = Printer(seed);
        test(&mut Sim::from_number(seed));
    }
}

fn parse(value: &str) -> u64 {
    let message = || -> String { format!("{SEED_VARIABLE} must be a number, not {value:?}") };
    value.trim().parse().unwrap_or_else(|_| panic!("{}", message()))
}
