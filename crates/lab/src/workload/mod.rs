//! What is measured: endless messages and conversations, each through the public API of
//! `landfall` with its defaults, on a thread for each side. `perf`, `demo` and the papers
//! run them. Whatever has two sides is `TwoSided`.
//!
//! | file | what it is |
//! | --- | --- |
//! | `stp` | Transfers and Puts of the Scheduled Transfer Protocol |
//! | `qpip` | messages of queue pairs, to each other and to sockets |
//! | `clan` | shared memory with tripwires: words, queues, streams, between threads or processes |
//! | `defrag` | pages cut for the wire at one end, joined at the other |
//! | `blocks` | reads and writes of a block device that is served over the network |
//! | `nbd` | reads of such a device, with its server in this process |
//! | `memcpy` | what one copy within the machine costs by itself |
//! | `overhead` | what posting and reaping costs the thread that does it |
//! | `halves` | what each side saw, and what both come to |
//! | `side` | what both threads have in common: core, namespace, how they meet, end |
//! | `trial` | one megabyte over loopback: does it work at all? |
//!
//! What differs from the defaults is in a workload's `Setup`, and in the name of its row.

pub mod blocks;
pub mod clan;
pub(crate) mod defrag;
pub(crate) mod halves;
pub(crate) mod memcpy;
pub(crate) mod nbd;
pub(crate) mod overhead;
pub mod qpip;
pub(crate) mod side;
pub mod stp;
pub mod trial;

use std::thread;

use anyhow::{Context, Result};
use landfall_testbed::rivals::{Plan, WorkerPlace};

use side::{both, joined};

/// Which end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Where messages come from, or who asks.
    Send,
    /// Where they go, or who answers.
    Receive,
}

impl Role {
    /// Its side of a plan.
    pub(crate) const fn side(self, plan: &Plan) -> &WorkerPlace {
        match self {
            Self::Send => &plan.endpoints.send,
            Self::Receive => &plan.endpoints.receive,
        }
    }
}

/// A workload: what each of its two sides does, and what both come to. The sides are on
/// threads of their own, or in programs of their own.
pub(crate) trait TwoSided: Sync {
    /// How they meet before they begin. Who hangs up is not waited for.
    type Meeting: Send;
    /// What the side saw that sends, or asks.
    type Begun: Send;
    /// What the side saw that receives, or answers.
    type Served: Send;
    /// What both come to.
    type Outcome;

    /// The side that sends, or asks.
    fn begin(&self, meeting: &mut Self::Meeting) -> Result<Self::Begun>;

    /// The side that receives, or answers.
    fn serve(&self, meeting: &mut Self::Meeting) -> Result<Self::Served>;

    /// What both come to.
    fn outcome(&self, begun: Self::Begun, served: Self::Served) -> Result<Self::Outcome>;

    /// Runs both sides, each on a thread of its own.
    fn run(&self, (mut ours, mut theirs): (Self::Meeting, Self::Meeting)) -> Result<Self::Outcome> {
        let (begun, served) = thread::scope(|scope| {
            let named = |name: &str| thread::Builder::new().name(name.to_owned());
            let begun = named("landfall-send").spawn_scoped(scope, move || self.begin(&mut ours));
            let served =
                named("landfall-receive").spawn_scoped(scope, move || self.serve(&mut theirs));
            both(
                begun.context("cannot start a thread").and_then(|begun| joined(begun.join())),
                served.context("cannot start a thread").and_then(|served| joined(served.join())),
            )
        })?;
        self.outcome(begun, served)
    }
}

/// How the memory of both sides is divided into messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes in a message.
    pub message: usize,
    /// Messages in the sender's memory.
    pub send_slots: usize,
    /// Messages in the receiver's memory. Another number than the sender's makes each slot
    /// hold something else in each round.
    pub receive_slots: usize,
}

/// Memory is filled with this before a run, so that what was not written by it is seen.
const JUNK: u8 = 0xa5;

// Contents that can be checked: every eight bytes depend on where they are and
// on whose they are, so that nothing misplaced looks right.

/// What one slot of the sender's memory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern(pub(crate) u64);

impl Pattern {
    /// The eight bytes at word `index`: the mixing steps of SplitMix64.
    const fn word(self, index: u64) -> [u8; 8] {
        let mut z = (self.0 << 40 ^ index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31).to_le_bytes()
    }

    /// Writes the pattern into all of `bytes`.
    pub fn fill(self, bytes: &mut [u8]) {
        for (index, chunk) in bytes.chunks_mut(8).enumerate() {
            let word = self.word(index as u64);
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    /// Where `bytes` first differ from the pattern.
    pub fn first_difference(self, bytes: &[u8]) -> Option<usize> {
        let (index, chunk) = bytes.chunks(8).enumerate().find(|(index, chunk)| {
            let word = self.word(*index as u64);
            word[..chunk.len()] != **chunk
        })?;
        let word = self.word(index as u64);
        let within = chunk.iter().zip(word).position(|(is, should)| *is != should)?;
        Some(index * 8 + within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_wrong_byte_is_found() {
        let mut bytes = vec![0; 1003];
        Pattern(7).fill(&mut bytes);
        assert_eq!(Pattern(7).first_difference(&bytes), None);
        assert_eq!(Pattern(8).first_difference(&bytes), Some(0), "another slot");
        for at in [0, 9, 500, 1002] {
            bytes[at] ^= 1;
            assert_eq!(Pattern(7).first_difference(&bytes), Some(at));
            bytes[at] ^= 1;
        }
        bytes.rotate_left(8);
        assert!(Pattern(7).first_difference(&bytes).is_some(), "moved by a word");
    }
}
