//! What the user asked for and cannot have.

use landfall_placement::{Area, ConfigError};

use crate::wire::Reason;

/// Why a call was refused. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The path is not up, or does not carry packets of any use.
    #[error("the path is not up, or its packets are too small for a header and a payload")]
    PathDown,
    /// The name belongs to nothing (any more).
    #[error("it does not exist any more")]
    Unknown,
    /// The connection is not (yet, or any more) in a state for that.
    #[error("the connection is not open")]
    NotOpen,
    /// The end of the memory is not a number.
    #[error("the end of the memory is beyond all offsets")]
    BadMemory,
    /// The memory is shorter than what shall come or go there.
    #[error("the memory is too short")]
    TooShort,
    /// It lies outside of the remote region.
    #[error("outside of the remote region")]
    OutOfBounds,
    /// The remote region was not given for that.
    #[error("the remote region was not given for that")]
    Forbidden,
    /// The word is not at a multiple of its width.
    #[error("the word is not at a multiple of its width")]
    Unaligned,
    /// The Transfer has more Blocks than can be numbered.
    #[error("a transfer has at most 2^32 blocks")]
    TooLong,
    /// As many are under way as the configuration or the other side allows.
    #[error("as many are under way as is allowed: ask again after an event")]
    Busy,
    /// That port has a listener, or that region a name, already.
    #[error("it is taken already")]
    Taken,
    /// A value is out of its range.
    #[error(transparent)]
    OutOfRange(#[from] ConfigError),
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
    /// Nobody receives at the peer's address, says the network (ICMP port unreachable).
    #[error(
        "nobody receives at that address (ICMP port unreachable): start the other side first, or \
         check host and port"
    )]
    Unreachable,
    /// The connection that it belonged to is gone.
    #[error("the connection is gone")]
    ConnectionGone,
    /// The driver could not use the memory.
    #[error("the memory could not be used")]
    MemoryFailed,
    /// This side refused it, for it does not fit the memory that was meant for it. The other
    /// side hears [`Reason::TooLong`].
    #[error("it does not fit the memory that was meant for it, and was refused by this side")]
    DoesNotFit,
}

/// Is the end of this memory a number?
pub(crate) fn check_memory(memory: Area) -> Result<(), Error> {
    memory.offset.checked_add(memory.len).map(|_| ()).ok_or(Error::BadMemory)
}
