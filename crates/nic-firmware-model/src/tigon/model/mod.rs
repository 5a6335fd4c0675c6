//! Two hosts that get the same frames and calls, one behind a Tigon-II, one
//! without: the generator of property tests and fuzzing, and the comparison.
//!
//! Each runs in a simulated network of its own with the same peer and the same
//! luck. While they do the same, they see the same; the first thing in which they
//! differ is what is reported.
//!
//! | file | what is there |
//! | --- | --- |
//! | `steps` | what may happen, decoded from any bytes |
//! | `setup` | the configurations that are tried |
//! | `world` | the host under test, its peer, the network between them |
//! | `user` | what the users at both ends do by themselves |
//! | `forger` | frames that nobody sent so |
//! | `faulty` | a firmware with a fault |

mod faulty;
mod forger;
mod setup;
mod steps;
mod user;
mod world;

use landfall_simnet::EngineNode;
use stp_core::Endpoint;

pub use faulty::{Fault, Faulty};

use crate::machine::{Adapter, Costs, Parts};
use crate::node::NicNode;
pub use crate::seen::Record;
use setup::Setup;
use world::World;

/// The host behind a Tigon-II.
pub type Adapted = NicNode<Faulty, Endpoint>;
/// The host whose software does it all.
pub type Plain = EngineNode<Endpoint>;

/// Runs what these bytes stand for on both hosts, costs off, and gives all in
/// which they differ.
#[must_use]
pub fn disagreements(bytes: &[u8]) -> Vec<String> {
    disagreements_with(bytes, None)
}

/// The same with a fault in the firmware.
#[must_use]
pub fn disagreements_with(bytes: &[u8], fault: Option<Fault>) -> Vec<String> {
    adapted(bytes, fault).differences(&plain(bytes))
}

/// What happens at the host behind a Tigon-II with a fault, or none.
#[must_use]
pub fn adapted(bytes: &[u8], fault: Option<Fault>) -> Record {
    let (setup, steps) = Setup::split(bytes);
    adapted_world(&setup, fault).run(steps)
}

/// A capture of what crossed the links of the host behind a Tigon-II, and lines
/// that tell of events, memory and refusals.
#[must_use]
pub fn adapted_trace(bytes: &[u8]) -> (Vec<u8>, String) {
    let (setup, steps) = Setup::split(bytes);
    adapted_world(&setup, None).trace(steps)
}

/// The same of the host without an adapter.
#[must_use]
pub fn plain_trace(bytes: &[u8]) -> (Vec<u8>, String) {
    let (setup, steps) = Setup::split(bytes);
    World::new(&setup, 0, Plain::with_config).trace(steps)
}

fn adapted_world(setup: &Setup, fault: Option<Fault>) -> World<Adapted> {
    let make = |endpoint: Endpoint, config| -> Adapted {
        let firmware = Faulty::new(setup.firmware(), fault);
        let adapter = Adapter::new(firmware, Parts::owned(&setup.sizes()), Costs::OFF);
        NicNode::with_config(endpoint, vec![adapter], config)
    };
    World::new(setup, 1, make)
}

/// What happens at the host without an adapter.
#[must_use]
pub fn plain(bytes: &[u8]) -> Record {
    let (setup, steps) = Setup::split(bytes);
    World::new(&setup, 0, Plain::with_config).run(steps)
}
