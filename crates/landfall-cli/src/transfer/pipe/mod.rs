//! Transfers in their order: what one side puts in comes out at the other, sealed.
//!
//! | file | what it is |
//! | --- | --- |
//! | `outlet` | seals and sends; keeps what was sent until it is known to have come |
//! | `inlet` | takes, opens, puts in order, asks again for what was changed on the way |
//!
//! Several transfers are under way at a time, each to memory of its own, and may overtake
//! each other; [`Inlet`] puts them in order by their labels. All of them are encrypted, and
//! decrypted in the memory where they landed. **Nothing comes out of an inlet that the other
//! side has not sealed**, bundle or piece. The engines place bytes as they come, so anyone who
//! is on the way can spoil a transfer; it is asked for again, and only where that happens
//! over and over does the session end. How much waits is bounded at both ends: this many
//! posted receives there are, this many sends are begun, this many are kept.

mod inlet;
mod outlet;

use std::ops::Deref;
use std::time::Duration;

use blake3::Hash;
use landfall::stp::blocking::Endpoint;
use landfall::stp::{Error, Memory, Message};
use landfall_seal::SealError;

use super::seals::{Opener, SEAL};
use super::wire::{Label, MOST_PIECE, Malformed};

pub(crate) use inlet::Inlet;
pub(crate) use outlet::{Outlet, WhenFull};

/// This many transfers are under way at a time, one way. Together they are more than the
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
    /// Nothing more can be sealed, which takes longer than anybody sends.
    #[error(transparent)]
    Sealing(#[from] SealError),
    /// Another thread of this side knows why.
    #[error("the other direction is over")]
    SessionEnd,
}

/// A piece of a file in memory that has room for its seal, and its hash.
pub(crate) struct Unsealed {
    memory: Memory,
    digest: Hash,
}

impl Unsealed {
    /// Memory for this many bytes and the seal behind them.
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
    Messages(Opened),
}

/// A transfer that was opened where it landed; it derefs to its contents.
pub(crate) struct Opened {
    memory: Memory,
    len: usize,
}

impl Opened {
    /// Decrypts what came, in its place.
    fn new(opener: &mut Opener, label: Label, message: Message) -> Option<Self> {
        let sealed = message.len();
        let mut memory = message.into_memory();
        let len = opener.open(label, memory.get_mut(..sealed)?).ok()?.len();
        Some(Self { memory, len })
    }
}

impl Deref for Opened {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[..self.len]
    }
}

/// A piece of a file, and its hash; it derefs to its contents.
pub(crate) struct Piece {
    opened: Opened,
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
        &self.opened
    }
}
