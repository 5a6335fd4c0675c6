//! Transfers in their order: what one side puts in comes out at the other, sealed.
//!
//! | file | what it is |
//! | --- | --- |
//! | `outlet` | seals and sends; keeps what was sent until it is known to have come |
//! | `inlet` | takes, checks seals, puts in order, asks again for what was changed on the way |
//!
//! Several transfers are under way at a time, each to memory of its own, and may overtake
//! each other; [`Inlet`] puts them in order by their labels. **Nothing comes out of it whose
//! seal was not checked**, bundle or piece. The engines place bytes as they come, so whoever
//! is on the way can spoil a transfer; it is asked for again, and only where that happens
//! over and over does the session end. How much waits is bounded at both ends: so many
//! posted receives there are, so many sends are begun, so many are kept.

mod inlet;
mod outlet;

use std::ops::Deref;
use std::time::Duration;

use blake3::Hash;
use landfall::stp::blocking::Endpoint;
use landfall::stp::{Error, Memory, Message};

use super::code::SEAL;
use super::wire::{MOST_PIECE, Malformed};

pub(crate) use inlet::Inlet;
pub(crate) use outlet::{Outlet, WhenFull};

/// So many transfers are under way at a time, one way. Together they are more than the
/// window of a connection, so that there is always something to grant.
pub(crate) const UNDER_WAY: usize = 8;
/// No piece has more contents: it shares its transfer with its seal.
pub(crate) const MOST_CONTENTS: usize = MOST_PIECE - SEAL;

/// Why nothing more comes, or can be sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error("{0}")]
    Lost(#[from] Error),
    #[error(
        "it is there, but does not go on: nothing of it for {} s (--idle gives it longer)",
        .0.as_secs()
    )]
    Stalled(Duration),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error(
        "what comes is not sealed with the key of the code, however often it is asked for \
         again: somebody on the way changes it"
    )]
    Forged,
    #[error(
        "the other side gave up: what it gets of this one is not sealed with the key of the \
         code, so somebody on the way changes it"
    )]
    ForgedThere,
    /// Another thread of this side knows why.
    #[error("the other direction is over")]
    Over,
}

/// A piece of a file in memory that has room for its seal, and its hash.
pub(crate) struct Unsealed {
    memory: Memory,
    digest: Hash,
}

impl Unsealed {
    /// Memory for so many bytes and the seal behind them.
    pub(crate) fn memory(endpoint: &Endpoint, len: usize) -> Result<Memory, Error> {
        endpoint.memory(len + SEAL)
    }

    /// Hashes what is in memory of [`memory`](Self::memory).
    pub(crate) fn new(memory: Memory) -> Self {
        let digest = blake3::hash(&memory[..memory.len() - SEAL]);
        Self { memory, digest }
    }

    /// A copy of these bytes.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self::new(Memory::from_bytes(&[bytes, &[0; SEAL]].concat()))
    }

    pub(crate) const fn digest(&self) -> &Hash {
        &self.digest
    }
}

/// What came, in its order.
pub(crate) enum Frame {
    Piece(Piece),
    Bundle(Opened),
}

/// A piece whose seal was right; it derefs to its contents.
pub(crate) struct Piece {
    message: Message,
    digest: Hash,
}

impl Piece {
    pub(crate) const fn digest(&self) -> &Hash {
        &self.digest
    }
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.message[..self.message.len() - SEAL]
    }
}

/// A bundle whose seal was right; it derefs to its messages.
pub(crate) struct Opened(Message);

impl Deref for Opened {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0[..self.0.len() - SEAL]
    }
}
