//! Two hosts that get the same frames and calls, one behind a Tigon-II, one without: the
//! generator of property tests and fuzzing, and the comparison.
//!
//! Each runs in a [`World`](crate::world::World) of its own with the same peer and the same
//! luck. While they do the same, they see the same; the first things in which they differ are
//! what is reported.
//!
//! | file | what is there |
//! | --- | --- |
//! | `play` | the users at both ends, and what they do; what may happen, decoded from any bytes; frames that nobody sent so |
//! | `faulty` | a firmware with a fault |

mod faulty;
mod play;

use landfall_simnet::EngineNode;
use landfall_testkit::model::Choices;
use stp_core::Endpoint;

pub use faulty::{Fault, Faulty};

use crate::machine::{Adapter, Costs, Parts};
use crate::node::NicNode;
use crate::world::Record;
use crate::world::play::Play;
use play::{Players, Setup};

/// The host behind a Tigon-II.
pub type Adapted = NicNode<Faulty, Endpoint>;
/// The host whose software does it all.
pub type Plain = EngineNode<Endpoint>;

/// Runs what these bytes stand for on both hosts, costs off, and gives all in which they
/// differ.
#[must_use]
pub fn disagreements(bytes: &[u8]) -> Vec<String> {
    disagreements_with(None, bytes)
}

/// The same with a fault in the firmware.
#[must_use]
pub fn disagreements_with(fault: Option<Fault>, bytes: &[u8]) -> Vec<String> {
    adapted(fault, bytes).differences(&plain(bytes))
}

/// What happens at the host behind a Tigon-II with a fault, or none.
#[must_use]
pub fn adapted(fault: Option<Fault>, bytes: &[u8]) -> Record {
    let mut choices = Choices::new(bytes);
    let setup = Setup::new(&mut choices);
    let make = |engine, config| -> Adapted {
        let firmware = Faulty::new(setup.firmware(), fault);
        let adapter = Adapter::new(firmware, Parts::owned(&setup.sizes()), Costs::OFF);
        NicNode::with_config(engine, vec![adapter], config)
    };
    Players::new(&setup, 1, make).play(choices)
}

/// What happens at the host without an adapter.
#[must_use]
pub fn plain(bytes: &[u8]) -> Record {
    let mut choices = Choices::new(bytes);
    let setup = Setup::new(&mut choices);
    Players::new(&setup, 0, Plain::with_config).play(choices)
}
