//! How a node runs its engine, and what it counts.

use landfall_placement::{Duration, Peer};

/// Where the node receives to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Receive {
    /// Into memory of its own, from which every payload is copied.
    #[default]
    Copied,
    /// Straight into the spans that the engine guesses. As on real hardware,
    /// whatever comes lands there, be it junk.
    Guessed,
}

/// How a node runs its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// Where it receives to.
    pub receive: Receive,
    /// How many frames are received together. All are placed before the first
    /// is reported as being in place.
    pub batch: usize,
    /// How long fewer than that wait for others.
    pub hold: Duration,
    /// How long after the engine gave a unit out its payload is read, and the
    /// unit reported as sent: as long as an adapter may take.
    pub send_delay: Duration,
    /// The most units that wait for that.
    pub send_ring: usize,
    /// The longest unit that the engine is told of, whatever the link carries.
    pub most_unit: u32,
    /// The longest unit that the engine is told of as sure to get to every peer, if the link
    /// carries more.
    pub sure: u32,
    /// The room for a head.
    pub head: u16,
    /// Tell the engine that long TCP segments are cut for it: the longest, and
    /// into how many.
    pub segmentation: Option<(u32, u16)>,
    /// How others address this node; as [`Peer::Node`], unless set.
    pub address: Option<Peer>,
    /// The most events that are kept; then the engine must keep them.
    pub events: usize,
    /// The engine's memory is shared on purpose: placements under way may name
    /// the same byte, and take effect in their order. Otherwise that ends the run.
    pub shared: bool,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            receive: Receive::Copied,
            batch: 1,
            hold: Duration::from_micros(10),
            send_delay: Duration::ZERO,
            send_ring: 256,
            most_unit: 65_535,
            sure: 65_535,
            head: 256,
            segmentation: None,
            address: None,
            events: 4_096,
            shared: false,
        }
    }
}

impl EngineConfig {
    /// Receives straight to where the engine guesses, so many frames together.
    #[must_use]
    pub fn guessing(batch: usize) -> Self {
        Self { receive: Receive::Guessed, batch, ..Self::default() }
    }
}

/// What a node did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Units that came.
    pub units: u64,
    /// Payloads that landed where they belong.
    pub guessed_right: u64,
    /// Payloads that landed elsewhere in guessed memory.
    pub guessed_wrong: u64,
    /// Payloads that the engine had kept and that were written to their place.
    pub deposits: u64,
    /// Payload bytes that were copied to where they belong.
    pub copied_bytes: u64,
    /// Operations on words.
    pub words: u64,
    /// Payloads that could not be put where they belong: the memory is gone.
    pub failed: u64,
    /// Payloads whose checksum was wrong.
    pub corrupt: u64,
    /// Units that the engine gave out.
    pub transmits: u64,
    /// Frames that were sent: more, where units were cut.
    pub frames: u64,
    /// Units that were not sent, because their memory is gone or their head is
    /// none that could be cut.
    pub unsendable: u64,
}
