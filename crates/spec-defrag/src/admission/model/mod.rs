//! A gate and its senders under any schedule of a bad network, beside a naive judge.
//!
//! Bytes decide everything: how many senders there are, what they do, which frames are
//! lost, repeated, delayed or forged. Property tests and the fuzz target share it.

mod judge;
mod parsing;
mod world;

use alloc::string::String;
use alloc::vec::Vec;

use landfall_placement::{Duration, Random};

pub use self::parsing::misreadings;
use self::world::{Fault, World};

/// Bytes as choices; after their end all are zero.
#[derive(Debug)]
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::from(self.next()) % bound.max(1)
    }

    /// Short times and long ones, up to two seconds.
    fn time(&mut self) -> Duration {
        let (value, scale) = (u64::from(self.next()) + 1, self.below(4) as u32);
        Duration::from_micros(value * 20_u64.pow(scale))
    }
}

/// Runs what the bytes say, then lets everything come right, and gives what broke a rule.
#[must_use]
pub fn disagreements(bytes: &[u8]) -> Vec<String> {
    let mut choices = Choices(bytes);
    let senders = 1 + choices.below(8);
    let streams = 1 + choices.below(3) as u16;
    let mut world = World::new(senders, streams, choices.next());
    while !choices.is_over() && world.is_fine() {
        step(&mut world, &mut choices);
    }
    world.come_right();
    world.failures()
}

fn step(world: &mut World, choices: &mut Choices<'_>) {
    let who = choices.below(world.senders());
    match choices.below(16) {
        0..=3 => world.run_for(choices.time()),
        4 => world.ask(who),
        5 => world.begin(who, u64::from(choices.next()) << choices.below(16)),
        6 => world.end(who, choices.below(4)),
        7..=8 => {
            let (packets, len) = (choices.below(32), u64::from(choices.next()) * 257);
            world.send(who, packets, len);
        }
        9 => world.next_frame(Fault::Lost),
        10 => world.next_frame(Fault::Twice(choices.time())),
        11 => world.next_frame(Fault::Late(choices.time())),
        12 => world.replay(choices.below(256), choices.time()),
        13 => {
            let mut random = Random::from_number(choices.next().into());
            world.forge(&mut random);
        }
        14 => world.kill(who),
        _ if choices.below(8) == 0 => world.restart_gate(),
        _ => world.revive(who),
    }
}

#[cfg(test)]
mod tests {
    use landfall_testkit::trials::{input, rounds, try_inputs};

    use super::*;

    #[test]
    fn no_sequence_of_calls_and_faults_breaks_a_rule() {
        try_inputs(0..rounds(400, 50_000), 0..2_000, disagreements);
    }

    #[test]
    fn no_bytes_are_misread() {
        try_inputs(0..4_000, 0..80, misreadings);
    }

    #[test]
    fn invariant_6_two_runs_are_the_same() {
        let bytes = input(1, 0..4_000);
        let run = || {
            let mut choices = Choices(&bytes);
            let mut world = World::new(5, 2, 9);
            while !choices.is_over() {
                step(&mut world, &mut choices);
            }
            world.digest()
        };
        assert_eq!(run(), run());
    }
}
