//! How much is kept at most, and what became of it.

use landfall_placement::Duration;

/// How much is kept, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The most packets that are not whole yet, together with those that were
    /// given up and whose late pieces are still recognised.
    pub packets: u32,
    /// The most pages that those hold that are not whole yet. Large buffers do not
    /// count: nothing else needs them.
    pub pages: u32,
    /// The most bytes that all of them hold: the whole of their buffers.
    pub bytes: u64,
    /// The most bytes that those from one source address hold.
    pub bytes_per_source: u64,
    /// For how long the pieces of a packet are kept after the first came.
    pub lifetime: Duration,
    /// How many packets that expired are told of, in each second at most. A sender
    /// that floods is not answered with a flood (RFC 1812, section 4.3.2.8;
    /// RFC 4443, section 2.4).
    pub told_per_second: u32,
}

impl Default for Config {
    /// 64 MiB in all, 4 MiB for each source, as many of the pages as there are; 60
    /// seconds (RFC 8200, section 4.5).
    fn default() -> Self {
        Self {
            packets: 16_384,
            pages: u32::MAX,
            bytes: 64 << 20,
            bytes_per_source: 4 << 20,
            lifetime: Duration::from_secs(60),
            told_per_second: 100,
        }
    }
}

/// What became of pieces and of their packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that became whole.
    pub whole: u64,
    /// Packets that came as one piece behind a fragment header (RFC 6946).
    pub atomic: u64,
    /// Pieces that were exact repetitions.
    pub repeated: u64,
    /// Packets given up because their pieces contradicted each other.
    pub refused: u64,
    /// Packets given up because they were not whole in time.
    pub expired: u64,
    /// Packets given up because others needed the room, and what was still known of
    /// packets given up before.
    pub evicted: u64,
}
