//! [`Cargo`]: what one frame carries, while it is put together.

use arrayvec::ArrayVec;
use landfall_placement::Span;

use crate::address::WORD;
use crate::nic::news::Note;
use crate::wire::frame::{Entry, HEADER_LEN, MAX_ENTRIES};

/// The most bytes of a frame that are copied into its head: what the drivers'
/// room leaves behind a header and one entry.
pub(crate) const MAX_INLINE: usize = 256 - HEADER_LEN - Entry::LEN;

/// The most pieces of memory that a frame is gathered from.
pub(crate) const MAX_SPANS: usize = 12;

/// What one frame carries.
///
/// The payload is `inline` and then the bytes of `spans`; the entries stand in
/// the same order. The bytes that `spans` name stay untouched until the notes
/// come back.
#[derive(Clone, Debug)]
pub(crate) struct Cargo<N: Copy = Note> {
    /// The packets.
    pub(crate) entries: ArrayVec<Entry, MAX_ENTRIES>,
    /// Payload that is copied.
    pub(crate) inline: ArrayVec<u8, MAX_INLINE>,
    /// Payload that is gathered when the frame leaves, each time that it does.
    pub(crate) spans: ArrayVec<Span, MAX_SPANS>,
    /// What the owner wants to hear of once the frame has arrived.
    pub(crate) notes: ArrayVec<N, MAX_ENTRIES>,
    /// Nothing waits behind it: whoever waits for it to arrive waits for this frame.
    pub(crate) is_last: bool,
}

impl<N: Copy> Default for Cargo<N> {
    fn default() -> Self {
        Self {
            entries: ArrayVec::new(),
            inline: ArrayVec::new(),
            spans: ArrayVec::new(),
            notes: ArrayVec::new(),
            is_last: false,
        }
    }
}

impl<N: Copy> Cargo<N> {
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.inline.clear();
        self.spans.clear();
        self.notes.clear();
        self.is_last = false;
    }

    /// How many bytes its entries say that there are.
    pub(crate) fn payload_len(&self) -> u32 {
        self.entries.iter().map(Entry::payload_len).sum()
    }

    /// How many there are.
    pub(crate) fn bytes(&self) -> u64 {
        let gathered: u64 = self.spans.iter().map(|span| u64::from(span.len)).sum();
        self.inline.len() as u64 + gathered
    }
}

/// How much a frame has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Bytes for entries and what is copied.
    pub(crate) head: usize,
    /// Bytes for entries, what is copied, and what is gathered.
    pub(crate) unit: usize,
    /// The other side has said Xoff: only answers to what it has asked may go.
    /// It has kept room for those, so nobody waits for each other in a circle.
    pub(crate) answers_only: bool,
}

/// The most entries that one more piece of memory takes: parts of a word at
/// either end, and words.
pub(crate) const MOST_PARTS: usize = 3;

impl Room {
    /// The room of a frame whose head, and which as a whole, has at most so many bytes.
    ///
    /// Frames full of words from one piece of memory are as long as any: then those of a long
    /// write are alike, but for where it begins and ends, and leave with one call.
    pub(crate) const fn of(head: usize, unit: usize, answers_only: bool) -> Self {
        let table = MOST_PARTS * Entry::LEN;
        let unit = match unit.saturating_sub(HEADER_LEN) {
            unit if unit > table => unit - (unit - table) % WORD as usize,
            unit => unit,
        };
        Self { head: head.saturating_sub(HEADER_LEN), unit, answers_only }
    }

    /// The room of a packet of a native link with at most so many words, which are copied.
    pub(crate) const fn copied(words: u32) -> Self {
        let unit = Entry::LEN + words as usize * WORD as usize;
        Self { head: unit, unit, answers_only: false }
    }

    /// The same for words that lie in memory.
    pub(crate) const fn moved(words: u32) -> Self {
        let head = MOST_PARTS * Entry::LEN;
        Self { head, unit: head + words as usize * WORD as usize, answers_only: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_full_of_words_are_as_long_as_any() {
        for unit in 200..2000 {
            let room = Room::of(256, unit, false).unit;
            let alone = Entry::LEN + (room - MOST_PARTS * Entry::LEN) / 8 * 8;
            // A piece that ends in the frame, of any length, and the beginning of another.
            for first in (8..room - 5 * Entry::LEN).step_by(8) {
                let left = room - Entry::LEN - first;
                let second = (left - MOST_PARTS * Entry::LEN) / 8 * 8;
                assert!(2 * Entry::LEN + first + second <= alone, "unit {unit}, {first} bytes");
            }
        }
    }
}
