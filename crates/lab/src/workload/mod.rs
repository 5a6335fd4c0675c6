//! One trait for a workload, and who runs it: an engine at each end of a path, each on a
//! thread of its own, and work for both. `perf`, `demo` and the papers run their engines here.
//!
//! | file | what it is |
//! | --- | --- |
//! | `transport` | how the two ends of a path are opened: UDP, a channel, … |
//! | this | what an engine is given to do: endless messages, or a conversation |
//! | `numbered`, `stream` | that work for the scheduled and the byte-stream test engine |
//! | `stp` | that work for the Scheduled Transfer Protocol |
//! | `qpip` | that work for queue pairs |
//! | `qpip_socket` | a queue pair at one end, a kernel socket at the other |
//! | `clan` | shared memory with tripwires: words, queues, streams, between threads or processes |
//! | `front_door` | Transfers and Puts through the public API, with its defaults |
//! | `defrag` | pages cut for the wire at one end, joined at the other |
//! | `overhead` | what posting and reaping costs the thread that does it |
//! | `bulk` | one side streams, the other receives in place |
//! | `talk` | messages there and back, timed one by one |
//! | `side` | what both threads have in common: core, namespace, clock, end |
//! | `pattern` | contents that can be checked |
//! | `trial` | one megabyte over loopback on one thread: does it work at all? |
//!
//! Another transport is one type that opens two ends ([`Transport`](transport::Transport));
//! another engine is one file with its source, its sink and its talker ([`Workload`]).

pub mod bulk;
pub mod clan;
pub(crate) mod defrag;
pub(crate) mod front_door;
pub mod numbered;
pub(crate) mod overhead;
pub mod qpip;
pub(crate) mod qpip_socket;
pub(crate) mod side;
pub mod stp;
pub mod stream;
pub mod talk;
pub mod transport;
pub mod trial;

use anyhow::Result;
use landfall_placement::{Engine, Instant, PathId, PathLimits, Peer, RegionId};
use landfall_testkit::engines::Area;
use landfall_transport::memory::{Memory, Regions};
use transport::Role;

/// Memory that was lent for some work, and how it is divided.
#[derive(Clone, Copy, Debug)]
pub struct SlotLayout {
    /// The region.
    pub region: RegionId,
    /// Bytes in each slot: the length of a message.
    pub message: u64,
    /// How many slots there are.
    pub slots: u64,
}

impl SlotLayout {
    /// The slot of message `nth`, round and round.
    pub fn area(&self, nth: u64) -> Area {
        Area::new(self.region, nth % self.slots * self.message, self.message)
    }
}

/// The path, as an engine needs to know it.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The number of the path.
    pub path: PathId,
    /// What it carries.
    pub limits: PathLimits,
    /// Who is at the other end.
    pub to: Peer,
}

/// An engine that is kept busy.
pub trait HasEngine {
    /// Its type.
    type Engine: Engine;

    /// The engine, for a turn of a driver.
    fn engine(&mut self) -> &mut Self::Engine;
}

/// The side that sends messages, one slot after the other, round and round.
pub trait Source: HasEngine {
    /// Looks at what happened, and offers the next messages while they number
    /// less than `until` in all.
    fn step(&mut self, now: Instant, until: u64) -> Result<()>;

    /// How many messages were offered.
    fn offered(&self) -> u64;

    /// How many messages the other side has.
    fn done(&self) -> u64;

    /// Units or bytes that were sent again.
    fn retransmitted(&self) -> u64;
}

/// The side that receives them in place.
pub trait Sink: HasEngine {
    /// Looks at what happened. Delivered slots are posted again if `repost`.
    /// Gives the number of bytes delivered since the last call.
    fn step(&mut self, repost: bool) -> Result<u64>;

    /// How many messages were delivered.
    fn delivered(&self) -> u64;

    /// Checks the messages that lie in memory that was not posted again.
    /// Gives the number of bytes that were compared.
    fn check(&self, memory: &Memory, sent: SlotLayout) -> Result<u64>;
}

/// One side of a conversation of short messages.
pub trait Talker: HasEngine {
    /// Sends a message. False: not yet, take a turn first.
    fn send(&mut self, now: Instant, message: &[u8]) -> Result<bool>;

    /// The next message that arrived, if there is one.
    fn receive(&mut self, message: &mut [u8]) -> Result<bool>;
}

/// Makes engines with their work.
pub trait Workload: Sync {
    /// Sends.
    type Source: Source;
    /// Receives.
    type Sink: Sink;
    /// Talks.
    type Talker: Talker;

    /// The sending side, with all its memory filled.
    fn source(&self, route: Route, layout: SlotLayout) -> Result<Self::Source>;

    /// The receiving side, with all its memory posted.
    fn sink(&self, route: Route, layout: SlotLayout) -> Result<Self::Sink>;

    /// One side of a conversation.
    fn talker(&self, route: Route, regions: &Regions, memory: TalkMemory) -> Result<Self::Talker>;
}

/// Where a conversation is held.
#[derive(Clone, Copy, Debug)]
pub struct TalkMemory {
    /// Who begins.
    pub role: Role,
    /// Memory of [`TalkMemory::ROOM`] bytes.
    pub region: RegionId,
    /// The length of each message.
    pub message: u64,
}

impl TalkMemory {
    /// How much memory a talker needs.
    pub const ROOM: usize = 64 << 10;
    /// Slots for messages that go out, and as many for those that come in.
    /// More than any engine has under way.
    pub const SLOTS: u64 = 32;
    /// The longest message.
    pub const LONGEST: u64 = Self::ROOM as u64 / (2 * Self::SLOTS);
    /// Each slot has cache lines of its own.
    const LINE: u64 = 64;

    /// The place of the next message that goes out, round and round.
    pub fn out(&self, nth: u64) -> Area {
        self.area(nth % Self::SLOTS)
    }

    /// A place for a message that comes in.
    pub fn inward(&self, nth: u64) -> Area {
        self.area(Self::SLOTS + nth % Self::SLOTS)
    }

    fn area(&self, slot: u64) -> Area {
        Area::new(self.region, slot * self.message.next_multiple_of(Self::LINE), self.message)
    }
}

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
