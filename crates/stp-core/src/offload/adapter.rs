//! What the engine and an adapter that keeps a table of Blocks say to each other.

use landfall_placement::{PathId, Peer};

use super::block::Block;
use super::blocks::StuId;

/// What the engine tells an adapter. Each names a Block by its place in the
/// table and by how often that was used before; if it is another, nothing happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// The adapter has the Block from now on: its Data goes by the adapter's
    /// table, and by no other. Answered where that cannot be:
    /// [`Report::Refused`].
    Open {
        /// Its place in the table.
        index: u16,
        /// All that is known of it.
        block: Block,
    },
    /// More of it is granted.
    Grant {
        /// Its place in the table.
        index: u16,
        /// How often that was used before.
        generation: u16,
        /// One past the last STU that is granted.
        end: u16,
    },
    /// Its Data comes over another path of the same adapter.
    Redirect {
        /// Its place in the table.
        index: u16,
        /// How often that was used before.
        generation: u16,
        /// The path.
        path: PathId,
        /// From whom.
        peer: Peer,
    },
    /// The adapter says what it has not said of the Block.
    Tell {
        /// Its place in the table.
        index: u16,
        /// How often that was used before.
        generation: u16,
    },
    /// The adapter has the Block no longer. Always answered: [`Report::Closed`].
    Close {
        /// Its place in the table.
        index: u16,
        /// How often that was used before.
        generation: u16,
    },
}

/// STUs of a Block that came to lie in their places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landed {
    /// The place of the Block in the table.
    pub index: u16,
    /// How often that was used before.
    pub generation: u16,
    /// The first of them.
    pub first: u16,
    /// A bit for each of 64 from it on that landed.
    pub bits: u64,
    /// How many of them came with a mark of congestion.
    pub marked: u16,
    /// How long the last waited at its sender, as its header says.
    pub hold: u16,
}

/// Why the payload of an STU is not in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Its checksum is wrong.
    Corrupt,
    /// The memory is gone.
    MemoryGone,
}

/// What an adapter tells the engine, in the order in which it came to pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// STUs landed.
    Landed(Landed),
    /// All STUs of a Block before one have landed, if it was said of them or not;
    /// where that is all of them, the Block is complete.
    Through {
        /// The place of the Block in the table.
        index: u16,
        /// How often that was used before.
        generation: u16,
        /// One past the last of them.
        end: u16,
        /// How many came with a mark of congestion, of which it was not said.
        marked: u16,
        /// How long the last waited at its sender, as its header says.
        hold: u16,
    },
    /// One came, and did not; it may come again.
    Lost {
        /// Which.
        stu_id: StuId,
        /// Why not.
        why: Loss,
        /// How many came with a mark of congestion, of which it was not said.
        marked: u16,
        /// How long it waited at its sender, as its header says.
        hold: u16,
    },
    /// The adapter has no room for a Block: it is the engine's own.
    Refused {
        /// Its place in the table.
        index: u16,
        /// How often that was used before.
        generation: u16,
    },
    /// Nothing of the Block is under way, and nothing more will be put there.
    Closed {
        /// Its place in the table.
        index: u16,
        /// How often that was used before.
        generation: u16,
    },
}
