//! [`FramePayload`]: what one frame carries, while it is put together; [`RetransmitBuffer`]: what
//! frames carry, kept until it has arrived.
//!
//! A frame is put on the shelf as it stands on the wire, behind the header, so
//! a repetition is a copy. Frames leave in the order in which they came: three
//! rings are enough, and a frame takes no more of them than it has.

use alloc::collections::VecDeque;

use arrayvec::ArrayVec;
use landfall_placement::{Full, Span, Spans};

use crate::address::WORD;
use crate::nic::updates::Note;
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
pub(crate) struct FramePayload<N: Copy = Note> {
    /// The packets.
    pub(crate) entries: ArrayVec<Entry, MAX_ENTRIES>,
    /// Payload that is copied.
    pub(crate) inline: ArrayVec<u8, MAX_INLINE>,
    /// Payload that is gathered when the frame leaves, each time that it does.
    pub(crate) spans: ArrayVec<Span, MAX_SPANS>,
    /// What the owner wants to hear of once the frame has arrived.
    pub(crate) notes: ArrayVec<N, MAX_ENTRIES>,
    /// Nothing waits behind it: anyone who waits for it to arrive waits for this frame.
    pub(crate) is_last: bool,
}

impl<N: Copy> Default for FramePayload<N> {
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

impl<N: Copy> FramePayload<N> {
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
pub(crate) struct FrameRoom {
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

impl FrameRoom {
    /// The room of a frame whose head, and which as a whole, has at most this many bytes.
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

    /// The room of a packet of a native link with at most this many words, which are copied.
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

/// Where a frame lies on the shelf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    /// Counted from the first byte, and the first span, that ever lay there.
    head_at: u32,
    span_at: u32,
    head_len: u16,
    /// Copied and gathered bytes together.
    pub(crate) payload_len: u16,
    pub(crate) entries: u8,
    pub(crate) spans: u8,
    pub(crate) notes: u8,
}

impl Stored {
    /// The length of the frame.
    pub(crate) const fn frame_len(&self) -> u32 {
        (HEADER_LEN + self.entries as usize * Entry::LEN) as u32 + self.payload_len as u32
    }

    /// How much of it is written into the head.
    pub(crate) const fn head_len(&self) -> usize {
        HEADER_LEN + self.head_len as usize
    }
}

/// What frames carry, the oldest first.
#[derive(Debug)]
pub(crate) struct RetransmitBuffer<N> {
    heads: VecDeque<u8>,
    spans: VecDeque<Span>,
    notes: VecDeque<N>,
    head_start: u32,
    span_start: u32,
    /// Notes of frames that have left.
    free_notes: usize,
}

impl<N: Copy> RetransmitBuffer<N> {
    pub(crate) const fn new() -> Self {
        Self {
            heads: VecDeque::new(),
            spans: VecDeque::new(),
            notes: VecDeque::new(),
            head_start: 0,
            span_start: 0,
            free_notes: 0,
        }
    }

    /// Keeps what a frame carries. `None` where its entries do not say as many
    /// bytes as there are, or more than a frame can have.
    pub(crate) fn put(&mut self, payload: &FramePayload<N>) -> Option<Stored> {
        let payload_len = u16::try_from(payload.bytes()).ok()?;
        if payload.entries.is_empty() || u32::from(payload_len) != payload.payload_len() {
            return None;
        }
        let stored = Stored {
            head_at: self.head_start.wrapping_add(self.heads.len() as u32),
            span_at: self.span_start.wrapping_add(self.spans.len() as u32),
            head_len: (payload.entries.len() * Entry::LEN + payload.inline.len()) as u16,
            payload_len,
            entries: payload.entries.len() as u8,
            spans: payload.spans.len() as u8,
            notes: payload.notes.len() as u8,
        };
        for entry in &payload.entries {
            self.heads.extend(&entry.to_bytes());
        }
        self.heads.extend(&payload.inline);
        self.spans.extend(&payload.spans);
        self.notes.extend(&payload.notes);
        Some(stored)
    }

    /// Writes a frame behind its header; `None` where `head` or `from` is too small.
    pub(crate) fn write(&self, stored: &Stored, head: &mut [u8], from: &mut Spans) -> Option<()> {
        let into = head.get_mut(HEADER_LEN..stored.head_len())?;
        let at = stored.head_at.wrapping_sub(self.head_start) as usize;
        let (first, second) = self.heads.as_slices();
        let first = first.get(at..).unwrap_or(&[]);
        let behind = at.saturating_sub(self.heads.as_slices().0.len());
        let second = second.get(behind..)?;
        let (a, b) = into.split_at_mut(first.len().min(into.len()));
        a.copy_from_slice(&first[..a.len()]);
        b.copy_from_slice(second.get(..b.len())?);
        let at = stored.span_at.wrapping_sub(self.span_start) as usize;
        for span in self.spans.range(at..at + usize::from(stored.spans)) {
            if let Err(Full) = from.push(*span) {
                return None;
            }
        }
        Some(())
    }

    /// The oldest frame leaves; its notes wait to be asked for.
    pub(crate) fn take_away(&mut self, stored: &Stored) {
        self.heads.drain(..usize::from(stored.head_len).min(self.heads.len()));
        self.spans.drain(..usize::from(stored.spans).min(self.spans.len()));
        self.head_start = self.head_start.wrapping_add(u32::from(stored.head_len));
        self.span_start = self.span_start.wrapping_add(u32::from(stored.spans));
        self.free_notes += usize::from(stored.notes);
    }

    /// The next note of a frame that has left.
    pub(crate) fn poll_note(&mut self) -> Option<N> {
        self.free_notes = self.free_notes.checked_sub(1)?;
        self.notes.pop_front()
    }

    /// Are there notes to be asked for?
    pub(crate) const fn has_notes(&self) -> bool {
        self.free_notes > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::{Address, HostId, Key, Kind, WHOLE};
    use landfall_placement::RegionId;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn frames_full_of_words_are_as_long_as_any() {
        for unit in 200..2000 {
            let room = FrameRoom::of(256, unit, false).unit;
            let alone = Entry::LEN + (room - MOST_PARTS * Entry::LEN) / 8 * 8;
            // A piece that ends in the frame, of any length, and the beginning of another.
            for first in (8..room - 5 * Entry::LEN).step_by(8) {
                let left = room - Entry::LEN - first;
                let second = (left - MOST_PARTS * Entry::LEN) / 8 * 8;
                assert!(2 * Entry::LEN + first + second <= alone, "unit {unit}, {first} bytes");
            }
        }
    }

    fn payload(inline: u8, span: u16, note: u32) -> FramePayload<u32> {
        let address = Address {
            kind: Kind::Burst,
            host: HostId::default(),
            slot: 1,
            word: note,
            mask: WHOLE,
            key: Key::default(),
        };
        let mut payload = FramePayload::default();
        payload.entries.push(Entry { address, words: u16::from(inline) });
        payload.inline.extend((0..inline * 8).map(|n| n ^ note as u8));
        if span > 0 {
            payload.entries.push(Entry { address, words: span });
            payload.spans.push(RegionId::new(1, 1).span(u64::from(note), u32::from(span) * 8));
        }
        payload.notes.push(note);
        payload
    }

    proptest! {
        #[test]
        fn what_was_put_there_comes_back_in_order(
            sizes in prop::collection::vec((1u8..20, 0u16..50, 1usize..8), 1..200),
        ) {
            let mut retransmit = RetransmitBuffer::new();
            let mut inside: VecDeque<(Stored, FramePayload<u32>)> = VecDeque::new();
            let mut notes = Vec::new();
            for (n, (inline, span, most)) in sizes.iter().enumerate() {
                let payload = payload(*inline, *span, n as u32);
                inside.push_back((retransmit.put(&payload).unwrap(), payload));
                while inside.len() > *most {
                    let (stored, _) = inside.pop_front().unwrap();
                    retransmit.take_away(&stored);
                    notes.extend(retransmit.poll_note());
                }
                for (stored, payload) in &inside {
                    let (mut head, mut from) = ([0; 256], Spans::new());
                    retransmit.write(stored, &mut head, &mut from).unwrap();
                    let table: Vec<u8> = payload.entries.iter().flat_map(|e| e.to_bytes()).collect();
                    let end = HEADER_LEN + table.len();
                    prop_assert_eq!(&head[HEADER_LEN..end], &table[..]);
                    prop_assert_eq!(&head[end..stored.head_len()], &payload.inline[..]);
                    prop_assert_eq!(from.as_slice(), &payload.spans[..]);
                    let len = end as u64 + payload.bytes();
                    prop_assert_eq!(u64::from(stored.frame_len()), len);
                }
            }
            prop_assert_eq!(notes, (0..(sizes.len() - inside.len()) as u32).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_contradicts_itself_is_not_kept() {
        let mut retransmit = RetransmitBuffer::<u32>::new();
        let mut wrong = payload(1, 0, 0);
        wrong.inline.pop();
        assert!(retransmit.put(&wrong).is_none());
        assert!(retransmit.put(&FramePayload::default()).is_none());
    }
}
