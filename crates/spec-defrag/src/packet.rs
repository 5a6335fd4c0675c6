//! What comes out: a packet as it would have come over a wire with room for it.

use core::fmt;

use landfall_placement::Span;

use crate::buffers::BufferId;

/// The first bytes of a packet: link header, IP header, and what a descriptor kept
/// apart from the payload.
#[derive(Clone, Copy)]
pub struct Head {
    bytes: [u8; Self::MOST],
    len: u8,
}

impl Head {
    /// A longer head is refused: link header, IPv6 header and 138 bytes of options.
    pub const MOST: usize = 192;

    /// No bytes yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: [0; Self::MOST], len: 0 }
    }

    /// A copy of `bytes`; `None` if they are too many.
    #[must_use]
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        let mut head = Self::new();
        head.push(bytes).then_some(head)
    }

    /// Adds bytes at the end. False, and nothing added, if they are too many.
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        let start = usize::from(self.len);
        let Some(room) = self.bytes.get_mut(start..start + bytes.len()) else { return false };
        room.copy_from_slice(bytes);
        self.len += bytes.len() as u8;
        true
    }

    /// The bytes.
    #[must_use]
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The bytes, to be changed in place.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[..usize::from(self.len)]
    }
}

impl Default for Head {
    fn default() -> Self {
        Self::new()
    }
}

impl core::ops::Deref for Head {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Head {}

impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Head({:02x?})", self.as_slice())
    }
}

/// On which way a packet was joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// Every fragment had landed where it belongs.
    Speculated,
    /// By the conventional path.
    Conventional,
    /// It came in one piece: nothing was to be joined.
    Whole,
}

/// Where the bytes behind the head lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// In a buffer, one after another. The buffer is the receiver's of the packet
    /// until it is released.
    Buffer(BufferId, Span),
    /// Where the fragments lie, as a list: see `Receiver::lent`.
    Lent(ListId),
}

/// Names a list of pieces that were lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// A packet as it would have come in one frame: head, then body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Its first bytes; lengths and flags are those of the whole packet.
    pub head: Head,
    /// The bytes behind.
    pub body: Body,
    /// How many bytes are behind the head.
    pub body_len: u32,
    /// How it was joined.
    pub way: Way,
}
