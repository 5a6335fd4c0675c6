//! What a driver posts, and what it has when frames lie somewhere already.

use landfall_placement::Span;

/// The bytes of a head slot. Slot `n` starts at `n` times this in the area of heads.
pub const HEAD_SLOT: u32 = 256;

/// Where the next frame goes: its first bytes to the head slot with the number of
/// the descriptor, the next ones to a place, all that remain to the spill slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// So many bytes go to the head slot.
    pub head_len: u16,
    /// The bytes behind them go here: to where they belong, if the guess is right.
    /// Empty if nothing is guessed.
    pub place: Span,
}

/// A frame that lies in one piece in memory that has a name: in a ring that is
/// shared with the kernel, or in the frames of a device.
#[derive(Clone, Copy, Debug)]
pub struct Lying<'a> {
    /// All of it.
    pub at: Span,
    /// Its first bytes: 192 of them, or all.
    pub head: &'a [u8],
}
