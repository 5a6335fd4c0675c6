//! One frame while it is filled.
//!
//! What the program wrote is copied into the head behind the table, what lies
//! in memory is named by spans, and the payload is the one followed by the
//! other. So once a frame has a span nothing of the program's can join it: it
//! would be in place before what it was written after.

use arrayvec::ArrayVec;
use landfall_placement::Span;

use crate::address::{Address, HostId, Kind, WHOLE, WORD};
use crate::link::{Cargo, MOST_PARTS, Room};
use crate::nic::news::Note;
use crate::wire::{Command, Entry};

/// A frame that is being filled.
#[derive(Debug)]
pub(crate) struct Load<'a> {
    cargo: &'a mut Cargo,
    /// Bytes of the head that are left.
    head: usize,
    /// Bytes of the unit that are left.
    unit: usize,
    /// There is a command in it. What lies in memory does not join it: the other
    /// side has to look at such a frame packet by packet, and would copy it.
    has_command: bool,
    /// Nothing more may join it.
    is_closed: bool,
}

impl<'a> Load<'a> {
    pub(crate) fn new(room: Room, cargo: &'a mut Cargo) -> Self {
        Self { cargo, head: room.head, unit: room.unit, has_command: false, is_closed: false }
    }

    /// Is there anything in it?
    pub(crate) fn is_empty(&self) -> bool {
        self.cargo.entries.is_empty()
    }

    /// How many bytes could be copied in behind one more entry.
    pub(crate) fn inline_room(&self) -> usize {
        let is_full = self.is_closed || self.cargo.entries.is_full();
        if is_full || !self.cargo.spans.is_empty() {
            return 0;
        }
        let least = self.head.min(self.unit).saturating_sub(Entry::LEN);
        least.min(self.cargo.inline.remaining_capacity())
    }

    /// Copies bytes in; there must be room.
    #[inline]
    pub(crate) fn put_inline(&mut self, part: Part, bytes: impl Iterator<Item = u8>) {
        let before = self.cargo.inline.len();
        self.has_command |= part.address.kind == Kind::Command;
        self.enter(part);
        self.cargo.inline.extend(bytes.take(part.len as usize));
        let len = self.cargo.inline.len() - before;
        self.head = self.head.saturating_sub(len);
        self.unit = self.unit.saturating_sub(len);
    }

    /// Copies a command in. `false` where it finds no room.
    pub(crate) fn put_command(&mut self, command: &Command, host: HostId) -> bool {
        let (address, parameters) = command.encode(host);
        let fits = parameters.len() <= self.inline_room();
        if fits {
            let part = Part { address, len: parameters.len() as u32 };
            self.put_inline(part, parameters.into_iter());
        }
        fits
    }

    /// How many bytes of memory one more span could name.
    pub(crate) fn span_room(&self) -> usize {
        let table = MOST_PARTS * Entry::LEN;
        let is_full = self.has_command
            || self.is_closed
            || self.cargo.entries.remaining_capacity() < MOST_PARTS
            || self.cargo.spans.is_full()
            || self.cargo.notes.is_full()
            || self.head < table;
        if is_full { 0 } else { self.unit.saturating_sub(table) }
    }

    /// Names memory; there must be room.
    pub(crate) fn put_span(&mut self, parts: &[Part], span: Span) {
        for part in parts {
            self.enter(*part);
        }
        if self.cargo.spans.try_push(span).is_ok() {
            self.unit = self.unit.saturating_sub(span.len as usize);
        }
    }

    /// What is in it stays alone.
    pub(crate) const fn close(&mut self) {
        self.is_closed = true;
    }

    /// Nothing waits behind it.
    pub(crate) const fn mark_last(&mut self) {
        self.cargo.is_last = true;
    }

    /// Is there room for one more remark?
    pub(crate) fn has_note_room(&self) -> bool {
        !self.cargo.notes.is_full()
    }

    /// Remarks what is to be done once the frame has arrived.
    pub(crate) fn note(&mut self, note: Note) {
        // There are as many places as entries, and each entry has at most one.
        let _ = self.cargo.notes.try_push(note);
    }

    fn enter(&mut self, part: Part) {
        let entry = Entry { address: part.address, words: part.words() as u16 };
        if self.cargo.entries.try_push(entry).is_ok() {
            self.head = self.head.saturating_sub(Entry::LEN);
            self.unit = self.unit.saturating_sub(Entry::LEN);
        }
    }
}

// Bytes at any place, as packets: words, and what is left at either end.

/// One packet's worth: whole words, or some bytes of one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Where, and which bytes of the word.
    pub(crate) address: Address,
    /// How many bytes.
    pub(crate) len: u32,
}

impl Part {
    /// How many words it has; the parameters of a command need not fill theirs.
    pub(crate) const fn words(&self) -> u32 {
        if self.address.mask == WHOLE { self.len.div_ceil(WORD) } else { 1 }
    }
}

/// The packets for `len` bytes at `offset` of an aperture whose first word has
/// the address `base`: some bytes of a word, whole words, some bytes of a word.
/// `None` where that lies beyond what addresses reach.
pub(crate) fn cut(base: Address, offset: u64, len: u32) -> Option<ArrayVec<Part, 3>> {
    let word = |offset: u64| {
        let number = u32::try_from(offset / u64::from(WORD)).ok()?;
        base.advanced(number)
    };
    let mut parts = ArrayVec::new();
    let (mut offset, mut left) = (offset, len);
    while left > 0 {
        let from = (offset % u64::from(WORD)) as u32;
        let whole = if from == 0 { left / WORD * WORD } else { 0 };
        let (mask, len) = match whole {
            0 => {
                let len = (WORD - from).min(left);
                (Address::mask_of(from, len)?, len)
            }
            _ => (WHOLE, whole),
        };
        parts.try_push(Part { address: Address { mask, ..word(offset)? }, len }).ok()?;
        offset = offset.checked_add(u64::from(len))?;
        left -= len;
    }
    Some(parts)
}

/// How many of `left` bytes at `offset` go into a piece of at most `room`: all,
/// or up to the end of a word.
pub(crate) fn piece_len(offset: u64, left: u64, room: usize) -> u32 {
    // No piece has more words than its entry can count.
    let most = u32::from(u16::MAX) * WORD;
    let room = u32::try_from(room).unwrap_or(most).min(most);
    if left <= u64::from(room) {
        return left as u32;
    }
    let over = ((offset + u64::from(room)) % u64::from(WORD)) as u32;
    room.saturating_sub(over)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::{HostId, Key};
    use crate::cookie::{Cookie, Rights};

    fn base() -> Address {
        Cookie::new(HostId::default(), 1, Rights::Write, Key::from_bits(5), 1 << 30).address(0)
    }

    #[test]
    fn each_byte_is_in_one_packet_in_its_order() {
        for offset in 0..17_u64 {
            for len in 0..40_u32 {
                let parts = cut(base(), offset, len).unwrap();
                let mut bytes = std::vec::Vec::new();
                for part in &parts {
                    let (from, enabled) = part.address.enabled();
                    let at = u64::from(part.address.word * WORD + from);
                    assert!(part.address.mask == WHOLE || part.len == enabled, "{part:?}");
                    assert!(part.address.mask != WHOLE || part.len % WORD == 0, "{part:?}");
                    assert!(part.len > 0);
                    bytes.extend(at..at + u64::from(part.len));
                }
                let wanted: std::vec::Vec<u64> = (offset..offset + u64::from(len)).collect();
                assert_eq!(bytes, wanted, "{len} bytes at {offset}");
            }
        }
    }

    #[test]
    fn pieces_end_where_words_do_or_the_bytes() {
        for offset in 0..9 {
            for room in 0..40 {
                for left in 1..50 {
                    let len = piece_len(offset, left, room);
                    assert!(len as usize <= room && u64::from(len) <= left);
                    let is_end = (offset + u64::from(len)).is_multiple_of(8);
                    assert!(len == 0 || is_end || u64::from(len) == left, "{offset} {left} {room}");
                    assert!(len > 0 || room < 8, "{offset} {left} {room}: nothing goes");
                }
            }
        }
    }

    #[test]
    fn beyond_all_addresses_is_nothing() {
        let last = u64::from(u32::MAX) * u64::from(WORD);
        assert!(cut(base(), last, WORD).is_some());
        assert_eq!(cut(base(), last, WORD + 1), None);
        assert_eq!(cut(base(), u64::MAX, 1), None);
        assert_eq!(cut(base(), u64::MAX - 3, 9), None);
    }
}
