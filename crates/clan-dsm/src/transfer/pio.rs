//! What the program wrote: programmed writes and commands, waiting in order.
//!
//! It is the write buffer between processor and wire. Writes that follow each
//! other in memory and in time become one packet while they wait; nothing ever
//! overtakes anything. A write may also name memory instead of bringing bytes:
//! it keeps its place among the others, and is done when it has arrived.

use alloc::collections::VecDeque;

use landfall_placement::Area;

use crate::address::{Address, WHOLE, WORD};
use crate::error::Error;
use crate::ids::{BarrierId, WriteId};
use crate::nic::note::{Bytes, Note};
use crate::transfer::cut::{Part, cut, piece_len};
use crate::transfer::load::Load;

/// What a thing that waits costs beside its bytes.
const COST: usize = 64;

/// Programmed writes and commands of one link.
#[derive(Debug)]
pub(crate) struct WriteBuffer {
    waiting: VecDeque<Waiting>,
    /// The bytes of all that waits, one behind the other.
    bytes: VecDeque<u8>,
    limit: usize,
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
pub(crate) enum Filled {
    /// All that waited is in it.
    Open,
    /// What waits must not, or cannot, join it; nor may what comes later.
    Closed,
    /// Everything before this barrier is in it or in an earlier one.
    Mark(BarrierId),
}

impl WriteBuffer {
    pub(crate) const fn new(limit: usize) -> Self {
        Self { waiting: VecDeque::new(), bytes: VecDeque::new(), limit }
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

    /// Is there room for so many more, with so many bytes altogether?
    pub(crate) fn has_room(&self, more: usize, bytes: usize) -> bool {
        self.used().saturating_add(more * COST).saturating_add(bytes) <= self.limit
    }

    /// Bytes for a place of a window whose first word is at `base`, and which
    /// they must lie inside of. All or nothing.
    pub(crate) fn write(&mut self, base: Address, offset: u64, bytes: &[u8]) -> Result<(), Error> {
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
    pub(crate) fn load(&mut self, load: &mut Load<'_>) -> Filled {
        while let Some(first) = self.waiting.front().copied() {
            let is_loaded = match first {
                Waiting::Write(part) => self.load_write(part, load),
                Waiting::Command { part, is_alone } => {
                    if is_alone && !load.is_empty() {
                        return Filled::Closed;
                    }
                    let is_loaded = self.load_command(part, load);
                    if is_alone {
                        return Filled::Closed;
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
                    return Filled::Mark(barrier);
                }
            };
            if !is_loaded {
                return Filled::Closed;
            }
        }
        Filled::Open
    }

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

    /// So many bytes of the write from memory that is first are loaded.
    fn advance(&mut self, loaded: u32) {
        let Some(Waiting::From { offset, area, .. }) = self.waiting.front_mut() else { return };
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
    let Some(parts) = cut(to, offset, len).filter(|_| len > 0) else { return 0 };
    load.put_span(&parts, area.span(0, len));
    load.note(Note::From(write, to.host, Bytes { slot: to.slot, offset, len }));
    len
}
