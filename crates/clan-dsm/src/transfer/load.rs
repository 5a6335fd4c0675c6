//! One frame while it is filled.
//!
//! What the program wrote is copied into the head behind the table, what lies
//! in memory is named by spans, and the payload is the one followed by the
//! other. So once a frame has a span nothing of the program's can join it: it
//! would be in place before what it was written after.
//!
//! What is told once writes have arrived. Barriers: has all that was written before arrived?
//! And writes from memory, among those of the program: how much of each has not.
//!
//! Over a link that acknowledges frames nothing has to be sent for one. It is
//! reached when all frames that were loaded before it are acknowledged, and
//! all chains of DMA requests are done that were in a queue when it was asked
//! for.

use alloc::collections::VecDeque;

use arrayvec::ArrayVec;
use landfall_placement::Span;
use landfall_tables::Table;

use crate::address::{Address, BarrierId, HostId, Kind, WHOLE, WORD, WriteId};
use crate::error::Ended;
use crate::link::{FramePayload, FrameRoom, MOST_PARTS};
use crate::nic::updates::Note;
use crate::wire::{Command, Entry};

/// A frame that is being filled.
#[derive(Debug)]
pub(crate) struct Load<'a> {
    cargo: &'a mut FramePayload,
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
    pub(crate) fn new(room: FrameRoom, cargo: &'a mut FramePayload) -> Self {
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

/// The barriers of one link.
#[derive(Debug, Default)]
pub(crate) struct Barriers {
    /// How many frames were loaded.
    loaded: u64,
    /// In the order of the calls. Each is reached in its turn.
    waiting: VecDeque<Waiting>,
    chains: Chains,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: BarrierId,
    /// A number of frames; known once all that was written before it is loaded.
    frames: Option<u64>,
    /// How many chains had been submitted.
    chains: u64,
}

/// Which chains are done, by the order in which they were submitted.
#[derive(Debug, Default)]
struct Chains {
    /// All before this one are done.
    first: u64,
    is_done: VecDeque<bool>,
}

impl Barriers {
    /// One more, after all chains that were submitted so far.
    pub(crate) fn begin(&mut self, id: BarrierId) {
        let chains = self.chains.first + self.chains.is_done.len() as u64;
        self.waiting.push_back(Waiting { id, frames: None, chains });
    }

    /// All that was written before it is loaded, the last of it maybe into a
    /// frame that is being filled.
    pub(crate) fn loaded_up_to(&mut self, id: BarrierId, is_filling: bool) {
        let frames = self.loaded + u64::from(is_filling);
        if let Some(one) = self.waiting.iter_mut().find(|waiting| waiting.id == id) {
            one.frames = Some(frames);
        }
    }

    /// A frame is filled.
    pub(crate) fn frame_loaded(&mut self) {
        self.loaded += 1;
    }

    /// A chain was submitted; its number is to be given back.
    pub(crate) fn chain_submitted(&mut self) -> u64 {
        self.chains.is_done.push_back(false);
        self.chains.first + self.chains.is_done.len() as u64 - 1
    }

    /// A chain is done, well or not.
    pub(crate) fn chain_done(&mut self, number: u64) {
        let Chains { first, is_done } = &mut self.chains;
        let place = number.checked_sub(*first).and_then(|at| is_done.get_mut(at as usize));
        if let Some(place) = place {
            *place = true;
        }
        while is_done.front() == Some(&true) {
            is_done.pop_front();
            *first += 1;
        }
    }

    /// The next barrier that is reached when this many frames are acknowledged.
    pub(crate) fn poll_reached(&mut self, acknowledged: u64) -> Option<BarrierId> {
        let first = self.waiting.front()?;
        let is_reached = first.frames.is_some_and(|frames| frames <= acknowledged)
            && first.chains <= self.chains.first;
        if is_reached { self.waiting.pop_front().map(|reached| reached.id) } else { None }
    }

    /// A barrier that will never be reached; to be asked until there is none.
    pub(crate) fn poll_lost(&mut self) -> Option<BarrierId> {
        self.waiting.pop_front().map(|lost| lost.id)
    }
}

#[derive(Clone, Copy, Debug)]
struct Write {
    left: u64,
    result: Result<(), Ended>,
}

/// The writes from memory that are under way.
#[derive(Debug)]
pub(crate) struct Writes {
    table: Table<Write>,
}

impl Writes {
    pub(crate) const fn new(most: usize) -> Self {
        Self { table: Table::new(most) }
    }

    /// One more, of this many bytes.
    pub(crate) fn begin(&mut self, len: u64) -> Option<WriteId> {
        self.table.insert(Write { left: len, result: Ok(()) }).map(WriteId::of)
    }

    /// It never began.
    pub(crate) fn forget(&mut self, id: WriteId) {
        if self.table.named(id.index, id.generation).is_some() {
            self.table.remove(id.index);
        }
    }

    /// Bytes of it are settled, since they arrived or since that is
    /// over. With the last of them it is done.
    pub(crate) fn done(
        &mut self,
        id: WriteId,
        len: u64,
        result: Result<(), Ended>,
    ) -> Option<Result<(), Ended>> {
        let write = self.table.named_mut(id.index, id.generation)?;
        write.left = write.left.saturating_sub(len);
        write.result = write.result.and(result);
        if write.left > 0 {
            return None;
        }
        self.table.remove(id.index).map(|write| write.result)
    }
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

    #[test]
    fn it_is_done_with_its_last_byte_and_well_if_all_of_them_are() {
        let mut writes = Writes::new(2);
        let (good, bad) = (writes.begin(10).unwrap(), writes.begin(10).unwrap());
        assert_eq!(writes.begin(1), None, "there are two");
        assert_eq!(writes.done(good, 4, Ok(())), None);
        assert_eq!(writes.done(bad, 4, Err(Ended::Silent)), None);
        assert_eq!(writes.done(good, 6, Ok(())), Some(Ok(())));
        assert_eq!(writes.done(good, 6, Ok(())), None, "it is over");
        assert_eq!(writes.done(bad, 6, Ok(())), Some(Err(Ended::Silent)));
    }

    #[test]
    fn it_waits_for_frames_and_chains_that_were_before_it() {
        let mut barriers = Barriers::default();
        let early = barriers.chain_submitted();
        let other = barriers.chain_submitted();
        barriers.frame_loaded();
        let first = BarrierId::new(0, 0);
        barriers.begin(first);
        let late = barriers.chain_submitted();
        assert_eq!(barriers.poll_reached(1), None, "what was written is not all loaded");
        barriers.loaded_up_to(first, true);
        barriers.frame_loaded();
        barriers.chain_done(other);
        assert_eq!(barriers.poll_reached(2), None, "a chain is not done");
        barriers.chain_done(early);
        assert_eq!(barriers.poll_reached(1), None, "a frame is not acknowledged");
        assert_eq!(barriers.poll_reached(2), Some(first), "whatever came after it");
        assert_eq!(barriers.poll_reached(2), None);
        let second = BarrierId::new(1, 0);
        barriers.begin(second);
        barriers.loaded_up_to(second, false);
        assert_eq!(barriers.poll_reached(2), None);
        barriers.chain_done(late);
        assert_eq!(barriers.poll_reached(2), Some(second));
        barriers.begin(BarrierId::new(2, 0));
        assert!(barriers.poll_lost().is_some() && barriers.poll_lost().is_none());
    }
}
