//! [`SealConfig`]: how units are sealed, and bounds.

use alloc::vec::Vec;

use landfall_placement::PathId;

use super::association::Proof;
use crate::aead::Suite;

/// How units are sealed, and how many peers there may be.
#[derive(Debug)]
pub struct SealConfig {
    /// How this end proves itself, and what it wants of its peers.
    pub proof: Proof,
    /// The suite of associations that begin here. One that a peer begins has the peer's.
    pub suite: Suite,
    /// What both ends must agree on: the name of what runs on top.
    pub context: Vec<u8>,
    /// The most associations.
    pub most: usize,
    /// The most that others began and that have shown nothing but that they can begin. 0: nobody
    /// else may begin any.
    pub half_open: usize,
    /// Paths that stay as they are, for they leave this host's memory never.
    pub plain_paths: Vec<PathId>,
    /// Units from and to loopback addresses stay as they are: they do not leave the host.
    pub plain_loopback: bool,
    /// How long units of handshakes by certificates are.
    pub handshake_units: HandshakeUnits,
}

impl SealConfig {
    /// The usual bounds, and everything sealed.
    #[must_use]
    pub const fn new(proof: Proof) -> Self {
        let suite = Suite::Aes128Gcm;
        Self {
            proof,
            suite,
            context: Vec::new(),
            most: 4096,
            half_open: 256,
            plain_paths: Vec::new(),
            plain_loopback: false,
            handshake_units: HandshakeUnits::Usual,
        }
    }
}

/// The longest units of handshakes by certificates, whose messages are cut into chunks. Both ends
/// must agree on it, as on the context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HandshakeUnits {
    /// 256 bytes.
    #[default]
    Usual,
    /// 224 bytes, where the frames that carry them are short.
    Short,
}

impl HandshakeUnits {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Usual, Self::Short];

    /// The bytes of each chunk of a message but its last.
    #[cfg(any(feature = "rustls", feature = "model"))]
    pub(crate) const fn chunk(self) -> usize {
        match self {
            Self::Usual => 224,
            Self::Short => 192,
        }
    }
}
