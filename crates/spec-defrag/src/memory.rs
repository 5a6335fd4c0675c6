//! The memory that the engine gives names to, and never touches but for headers; what a driver
//! posts, and what it has when frames lie somewhere already; what comes out: a packet as it would
//! have come over a wire with room for it.

use core::fmt;

use landfall_placement::Span;

use crate::buffers::BufferId;
use crate::receiver::Lend;

/// What the engine asks of anyone who owns the memory.
///
/// The engine says which bytes belong where; a payload goes there by the guess of
/// a descriptor, or by one [`Memory::copy`].
pub trait Memory {
    /// The head slot of a descriptor, as far as a frame of the last burst filled it.
    fn head(&self, slot: u16) -> &[u8];

    /// Copies bytes from one place to another of the same length. The two never
    /// overlap.
    fn copy(&mut self, from: Span, to: Span);

    /// Reads the bytes of a header that lie outside of the head slot.
    fn read(&self, from: Span, into: &mut [u8]);
}

/// Where the bytes of one frame lie, in their order: in a head slot, in the place
/// that was guessed, in a spill slot. A frame that lies in one piece has one span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pieces {
    list: [Span; Self::MOST],
}

impl Pieces {
    /// A descriptor has this many parts.
    pub const MOST: usize = 3;

    /// A frame that lies in one piece.
    #[must_use]
    pub fn one(span: Span) -> Self {
        Self::new([span, Span::default(), Span::default()])
    }

    /// A frame in pieces; empty ones do not count.
    #[must_use]
    pub const fn new(list: [Span; Self::MOST]) -> Self {
        Self { list }
    }

    /// The length of the frame.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.list.iter().map(|span| u64::from(span.len)).sum()
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.iter().all(|span| span.len == 0)
    }

    /// The part of `len` bytes from `from` on, cut where the frame ends.
    #[must_use]
    pub fn part(&self, mut from: u32, mut len: u32) -> Self {
        let mut part = Self::default();
        for (piece, out) in self.list.iter().zip(&mut part.list) {
            let (skipped, rest) = piece.split_at(from);
            let taken = rest.split_at(len).0;
            from -= skipped.len;
            len -= taken.len;
            *out = taken;
        }
        part
    }

    /// The spans that are not empty, in order.
    pub fn iter(&self) -> impl Iterator<Item = Span> + '_ {
        self.list.iter().copied().filter(|span| span.len > 0)
    }

    /// Moves all bytes to `to`, which has room for them.
    pub fn copy_to(&self, to: Span, memory: &mut impl Memory) {
        let mut rest = to;
        for piece in self.iter() {
            let (target, behind) = rest.split_at(piece.len);
            // What lies where it belongs already stays.
            if piece != target {
                memory.copy(piece.split_at(target.len).0, target);
            }
            rest = behind;
        }
    }

    /// Reads the first bytes into `into`; gives how many there were.
    pub fn read(&self, into: &mut [u8], memory: &impl Memory) -> usize {
        let mut done = 0;
        for piece in self.iter() {
            let take = into[done..].len().min(piece.len as usize);
            memory.read(piece.split_at(take as u32).0, &mut into[done..done + take]);
            done += take;
        }
        done
    }
}

/// The bytes of a head slot. Slot `n` starts at `n` times this in the area of heads.
pub const HEAD_SLOT: u32 = 256;

/// Where the next frame goes: its first bytes to the head slot with the number of
/// the descriptor, the next ones to a place, all that remain to the spill slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// How many bytes go to the head slot.
    pub head_len: u16,
    /// The bytes behind them go here: to where they belong, if the guess is right.
    /// Empty if nothing is guessed.
    pub place: Span,
}

/// A frame that lies in one piece in memory that has a name: in a ring that is
/// shared with the kernel, or in the frames of a device.
#[derive(Clone, Copy, Debug)]
pub struct MappedFrame<'a> {
    /// All of it.
    pub at: Span,
    /// Its first bytes: 192 of them, or all.
    pub head: &'a [u8],
}

/// Frames whose memory goes back together, and in which packets may wait and be lent.
#[derive(Clone, Copy, Debug)]
pub struct Bunch<'a> {
    /// By which the driver knows it: no other bunch that is held has the same.
    pub number: u64,
    /// In the order in which they came.
    pub frames: &'a [MappedFrame<'a>],
    /// Whether packets may be lent from there and wait there, or are copied, since users hold
    /// as much of the driver's memory as they may.
    pub lend: Lend,
}

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

    /// Takes all bytes out.
    pub const fn clear(&mut self) {
        self.len = 0;
    }

    /// Adds bytes at the end. False, and nothing added, if they are too many.
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        let start = usize::from(self.len);
        // There is no room for all of them.
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
pub enum ReassemblyPath {
    /// Every fragment had landed where it belongs: it was guessed right.
    Speculated,
    /// Nothing was guessed or copied: it is a list of where its fragments lie.
    Lent,
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
    pub path: ReassemblyPath,
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_placement::RegionId;

    const R: RegionId = RegionId::new(1, 1);

    #[test]
    fn a_part_is_cut_anywhere() {
        let all = Pieces::new([R.span(0, 34), R.span(100, 1480), R.span(5000, 20)]);
        let bytes = |pieces: &Pieces| -> std::vec::Vec<u64> {
            pieces.iter().flat_map(|span| span.offset..span.end().unwrap()).collect()
        };
        let flat = bytes(&all);
        assert_eq!(flat.len() as u64, all.len());
        for from in [0, 1, 33, 34, 35, 1513, 1514, 1533, 1534, 2000] {
            for len in [0, 1, 34, 1480, 1500, 4000] {
                let start = (from as usize).min(flat.len());
                let end = (start + len as usize).min(flat.len());
                assert_eq!(bytes(&all.part(from, len)), flat[start..end], "{from}, {len}");
            }
        }
        assert!(Pieces::default().is_empty() && all.part(1534, 9).is_empty());
    }
}
