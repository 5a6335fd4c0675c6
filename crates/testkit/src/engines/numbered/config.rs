//! What a user chooses, is told, and may have done wrong.

use core::fmt;
use landfall_placement::{Duration, PathId, Peer};

use landfall_placement::Area;

/// The bounds and habits of a [`Numbered`](super::Numbered) engine.
///
/// Everything that grows has its bound here. Values out of range are moved to
/// the nearest one that makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Payload bytes in each unit but the last of a message; on a path with
    /// smaller units, as many as fit there.
    pub unit: u32,
    /// The most payload bytes under way for one message.
    pub window: u32,
    /// After how many units the receiver acknowledges.
    pub ack_every: u32,
    /// Put a checksum over every payload, and refuse units without one.
    pub checksum: bool,
    /// Send a message that fits one unit without asking first.
    pub eager: bool,
    /// After how long something that was not answered is sent again; doubled
    /// each time, up to 16 times as long.
    pub retransmit_after: Duration,
    /// After how many unanswered repetitions the connection has failed.
    pub give_up_after: u32,
    /// How long the receiver waits with telling that a message without asking
    /// has come, in the hope that something else tells it.
    pub ack_delay: Duration,
    /// The most paths, up to 64.
    pub paths: usize,
    /// The most connections (pairs of path and peer), up to 128.
    pub connections: usize,
    /// The most messages that are received at a time, up to 128.
    pub incoming: usize,
    /// The most messages that are sent at a time, up to 128.
    pub outgoing: usize,
    /// The most areas that wait for a message, up to 4096.
    pub posted: usize,
    /// The most word operations under way on a connection, up to 32.
    pub fetches: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            unit: 1024,
            window: 4 << 20,
            ack_every: 256,
            checksum: false,
            eager: true,
            retransmit_after: Duration::from_millis(20),
            give_up_after: 10,
            ack_delay: Duration::from_micros(200),
            paths: 4,
            connections: 16,
            incoming: 8,
            outgoing: 8,
            posted: 64,
            fetches: 8,
        }
    }
}

impl Config {
    /// The usual bounds, with this many payload bytes in a unit.
    #[must_use]
    pub fn with_unit(unit: u32) -> Self {
        Self { unit, ..Self::default() }
    }

    /// The same with a checksum over every payload.
    #[must_use]
    pub const fn with_checksum(self) -> Self {
        Self { checksum: true, ..self }
    }

    /// Every value moved into its range.
    pub(super) fn in_range(self) -> Self {
        let unit = self.unit.clamp(1, 1 << 20);
        let window = self.window.clamp(unit, 1 << 30);
        let units = Self::window_units(window, unit);
        Self {
            unit,
            window,
            ack_every: self.ack_every.clamp(1, (units / 4).max(1)),
            retransmit_after: self.retransmit_after.max(Duration::from_micros(1)),
            paths: self.paths.clamp(1, 64),
            connections: self.connections.clamp(1, 128),
            incoming: self.incoming.clamp(1, 128),
            outgoing: self.outgoing.clamp(1, 128),
            posted: self.posted.clamp(1, 4096),
            fetches: self.fetches.clamp(1, 32),
            ..self
        }
    }

    /// After how long a silent sender counts as gone: later than it would
    /// itself have given up.
    pub(super) fn silence(&self) -> Duration {
        let repetitions = self.give_up_after.saturating_add(2).saturating_mul(16);
        self.retransmit_after.saturating_mul(repetitions)
    }

    /// How many units of `unit` bytes are under way at most. Below 2^16, so
    /// that a ticket can name a unit of the window by its low 16 bits.
    pub(super) const fn window_units(window: u32, unit: u32) -> u32 {
        let units = window.div_ceil(unit);
        if units > 1 << 15 { 1 << 15 } else { units }
    }
}

/// Names a message that this engine sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId(pub u64);

/// Names a word operation that this engine asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FetchId(pub u64);

/// What the engine tells its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message is complete in the memory that was posted for it, which is
    /// the user's again.
    Delivered {
        /// The path it came over.
        path: PathId,
        /// Who sent it.
        from: Peer,
        /// Its number on this connection.
        message: u32,
        /// The posted memory.
        posted: Area,
        /// How much of that the message filled.
        len: u64,
    },
    /// The other side has the whole message; its memory is the user's again.
    Sent {
        /// Which.
        message: MessageId,
    },
    /// A word operation took effect at the other side, once.
    Fetched {
        /// Which.
        fetch: FetchId,
        /// What the word held before.
        old: u64,
    },
    /// The other side stopped answering; the memory is the user's again, and
    /// how much of the message came through is not known.
    SendFailed {
        /// Which.
        message: MessageId,
    },
    /// The sender of a message that had begun went silent; the memory that was
    /// posted for it is the user's again.
    ReceiveFailed {
        /// The path it came over.
        path: PathId,
        /// Who sent it.
        from: Peer,
        /// The memory.
        posted: Area,
    },
    /// The other side stopped answering; whether the operation took effect is
    /// not known.
    FetchFailed {
        /// Which.
        fetch: FetchId,
    },
}

/// What the user asked for and cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The path is not up, or does not carry units of any use.
    PathDown,
    /// The memory has no bytes, or its end is not a number.
    BadMemory,
    /// The memory overlaps memory that already waits for a message.
    Overlap,
    /// The message has more than 2^32 units.
    TooLong,
    /// As many are under way as the configuration allows; ask again after an event.
    Busy,
    /// The offset of a word is not a multiple of its width.
    Unaligned,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PathDown => "the path is not up, or its units are too small",
            Self::BadMemory => "the memory has no bytes, or its end is not a number",
            Self::Overlap => "the memory overlaps memory that already waits for a message",
            Self::TooLong => "a message has at most 2^32 units",
            Self::Busy => "as many are under way as the configuration allows",
            Self::Unaligned => "the offset of a word is not a multiple of its width",
        })
    }
}

impl core::error::Error for Error {}
