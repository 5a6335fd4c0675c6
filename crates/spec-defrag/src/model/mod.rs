//! A naive reassembler, and the traffic that the engine is compared with it on: the
//! oracle of property tests and fuzzing. Clear, not fast.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `naive` | the reference model: frames in, packets out |
//! | `traffic` | flows, their packets, and a naive cutter |
//! | `forge` | frames that were changed, and frames that were made to harm |
//! | `operations` | what may happen, decoded from any bytes |
//! | `memory` | memory that watches what is written where |
//! | `frames` | the reassembler that takes frames, beside the model |
//! | `rig` | the receiver with driver and user, beside the model |

mod forge;
mod frames;
mod memory;
mod naive;
mod operations;
mod rig;
mod traffic;

use alloc::string::String;
use alloc::vec::Vec;

pub use frames::Reassembled;
pub use memory::{LONGEST_FRAME, Sizes, TestMemory};
pub use naive::{Expired, Naive, Name, Piece, Reading, read};
pub use operations::{CHOICES, Setup};
pub use rig::{Joined, Rig};
pub use traffic::{Flow, Shape, Step, Steps, cut, seal};

/// Runs the steps that these bytes stand for on a receiver and on the naive
/// reassembler, and lets everything come to its end.
#[must_use]
pub fn play(bytes: &[u8]) -> Rig {
    rig(bytes, false)
}

/// All in which the two disagree then.
#[must_use]
pub fn disagreements(bytes: &[u8]) -> Vec<String> {
    play(bytes).failures().to_vec()
}

/// Returns whatever frames these bytes stand for to a receiver and to the cutter, and
/// gives all that is wrong then.
#[must_use]
pub fn withstand(bytes: &[u8]) -> Vec<String> {
    forge::withstand(bytes)
}

/// Offers the frames that these bytes stand for to a
/// [`Reassembler`](crate::reassembly::Reassembler) and to the naive one; says in what the two
/// disagree.
#[must_use]
pub fn reassemble(bytes: &[u8]) -> Reassembled {
    frames::reassemble(bytes)
}

/// What happens in a run of [`play`], line by line, for people who look for the reason of
/// a disagreement.
#[must_use]
pub fn story(bytes: &[u8]) -> Vec<String> {
    rig(bytes, true).into_story()
}

fn rig(bytes: &[u8], with_story: bool) -> Rig {
    let (choices, bytes) = bytes.split_at(bytes.len().min(CHOICES));
    let mut rig = Rig::new(Setup::new(choices), with_story);
    for step in Steps::new(bytes) {
        rig.apply(&step);
    }
    rig.finish();
    rig
}
