//! What an engine is given to do.

use anyhow::Result;
use landfall_placement::{Engine, Instant, PathId, PathLimits, Peer, RegionId};
use landfall_test_engines::Area;
use landfall_transport::memory::{Memory, Regions};

use super::transport::Role;

/// Memory that was lent for some work, and how it is divided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ground {
    /// The region.
    pub(crate) region: RegionId,
    /// Bytes in each slot: the length of a message.
    pub(crate) message: u64,
    /// How many slots there are.
    pub(crate) slots: u64,
}

impl Ground {
    /// The slot of message `nth`, round and round.
    pub(crate) fn area(&self, nth: u64) -> Area {
        Area::new(self.region, nth % self.slots * self.message, self.message)
    }
}

/// The path, as an engine needs to know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    /// The number of the path.
    pub(crate) path: PathId,
    /// What it carries.
    pub(crate) limits: PathLimits,
    /// Who is at the other end.
    pub(crate) to: Peer,
}

/// An engine that is kept busy.
pub(crate) trait Party {
    /// Its type.
    type Engine: Engine;

    /// The engine, for a turn of a driver.
    fn engine(&mut self) -> &mut Self::Engine;
}

/// The side that sends messages, one slot after the other, round and round.
pub(crate) trait Source: Party {
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
pub(crate) trait Sink: Party {
    /// Looks at what happened. Delivered slots are posted again if `repost`.
    /// Gives the number of bytes delivered since the last call.
    fn step(&mut self, repost: bool) -> Result<u64>;

    /// How many messages were delivered.
    fn delivered(&self) -> u64;

    /// Checks the messages that lie in memory that was not posted again.
    /// Gives the number of bytes that were compared.
    fn check(&self, memory: &Memory, sent: Ground) -> Result<u64>;
}

/// One side of a conversation of short messages.
pub(crate) trait Talker: Party {
    /// Sends a message. False: not yet, take a turn first.
    fn say(&mut self, now: Instant, message: &[u8]) -> Result<bool>;

    /// The next message that arrived, if there is one.
    fn hear(&mut self, message: &mut [u8]) -> Result<bool>;
}

/// Makes engines with their work.
pub(crate) trait Protocol: Sync {
    /// Sends.
    type Source: Source;
    /// Receives.
    type Sink: Sink;
    /// Talks.
    type Talker: Talker;

    /// The sending side, with all its memory filled.
    fn source(&self, way: Way, ground: Ground) -> Result<Self::Source>;

    /// The receiving side, with all its memory posted.
    fn sink(&self, way: Way, ground: Ground) -> Result<Self::Sink>;

    /// One side of a conversation.
    fn talker(&self, way: Way, regions: &Regions, table: Table) -> Result<Self::Talker>;
}

/// Where a conversation is held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    /// Who begins.
    pub(crate) role: Role,
    /// Memory of [`Table::ROOM`] bytes.
    pub(crate) region: RegionId,
    /// The length of each message.
    pub(crate) message: u64,
}

impl Table {
    /// How much memory a talker needs.
    pub(crate) const ROOM: usize = 64 << 10;
    /// Slots for messages that go out, and as many for those that come in.
    /// More than any engine has under way.
    pub(crate) const SLOTS: u64 = 32;
    /// The longest message.
    pub(crate) const LONGEST: u64 = Self::ROOM as u64 / (2 * Self::SLOTS);
    /// Each slot has cache lines of its own.
    const LINE: u64 = 64;

    /// The place of the next message that goes out, round and round.
    pub(crate) fn out(&self, nth: u64) -> Area {
        self.area(nth % Self::SLOTS)
    }

    /// A place for a message that comes in.
    pub(crate) fn inward(&self, nth: u64) -> Area {
        self.area(Self::SLOTS + nth % Self::SLOTS)
    }

    fn area(&self, slot: u64) -> Area {
        Area::new(self.region, slot * self.message.next_multiple_of(Self::LINE), self.message)
    }
}
