//! What of a packet is there and what is missing, and how it was cut.
//!
//! RFC 815 keeps a list of the holes. A stranger who cuts a packet into its
//! smallest pieces and sends every second one makes that list 4,096 holes long, and
//! each piece a walk along it. Pieces start at multiples of 8, so that two bits for
//! each 8 bytes say the same at a constant cost: *filled*, and *a piece starts
//! here*. The second tells an exact repetition, which is passed over, from an
//! overlap, which is not (RFC 5722, RFC 8200 section 4.5).

use alloc::vec::Vec;

/// Bytes that one bit stands for: fragment offsets count in these.
const UNIT: u32 = 8;
/// Units in a word.
const BITS: u32 = u64::BITS;

/// What is there of one packet, two bits for each 8 bytes. Grows with the place of its pieces: to 1/32 of the
/// longest packet, and no further.
#[derive(Debug, Default)]
pub struct Holes {
    words: Vec<Word>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Word {
    filled: u64,
    starts: u64,
}

impl Holes {
    /// Nothing is there any more. The memory stays.
    pub fn clear(&mut self) {
        self.words.clear();
    }

    /// How many bytes of memory it has.
    #[must_use]
    pub const fn memory(&self) -> usize {
        self.words.capacity() * size_of::<Word>()
    }

    /// What was noted here is noted there.
    pub fn move_to(&mut self, other: &mut Self) {
        other.words.clear();
        other.words.append(&mut self.words);
    }

    /// The piece of these bytes is there now. Its start is a multiple of 8; an end
    /// that is none is that of the packet.
    #[inline]
    pub(super) fn fill(&mut self, start: u32, end: u32) {
        let (first, behind) = units(start, end);
        let needed = behind.div_ceil(BITS) as usize;
        if self.words.len() < needed {
            self.words.resize(needed, Word::default());
        }
        for (at, mask) in masks(first, behind) {
            self.words[at].filled |= mask;
        }
        self.words[(first / BITS) as usize].starts |= 1 << (first % BITS);
    }

    /// Is any of these bytes there?
    pub(super) fn overlap(&self, start: u32, end: u32) -> bool {
        let (first, behind) = units(start, end);
        masks(first, behind).any(|(at, mask)| self.word(at).filled & mask != 0)
    }

    /// Did exactly these bytes come as one piece?
    pub(super) fn is_piece(&self, start: u32, end: u32) -> bool {
        let (first, behind) = units(start, end);
        let start_bit = (first / BITS, 1 << (first % BITS));
        let is_one = masks(first, behind).all(|(at, mask)| {
            let word = self.word(at);
            let own = if at == start_bit.0 as usize { start_bit.1 } else { 0 };
            word.filled & mask == mask && word.starts & mask == own
        });
        let next = self.word((behind / BITS) as usize);
        let bit = 1 << (behind % BITS);
        // What is filled behind it belongs to another piece.
        is_one && (next.filled & bit == 0 || next.starts & bit != 0)
    }

    fn word(&self, at: usize) -> Word {
        self.words.get(at).copied().unwrap_or_default()
    }
}

/// The first unit of these bytes, and the first behind them.
const fn units(start: u32, end: u32) -> (u32, u32) {
    (start / UNIT, end.div_ceil(UNIT))
}

/// The words that hold these units, each with its bits of them.
#[inline]
fn masks(first: u32, behind: u32) -> impl Iterator<Item = (usize, u64)> {
    (first / BITS..behind.div_ceil(BITS)).map(move |at| {
        let from = first.saturating_sub(at * BITS);
        let to = (behind - at * BITS).min(BITS);
        (at as usize, (u64::MAX << from) & (u64::MAX >> (BITS - to)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a list of the pieces.
        #[test]
        fn bits_say_what_the_pieces_say(
            pieces in prop::collection::vec((0u32..300, 1u32..80), 0..60),
            asked in prop::collection::vec((0u32..300, 1u32..80), 20),
        ) {
            let mut holes = Holes::default();
            let mut model: Vec<(u32, u32)> = Vec::new();
            let ranges = |list: Vec<(u32, u32)>| list.into_iter().map(|(at, len)| (at * 8, (at + len) * 8));
            for (start, end) in ranges(pieces) {
                let overlaps = model.iter().any(|other| other.0 < end && start < other.1);
                prop_assert_eq!(holes.overlap(start, end), overlaps);
                if !overlaps {
                    holes.fill(start, end);
                    model.push((start, end));
                }
            }
            for piece in ranges(asked).chain(model.clone()) {
                prop_assert_eq!(holes.is_piece(piece.0, piece.1), model.contains(&piece), "{:?}", piece);
            }
            let mut other = Holes::default();
            other.fill(8, 16);
            holes.move_to(&mut other);
            for piece in &model {
                prop_assert!(other.is_piece(piece.0, piece.1));
                prop_assert!(!holes.overlap(piece.0, piece.1));
            }
        }
    }

    #[test]
    fn the_last_piece_may_end_anywhere() {
        let mut holes = Holes::default();
        holes.fill(65_528, 65_535);
        assert!(holes.is_piece(65_528, 65_535) && holes.overlap(65_528, 65_529));
        assert!(!holes.overlap(0, 65_528));
        assert_eq!(holes.words.len(), 128, "1/32 of the longest packet");
        holes.clear();
        assert!(!holes.overlap(0, 65_535));
    }
}
