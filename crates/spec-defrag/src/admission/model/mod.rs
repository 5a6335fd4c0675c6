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
use landfall_testkit::model::Choices;

pub use self::parsing::misreadings;
use self::world::{Fault, World};

/// Short times and long ones, up to two seconds.
fn time(choices: &mut Choices<'_>) -> Duration {
    let (value, scale) = (u64::from(choices.byte()) + 1, choices.below(4) as u32);
    Duration::from_micros(value * 20_u64.pow(scale))
}

/// Runs what the bytes say, then lets everything come right, and gives what broke a rule.
#[must_use]
pub fn disagreements(bytes: &[u8]) -> Vec<String> {
    let mut choices = Choices::new(bytes);
    let senders = 1 + choices.below(8);
    let streams = 1 + choices.below(3) as u16;
    let mut world = World::new(senders, streams, choices.byte());
    while !choices.is_over() && world.is_fine() {
        step(&mut world, &mut choices);
    }
    world.come_right();
    world.failures()
}

fn step(world: &mut World, choices: &mut Choices<'_>) {
    let who = choices.below(world.senders());
    match choices.below(16) {
        0..=3 => world.run_for(time(choices)),
        4 => world.ask(who),
        5 => world.begin(who, u64::from(choices.byte()) << choices.below(16)),
        6 => world.end(who, choices.below(4)),
        7..=8 => {
            let (packets, len) = (choices.below(32), u64::from(choices.byte()) * 257);
            world.send(who, packets, len);
        }
        9 => world.next_frame(Fault::Lost),
        10 => world.next_frame(Fault::Twice(time(choices))),
        11 => world.next_frame(Fault::Late(time(choices))),
        12 => world.replay(choices.below(256), time(choices)),
        13 => {
            let mut random = Random::from_number(choices.byte().into());
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
            let mut choices = Choices::new(&bytes);
            let mut world = World::new(5, 2, 9);
            while !choices.is_over() {
                step(&mut world, &mut choices);
            }
            world.digest()
        };
        assert_eq!(run(), run());
    }
}
