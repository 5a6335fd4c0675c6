//! A naive reference model of connected endpoints, and the operation sequences
//! that it is checked with: the oracle of property tests and fuzzing. Clear,
//! not fast.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `operations` | what may happen, decoded from any bytes |
//! | `ledger` | what the users know: the reference model itself |
//! | `setup` | the configurations that are tried |
//! | `world` | several endpoints and all that is between them |
//! | `driver` | the driver of each, and the network |
//! | `calls`, `decide` | what users do, and how they answer |
//! | `events`, `shared` | what users are told, checked against the model |
//! | `room` | what is granted is what open Blocks have |
//! | `attack` | one endpoint under packets of somebody who has its keys |
//! | `ending` | everything comes to its end over a good network |

mod attack;
mod calls;
mod decide;
mod driver;
mod ending;
mod events;
mod ledger;
mod operations;
mod room;
mod setup;
mod shared;
mod world;

use alloc::string::String;
use alloc::vec::Vec;

use landfall_testkit::model::Findings;

use crate::endpoint::Endpoint;

/// Runs the operations that these bytes stand for on two or three connected
/// endpoints and on the reference model, lets everything come to its end, and
/// gives all in which the two disagree.
#[must_use]
pub fn disagreements(bytes: &[u8]) -> Vec<String> {
    run(bytes).0
}

/// Sends whatever these bytes stand for to one endpoint with a connection and
/// much under way, with keys and checksums made right, and gives all that is
/// wrong then: writes outside of granted memory, broken contracts, broken bounds.
#[must_use]
pub fn withstand(bytes: &[u8]) -> Vec<String> {
    attack::withstand(bytes)
}

/// Makes the proof of a packet right, and its checksum, as somebody would who heard
/// the secrets of the connection at `endpoint` that it is for. Without such a
/// connection, or a place for a proof, it stays as it is.
pub fn prove(endpoint: &Endpoint, packet: &mut [u8]) {
    attack::prove(endpoint, packet);
}

/// What is wrong with the room that an endpoint has granted; nothing where that is the sum
/// of what its open Blocks have, and each Transfer that has more to be granted may get it.
#[must_use]
pub fn wrong_room(endpoint: &Endpoint) -> Option<String> {
    room::wrong_room(endpoint)
}

/// What happens in such a run, line by line, for people who look for the reason
/// of a disagreement.
#[must_use]
pub fn story(bytes: &[u8]) -> Vec<String> {
    play(bytes, true).into_story()
}

/// The same, and a digest of all that was sent and told: equal runs have equal ones.
#[must_use]
pub fn run(bytes: &[u8]) -> (Vec<String>, u64) {
    let findings = play(bytes, false);
    (findings.failures().to_vec(), findings.digest())
}

fn play(bytes: &[u8], with_story: bool) -> Findings {
    let (config, bytes) = bytes.split_at(bytes.len().min(3));
    let mut world = world::World::new(config);
    if with_story {
        world.findings.begin_story();
    }
    for operation in operations::Operations::new(bytes, world.sides()) {
        world.apply(operation);
    }
    world.ending();
    world.findings
}
