//! One frame while it is filled.
//!
//! What the program wrote is copied into the head behind the table, what lies
//! in memory is named by spans, and the payload is the one followed by the
//! other. So once a frame has a span nothing of the program's can join it: it
//! would be in place before what it was written after.

use landfall_placement::Span;

use crate::address::{HostId, Kind};
use crate::link::{Cargo, MOST_PARTS, Room};
use crate::nic::news::Note;
use crate::transfer::cut::Part;
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
