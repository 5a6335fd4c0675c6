//! A naive reference model of queue pairs, and the operation sequences that it
//! is checked with: the oracle of property tests and fuzzing. Clear, not fast.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `operations` | what may happen, decoded from any bytes |
//! | `ledger` | what the users know: the reference model itself |
//! | `world` | two adapters and all that is between them; the driver of each, and the wire |
//! | `calls` | what users do |
//! | `completions` | what users are told, checked against the model |
//! | `frame`, `watch` | what is seen on the wire, checked against the model |
//! | `link` | one adapter that finds its addresses among strangers |
//! | `ending` | everything comes to its end over a good wire |

mod calls;
mod completions;
mod ending;
mod frame;
mod ledger;
mod link;
mod operations;
mod watch;
mod world;

use alloc::string::String;
use alloc::vec::Vec;

use landfall_testkit::model::Findings;

pub use frame::seal;

/// Runs the operations that these bytes stand for on two adapters and on the
/// reference model, lets everything come to its end, and gives all in which the
/// two disagree.
#[must_use]
pub fn disagreements(bytes: &[u8]) -> Vec<String> {
    run(bytes).0
}

/// The same, and a digest of all that was sent and told: equal runs have equal
/// ones.
#[must_use]
pub fn run(bytes: &[u8]) -> (Vec<String>, u64) {
    let findings = play(bytes, false);
    (findings.failures().to_vec(), findings.digest())
}

/// What happens in such a run, line by line, for people who look for the reason
/// of a disagreement.
#[must_use]
pub fn story(bytes: &[u8]) -> Vec<String> {
    play(bytes, true).into_story()
}

/// Sends whatever these bytes stand for to one adapter with connections, a
/// listener and a queue pair for datagrams, with checksums made right, and gives
/// all that is wrong then: writes outside of posted memory, broken contracts,
/// requests that complete twice, and a listener that answers nobody any more.
#[must_use]
pub fn withstand(bytes: &[u8]) -> Vec<String> {
    frame::withstand(bytes, false)
}

/// What happens in such a run, line by line.
#[must_use]
pub fn story_of_attack(bytes: &[u8]) -> Vec<String> {
    frame::withstand(bytes, true)
}

/// Has one adapter find its addresses, and hear whatever these bytes stand for of other hosts
/// on its link: servers, routers, neighbours, those who ask for groups. Gives all that is wrong
/// then: time that stands still, a flood of answers, addresses that no host may have.
#[must_use]
pub fn withstand_strangers(bytes: &[u8]) -> Vec<String> {
    link::withstand_strangers(bytes, false).take_failures()
}

/// What happens in such a run, line by line.
#[must_use]
pub fn story_of_strangers(bytes: &[u8]) -> Vec<String> {
    link::withstand_strangers(bytes, true).into_story()
}

fn play(bytes: &[u8], with_story: bool) -> Findings {
    let (choices, bytes) = bytes.split_at(bytes.len().min(operations::CHOICES));
    let mut world = world::World::new(choices, with_story);
    for operation in operations::Operations::new(bytes) {
        world.apply(operation);
    }
    world.ending();
    world.findings
}
