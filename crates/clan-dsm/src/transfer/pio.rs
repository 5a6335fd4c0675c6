//! What the program wrote: programmed writes and commands, waiting in order.
//!
//! It is the write buffer between processor and wire. Writes that follow each
//! other in memory and in time become one packet while they wait; nothing ever
//! overtakes anything. A write may also name memory instead of bringing bytes:
//! it keeps its place among the others, and is done when it has arrived.

use alloc::collections::VecDeque;

use landfall_placement::Area;

use crate::address::{Address, BarrierId, WHOLE, WORD, WriteId};
use crate::error::Error;
use crate::nic::updates::{Bytes, Note};
use crate::transfer::load::{Load, Part, cut, piece_len};

/// What a thing that waits costs beside its bytes.
const COST: usize = 64;

/// Programmed writes and commands of one link.
#[derive(Debug)]
pub(crate) struct WriteBuffer {
    waiting: VecDeque<Waiting>,
    /// The bytes of all that waits, one behind the other.
    bytes: VecDeque<u8>,
    limit: usize,
    /// Writes leave as packets of at most this many words, and not as frames.
    packet: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
enum Waiting {
    /// Bytes for a window.
    Write(Part),
    /// A command. It may have to be alone in its frame.
    Command { part: Part, is_alone: bool },
    /// Memory for a window.
    From { write: WriteId, to: Address, offset: u64, area: Area },
    /// A barrier: nothing of it is sent.
    Mark(BarrierId),
}

/// What a frame is after it was filled with what waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FillOutcome {
    /// All that waited is in it.
    Open,
    /// What waits must not, or cannot, join it; nor may what comes later.
    Closed,
    /// Everything before this barrier is in it or in an earlier one.
    Mark(BarrierId),
}

impl WriteBuffer {
    pub(crate) const fn new(limit: usize) -> Self {
        Self { waiting: VecDeque::new(), bytes: VecDeque::new(), limit, packet: None }
    }

    /// The link is a native one: writes leave as packets of at most this many words.
    pub(crate) const fn send_packets(&mut self, most: u32) {
        self.packet = Some(most);
    }

    /// Is it memory that is to be sent next?
    pub(crate) fn is_memory_next(&self) -> bool {
        matches!(self.waiting.front(), Some(Waiting::From { .. }))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many bytes a write may have now.
    pub(crate) fn room(&self) -> usize {
        self.limit.saturating_sub(self.used() + 3 * COST)
    }

    fn used(&self) -> usize {
        self.bytes.len() + self.waiting.len() * COST
    }

    /// Is there room for this many more, with this many bytes altogether?
    pub(crate) fn has_room(&self, more: usize, bytes: usize) -> bool {
        self.used().saturating_add(more * COST).saturating_add(bytes) <= self.limit
    }

    /// Could an empty one of this limit take this many at once?
    pub(crate) const fn could_hold(limit: usize, more: usize, bytes: usize) -> bool {
        more.saturating_mul(COST).saturating_add(bytes) <= limit
    }

    /// Bytes for a place of a window whose first word is at `base`, and which
    /// they must lie inside of. All or nothing.
    pub(crate) fn write(&mut self, base: Address, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        if let Some(most) = self.packet {
            return self.write_packets(base, offset, bytes, most.saturating_mul(WORD));
        }
        let len = u32::try_from(bytes.len()).map_err(|_| Error::TooLong)?;
        let parts = cut(base, offset, len).ok_or(Error::OutOfBounds)?;
        if bytes.len() + parts.len() * COST > self.limit {
            return Err(Error::TooLong);
        }
        if !self.has_room(parts.len(), bytes.len()) {
            return Err(Error::Busy);
        }
        self.bytes.extend(bytes);
        for part in parts {
            self.join(part);
        }
        Ok(())
    }

    /// The same in packets of at most this many bytes. Each leaves by itself, so none joins the
    /// one before it.
    #[inline(never)]
    fn write_packets(
        &mut self,
        base: Address,
        offset: u64,
        bytes: &[u8],
        most: u32,
    ) -> Result<(), Error> {
        let len = u32::try_from(bytes.len()).map_err(|_| Error::TooLong)?;
        let parts = cut(base, offset, len).ok_or(Error::OutOfBounds)?;
        let packets: u32 = parts.iter().map(|part| part.len.div_ceil(most)).sum();
        let packets = packets as usize;
        if bytes.len() + packets * COST > self.limit {
            return Err(Error::TooLong);
        }
        if !self.has_room(packets, bytes.len()) {
            return Err(Error::Busy);
        }
        self.bytes.extend(bytes);
        for part in parts {
            let (mut address, mut left) = (part.address, part.len);
            while left > 0 {
                let packet = Part { address, len: left.min(most) };
                left -= packet.len;
                // What is left begins within the addresses that `cut` has seen.
                address = address.advanced(packet.words()).unwrap_or(address);
                self.waiting.push_back(Waiting::Write(packet));
            }
        }
        Ok(())
    }

    /// Adds a write, to the last one if it goes on there.
    fn join(&mut self, part: Part) {
        if let Some(Waiting::Write(last)) = self.waiting.back_mut() {
            let goes_on = last.address.mask == WHOLE
                && last.address.advanced(last.words()) == Some(part.address)
                && last.len.checked_add(part.len).is_some();
            if goes_on {
                last.len += part.len;
                return;
            }
        }
        self.waiting.push_back(Waiting::Write(part));
    }

    /// Memory for a place of a window, as above.
    pub(crate) fn write_from(
        &mut self,
        write: WriteId,
        base: Address,
        offset: u64,
        area: Area,
    ) -> Result<(), Error> {
        self.push(Waiting::From { write, to: base, offset, area })
    }

    /// A command with its parameters.
    pub(crate) fn command(
        &mut self,
        address: Address,
        parameters: &[u8],
        is_alone: bool,
    ) -> Result<(), Error> {
        if !self.has_room(1, parameters.len()) {
            return Err(Error::Busy);
        }
        self.bytes.extend(parameters);
        let part = Part { address, len: parameters.len() as u32 };
        self.waiting.push_back(Waiting::Command { part, is_alone });
        Ok(())
    }

    /// A barrier: it comes out when all before it was loaded.
    pub(crate) fn mark(&mut self, barrier: BarrierId) -> Result<(), Error> {
        self.push(Waiting::Mark(barrier))
    }

    fn push(&mut self, waiting: Waiting) -> Result<(), Error> {
        if !self.has_room(1, 0) {
            return Err(Error::Busy);
        }
        self.waiting.push_back(waiting);
        Ok(())
    }

    /// Some write from memory that waits, to be given up; all else that waits is
    /// forgotten. To be asked until there is none.
    pub(crate) fn poll_lost(&mut self) -> Option<(WriteId, u64)> {
        self.bytes.clear();
        while let Some(lost) = self.waiting.pop_front() {
            if let Waiting::From { write, area, .. } = lost {
                return Some((write, area.len));
            }
        }
        None
    }

    /// Fills a frame with what waits, in order.
    pub(crate) fn load(&mut self, load: &mut Load<'_>) -> FillOutcome {
        while let Some(first) = self.waiting.front().copied() {
            if let Err(filled) = self.load_first(first, load) {
                return filled;
            }
        }
        FillOutcome::Open
    }

    /// Fills a packet of a native link with what is first, as far as it fits.
    pub(crate) fn load_packet(&mut self, load: &mut Load<'_>) {
        if let Some(first) = self.waiting.front().copied() {
            // Whether it fits, the packet shows.
            let _ = self.load_first(first, load);
        }
    }

    /// Loads what is first. The error says why nothing may follow it.
    #[inline(always)]
    fn load_first(&mut self, first: Waiting, load: &mut Load<'_>) -> Result<(), FillOutcome> {
        let is_loaded = match first {
            Waiting::Write(part) => self.load_write(part, load),
            Waiting::Command { part, is_alone } => {
                if is_alone && !load.is_empty() {
                    return Err(FillOutcome::Closed);
                }
                let is_loaded = self.load_command(part, load);
                if is_alone {
                    load.close();
                    return Err(FillOutcome::Closed);
                }
                is_loaded
            }
            Waiting::From { write, to, offset, area } => {
                let is_loaded = load_from(load, write, to, offset, area);
                self.advance(is_loaded);
                is_loaded > 0
            }
            Waiting::Mark(barrier) => {
                self.waiting.pop_front();
                return Err(FillOutcome::Mark(barrier));
            }
        };
        if is_loaded { Ok(()) } else { Err(FillOutcome::Closed) }
    }

    #[inline]
    fn load_write(&mut self, part: Part, load: &mut Load<'_>) -> bool {
        let (room, len) = (load.inline_room(), part.len as usize);
        let fits = match part.address.mask {
            WHOLE => len.min(room - room % WORD as usize),
            _ if len <= room => len,
            _ => 0,
        };
        if fits == 0 {
            return false;
        }
        let taken = Part { len: fits as u32, ..part };
        let rest = part.address.advanced(taken.words()).filter(|_| fits < len);
        match (rest, self.waiting.front_mut()) {
            (Some(address), Some(Waiting::Write(first))) => {
                *first = Part { address, len: (len - fits) as u32 };
            }
            _ => drop(self.waiting.pop_front()),
        }
        load.put_inline(taken, self.bytes.drain(..fits));
        let (from, _) = taken.address.enabled();
        let offset = u64::from(taken.address.word) * u64::from(WORD) + u64::from(from);
        let bytes = Bytes { slot: part.address.slot, offset, len: taken.len };
        load.note(Note::Written(part.address.host, bytes));
        true
    }

    fn load_command(&mut self, part: Part, load: &mut Load<'_>) -> bool {
        if part.len as usize > load.inline_room() {
            return false;
        }
        self.waiting.pop_front();
        load.put_inline(part, self.bytes.drain(..part.len as usize));
        true
    }

    /// How many bytes of the first write from memory are loaded.
    fn advance(&mut self, loaded: u32) {
        let Some(Waiting::From { offset, area, .. }) = self.waiting.front_mut() else {
            debug_assert!(false, "what was loaded from memory is first");
            return;
        };
        let loaded = u64::from(loaded);
        *offset += loaded;
        area.offset += loaded;
        area.len -= loaded;
        if area.len == 0 {
            self.waiting.pop_front();
        }
    }
}

/// Names as much of the memory as there is room for, and says how much.
fn load_from(load: &mut Load<'_>, write: WriteId, to: Address, offset: u64, area: Area) -> u32 {
    let len = piece_len(offset, area.len, load.span_room());
    // There is no room for any of it.
    let Some(parts) = cut(to, offset, len).filter(|_| len > 0) else { return 0 };
    load.put_span(&parts, area.span(0, len));
    load.note(Note::From(write, to.host, Bytes { slot: to.slot, offset, len }));
    len
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use landfall_placement::RegionId;

    use super::*;
    use crate::address::{HostId, Key};
    use crate::cookie::{Cookie, Rights};
    use crate::link::{FramePayload, FrameRoom};
    use crate::wire::Command;

    fn base() -> Address {
        let host = HostId::new(9).unwrap();
        Cookie::new(host, 1, Rights::Write, Key::from_bits(5), 1 << 20).address(0)
    }

    /// What a frame takes: where its first byte goes, and its bytes.
    fn frame(buffer: &mut WriteBuffer, head: usize, unit: usize) -> (FramePayload, FillOutcome) {
        let mut cargo = FramePayload::default();
        let room = FrameRoom { head, unit, answers_only: false };
        let filled = buffer.load(&mut Load::new(room, &mut cargo));
        (cargo, filled)
    }

    fn entries(cargo: &FramePayload) -> Vec<(u32, u8, u32)> {
        let of = |entry: &crate::wire::Entry| {
            (entry.address.word, entry.address.mask, entry.payload_len())
        };
        cargo.entries.iter().map(of).collect()
    }

    #[test]
    fn what_follows_in_memory_and_time_is_one_packet() {
        let mut buffer = WriteBuffer::new(4096);
        for word in 0..4 {
            buffer.write(base(), 8 * word, &[word as u8; 8]).unwrap();
        }
        buffer.write(base(), 8 * 9, &[9; 8]).unwrap();
        buffer.write(base(), 8 * 4, &[4; 11]).unwrap();
        buffer.write(base(), 8 * 5 + 3, &[6; 5]).unwrap();
        let (cargo, filled) = frame(&mut buffer, 200, 1400);
        assert_eq!(filled, FillOutcome::Open);
        let wanted =
            [(0, 0xff, 32), (9, 0xff, 8), (4, 0xff, 8), (5, 0b111, 3), (5, 0b1111_1000, 5)];
        assert_eq!(entries(&cargo), wanted);
        assert_eq!(cargo.inline.len(), 56);
        assert!(buffer.is_empty() && buffer.bytes.is_empty());
    }

    #[test]
    fn a_long_write_is_split_at_words_over_frames() {
        let mut buffer = WriteBuffer::new(4096);
        let bytes: Vec<u8> = (0..1000).map(|n| n as u8).collect();
        buffer.write(base(), 16, &bytes).unwrap();
        let (mut got, mut next) = (Vec::new(), 2);
        while !buffer.is_empty() {
            let (cargo, _) = frame(&mut buffer, 60, 1400);
            assert_eq!(entries(&cargo), [(next, 0xff, cargo.inline.len() as u32)]);
            next += cargo.inline.len() as u32 / 8;
            got.extend_from_slice(&cargo.inline);
        }
        assert_eq!(got, bytes);
    }

    #[test]
    fn memory_keeps_its_place_and_nothing_of_the_program_joins_it() {
        let mut buffer = WriteBuffer::new(4096);
        let area = Area::new(RegionId::new(4, 0), 100, 50);
        let write = WriteId::new(0, 0);
        buffer.write(base(), 0, &[1; 8]).unwrap();
        buffer.write_from(write, base(), 8, area).unwrap();
        buffer.write(base(), 64, &[2; 8]).unwrap();
        let (cargo, filled) = frame(&mut buffer, 200, 128);
        assert_eq!(filled, FillOutcome::Closed);
        // 128 bytes: an entry and its word, room for three more, and 48 of the memory.
        assert_eq!(entries(&cargo), [(0, 0xff, 8), (1, 0xff, 48)]);
        assert_eq!(cargo.spans[..], [area.span(0, 48)]);
        let (cargo, filled) = frame(&mut buffer, 200, 128);
        assert_eq!((entries(&cargo), filled), (vec![(7, 0b11, 2)], FillOutcome::Closed));
        assert_eq!(cargo.spans[..], [area.span(48, 2)]);
        let (cargo, filled) = frame(&mut buffer, 200, 128);
        assert_eq!((entries(&cargo), filled), (vec![(8, 0xff, 8)], FillOutcome::Open));
    }

    #[test]
    fn barriers_and_commands_that_must_be_alone_close_what_is_before_them() {
        let mut buffer = WriteBuffer::new(4096);
        let barrier = BarrierId::new(0, 0);
        buffer.write(base(), 0, &[1; 8]).unwrap();
        buffer.mark(barrier).unwrap();
        let (address, parameters) = Command::Barrier { number: 1 }.encode(base().host);
        buffer.command(address, &parameters, true).unwrap();
        buffer.write(base(), 8, &[1; 8]).unwrap();
        let (cargo, filled) = frame(&mut buffer, 200, 1400);
        assert_eq!((cargo.entries.len(), filled), (1, FillOutcome::Mark(barrier)));
        let (cargo, filled) = frame(&mut buffer, 200, 1400);
        assert_eq!((&cargo.inline[..], filled), (&parameters[..], FillOutcome::Closed));
        let (cargo, filled) = frame(&mut buffer, 200, 1400);
        assert_eq!((cargo.entries.len(), filled), (1, FillOutcome::Open));
    }

    #[test]
    fn invariant_5_a_full_buffer_is_busy_and_takes_nothing() {
        let mut buffer = WriteBuffer::new(1000);
        assert_eq!(buffer.write(base(), 1, &[0; 900]), Err(Error::TooLong));
        buffer.write(base(), 0, &[0; 800]).unwrap();
        let used = buffer.used();
        assert_eq!(buffer.write(base(), 1001, &[0; 150]), Err(Error::Busy));
        assert_eq!(buffer.mark(BarrierId::new(0, 0)), Ok(()));
        assert_eq!(buffer.used(), used + COST);
        assert_eq!(buffer.room(), 0);
        assert_eq!(buffer.poll_lost(), None);
        assert!(buffer.is_empty() && buffer.room() > 0);
    }
}
