//! The same receive path without an adapter, traffic for both, and the comparison: for
//! property tests, fuzzing and golden traces.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `sides` | what the two sides have in common; the engine's receiver with a driver that writes frames itself; with driver and adapter |
//! | `pair` | both, under the same traffic and calls |
//! | `faulty` | an adapter whose firmware has a fault |

mod faulty;
mod pair;
mod sides;

pub use faulty::{Fault, Faulty};
pub use pair::{Choices, Pair};
pub use sides::{NaiveSide, OffloadedSide, Side};

use spec_defrag::model::Steps;

/// How many bytes choose how a run is set up.
pub const CHOICES: usize = spec_defrag::model::CHOICES + 2;

/// Runs the steps that these bytes stand for on both sides; all in which they disagree.
#[must_use]
pub fn disagreements(bytes: &[u8]) -> Vec<String> {
    disagreements_with(None, bytes)
}

/// The same, with a fault in the firmware.
#[must_use]
pub fn disagreements_with(fault: Option<Fault>, bytes: &[u8]) -> Vec<String> {
    let (choices, bytes) = bytes.split_at(bytes.len().min(CHOICES));
    let mut pair = Pair::new(Choices::new(choices), fault);
    for step in Steps::new(bytes) {
        pair.apply(&step);
    }
    pair.finish()
}
