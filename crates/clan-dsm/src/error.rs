//! What the user asked for and cannot have, and why something is over.

use landfall_placement::Refusal;

/// Why a call was refused. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The path is not up, or does not carry packets of any use.
    #[error("the path is not up, or its packets are too small for a header and a word")]
    PathDown,
    /// The name belongs to nothing (any more).
    #[error("it does not exist any more")]
    Unknown,
    /// There is no link to that host.
    #[error("there is no link to that host: open one first")]
    NoLink,
    /// The connection is not (yet, or any more) in a state for that.
    #[error("the connection is not open")]
    NotOpen,
    /// The end of the memory is not a number, or it is longer than an aperture can be.
    #[error("the memory ends beyond all offsets, or is empty or longer than 32 GiB")]
    BadMemory,
    /// It lies outside of the aperture.
    #[error("outside of the aperture")]
    OutOfBounds,
    /// The cookie was not given for that.
    #[error("the cookie was not given for that")]
    Forbidden,
    /// The word is not at a multiple of its width, or the aperture does not begin at a word.
    #[error("it is not at a multiple of its width (apertures begin at a multiple of 8)")]
    Unaligned,
    /// More than fits in one message.
    #[error("more than fits in one message or call")]
    TooLong,
    /// As many are under way as the configuration or the other side allows.
    #[error("as many are under way as is allowed: ask again after an event")]
    Busy,
    /// That port, group or event has an owner already.
    #[error("it is taken already")]
    Taken,
    /// The configured bound is reached.
    #[error("no room within the configured bounds")]
    NoRoom,
}

/// Why the other side refused something. On the wire as one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u8)]
pub enum Reason {
    /// The aperture does not exist (any more), or the key is not one of its own.
    #[error("the aperture does not exist any more, or the cookie was never given out")]
    BadKey = 1,
    /// Outside of the aperture.
    #[error("outside of the aperture")]
    OutOfBounds = 2,
    /// The cookie does not allow it.
    #[error("the cookie does not allow it")]
    Forbidden = 3,
    /// The packet is invalid.
    #[error("the packet was malformed")]
    Malformed = 4,
    /// A bound of the other side is reached.
    #[error("a bound of the other side is reached")]
    NoRoom = 5,
    /// Nobody is there: no endpoint at that port.
    #[error("no endpoint at that port")]
    NoEndpoint = 6,
    /// The other side's driver could not use the memory.
    #[error("the other side could not use the memory")]
    MemoryFailed = 7,
    /// Somebody there does not want to.
    #[error("refused")]
    Refused = 8,
}

impl Reason {
    /// From its number.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::BadKey,
            2 => Self::OutOfBounds,
            3 => Self::Forbidden,
            4 => Self::Malformed,
            5 => Self::NoRoom,
            6 => Self::NoEndpoint,
            7 => Self::MemoryFailed,
            8 => Self::Refused,
            _ => return None,
        })
    }
}

/// What the sender of a packet is told that a check refused.
impl From<Refusal> for Reason {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::WrongKey | Refusal::UnknownId | Refusal::WrongAddress => Self::BadKey,
            Refusal::OutOfBounds => Self::OutOfBounds,
            Refusal::Forbidden => Self::Forbidden,
            Refusal::NoRoom => Self::NoRoom,
            _ => Self::Malformed,
        }
    }
}

/// Why something that was under way is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// This side ended it.
    #[error("ended by this side")]
    Here,
    /// The other side refused or ended it.
    #[error("{0}")]
    There(Reason),
    /// The other side has stopped answering.
    #[error("the other side has stopped answering")]
    Silent,
    /// The other side was started anew, and knows nothing of what was.
    #[error("the other side was started anew")]
    Restarted,
    /// The link that it went over is gone.
    #[error("the link is gone")]
    LinkGone,
    /// A packet was damaged on a link that repeats nothing.
    #[error("a packet was damaged on a link that repeats nothing")]
    Damaged,
    /// The driver could not use the memory.
    #[error("the memory could not be used")]
    MemoryFailed,
}
