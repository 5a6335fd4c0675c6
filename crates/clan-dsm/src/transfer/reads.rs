//! What is asked of another host: remote reads, of the reader and of who is read, and
//! read-modify-write operations on words, of the side that asks.
//!
//! A read is a request and an answer in the stream of writes the other way. It
//! sees all that was written before it over the same link, and maybe some of
//! what was written after it while it was under way. The answer is a burst
//! whose address is the read: its slot, a nonce for a key, and word 0 for the
//! first byte that was asked for, wherever that came from.
//!
//! An operation on a word the other side's driver does in one indivisible step and in its place
//! among the writes, exactly once: the link beneath repeats what was lost and drops what comes
//! twice.

use alloc::collections::VecDeque;

use arrayvec::ArrayVec;
use landfall_placement::{Area, Refusal, Span};
use landfall_tables::Table;

use crate::address::{
    Address, ApertureId, DmaId, HostId, Key, Kind, OperationId, ReadId, WHOLE, WORD,
};
use crate::cookie::Rights;
use crate::error::{Ended, Reason};
use crate::memory::Memory;
use crate::nic::updates::Note;
use crate::offload::Destination;
use crate::transfer::load::{Load, Part, cut, piece_len};

/// Who wanted to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// The user, by a call.
    User,
    /// A chain of DMA requests.
    Dma(DmaId),
}

#[derive(Clone, Copy, Debug)]
struct Read {
    link: u32,
    reader: Reader,
    nonce: Key,
    /// The first byte that is read.
    from: Address,
    into: Area,
    /// How many bytes have a place given to them, from the first on.
    placed: u64,
    /// How many of them are in place.
    landed: u64,
}

/// A read that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FinishedRead {
    pub(crate) read: ReadId,
    pub(crate) link: u32,
    pub(crate) reader: Reader,
    /// The first byte that was read, and how many were asked for.
    pub(crate) from: Address,
    pub(crate) len: u64,
    pub(crate) result: Result<(), Ended>,
}

/// The reads of this host that are under way.
#[derive(Debug)]
pub(crate) struct Reads {
    table: Table<Read>,
}

impl Reads {
    pub(crate) fn new(most: usize) -> Self {
        Self { table: Table::new(most) }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.table.has_room()
    }

    /// One more; the slot and the nonce for the request are the answer's address.
    pub(crate) fn begin(
        &mut self,
        link: u32,
        reader: Reader,
        from: Address,
        into: Area,
        nonce: Key,
    ) -> Option<ReadId> {
        let read = Read { link, reader, nonce, from, into, placed: 0, landed: 0 };
        self.table.insert(read).map(ReadId::of)
    }

    /// It was not asked for after all.
    pub(crate) fn forget(&mut self, id: ReadId) {
        if self.table.named(id.index, id.generation).is_some() {
            self.table.remove(id.index);
        }
    }

    /// The read that an answer over this link is for.
    fn meant(&self, link: u32, slot: u16, nonce: Key) -> Result<&Read, Refusal> {
        let read = self.table.get(u32::from(slot)).filter(|read| read.link == link);
        let read = read.ok_or(Refusal::UnknownId)?;
        if read.nonce == nonce { Ok(read) } else { Err(Refusal::WrongKey) }
    }

    /// Where a piece of an answer belongs, if it is the next one but `ahead`
    /// bytes that are being asked for together with it.
    pub(crate) fn check(
        &self,
        link: u32,
        address: &Address,
        len: u32,
        ahead: u64,
    ) -> Result<(ReadId, Span), Refusal> {
        let read = self.meant(link, address.slot, address.key)?;
        let (from, _) = address.enabled();
        let at = u64::from(address.word) * u64::from(WORD) + u64::from(from);
        if at != read.placed + ahead {
            return Err(Refusal::Unexpected);
        }
        if u64::from(len) > read.into.len.saturating_sub(at) {
            return Err(Refusal::OutOfBounds);
        }
        let slot = u32::from(address.slot);
        let id = ReadId::of(self.table.key(slot));
        Ok((id, read.into.span(at, len)))
    }

    /// A piece that was checked is on its way to its place.
    pub(crate) fn placed(&mut self, read: ReadId, len: u32) {
        if let Some(read) = self.table.named_mut(read.index, read.generation) {
            read.placed += u64::from(len);
        }
    }

    /// A piece that was on its way is as one that has not come.
    pub(crate) fn take_back(&mut self, read: ReadId, len: u32) {
        if let Some(read) = self.table.named_mut(read.index, read.generation) {
            read.placed = read.placed.saturating_sub(u64::from(len));
        }
    }

    /// A piece is in place, or could not be put there.
    pub(crate) fn landed(&mut self, id: ReadId, len: u32, is_there: bool) -> Option<FinishedRead> {
        let read = self.table.named_mut(id.index, id.generation)?;
        if !is_there {
            return self.end(id.index, Err(Ended::MemoryFailed));
        }
        read.landed += u64::from(len);
        if read.landed < read.into.len {
            return None;
        }
        self.end(id.index, Ok(()))
    }

    /// The other side will not answer.
    pub(crate) fn refused(
        &mut self,
        link: u32,
        slot: u16,
        nonce: Key,
        reason: Reason,
    ) -> Result<FinishedRead, Refusal> {
        self.meant(link, slot, nonce)?;
        self.end(u32::from(slot), Err(Ended::There(reason))).ok_or(Refusal::UnknownId)
    }

    /// Some read of a link that is gone; to be asked until there is none.
    pub(crate) fn link_gone(&mut self, link: u32, why: Ended) -> Option<FinishedRead> {
        let of_it = |index: &u32| self.table.get(*index).is_some_and(|read| read.link == link);
        let index = self.table.indices().find(of_it)?;
        self.end(index, Err(why))
    }

    fn end(&mut self, index: u32, result: Result<(), Ended>) -> Option<FinishedRead> {
        let id = ReadId::of(self.table.key(index));
        let Read { link, reader, from, into, .. } = self.table.remove(index)?;
        Some(FinishedRead { read: id, link, reader, from, len: into.len, result })
    }
}

/// What the other side of a link reads here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerRead {
    /// Who reads.
    pub(crate) host: HostId,
    /// Whose memory, and the proof; the mask says at which byte it begins.
    pub(crate) address: Address,
    /// How many bytes.
    pub(crate) len: u64,
    /// The reader's slot.
    pub(crate) slot: u16,
    /// The reader's nonce.
    pub(crate) nonce: Key,
}

impl PeerRead {
    /// The address of the byte `at` bytes further on: its word, and which byte
    /// of it.
    fn byte(&self, at: u64) -> Option<(Address, u32)> {
        let (from, _) = self.address.enabled();
        let byte = u64::from(from).checked_add(at)?;
        let word = u32::try_from(byte / u64::from(WORD)).ok()?;
        let address = Address { mask: WHOLE, ..self.address.advanced(word)? };
        Some((address, (byte % u64::from(WORD)) as u32))
    }

    /// Where this many bytes lie, if the reader may read them.
    fn check(&self, memory: &Memory, at: u64, len: u32) -> Result<Destination, Refusal> {
        let (address, from) = self.byte(at).ok_or(Refusal::OutOfBounds)?;
        memory.apertures_for(Some(self.host)).check_bytes(&address, from, len, Rights::Read)
    }

    /// The same, with the packets of the answer.
    fn piece(
        &self,
        memory: &Memory,
        answer: Address,
        at: u64,
        len: u32,
    ) -> Result<(ApertureId, Destination, ArrayVec<Part, 3>), Refusal> {
        let spot = self.check(memory, at, len)?;
        let aperture = memory.id_of(spot.slot).ok_or(Refusal::UnknownId)?;
        let parts = cut(answer, at, len).ok_or(Refusal::OutOfBounds)?;
        Ok((aperture, spot, parts))
    }
}

/// The reads of one other host that are being answered, in their order.
#[derive(Debug, Default)]
pub(crate) struct Serving {
    queue: VecDeque<(PeerRead, u64)>,
}

impl Serving {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// One more, if it is allowed as a whole.
    pub(crate) fn ask(
        &mut self,
        memory: &Memory,
        asked: PeerRead,
        most: usize,
    ) -> Result<(), Reason> {
        if asked.len == 0 {
            return Err(Reason::Malformed);
        }
        if self.queue.len() >= most {
            return Err(Reason::NoRoom);
        }
        // The first byte and the last: what lies between lies in the aperture.
        for at in [0, asked.len - 1] {
            asked.check(memory, at, 1).map_err(Reason::from)?;
        }
        self.queue.push_back((asked, 0));
        Ok(())
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.queue.clear();
    }

    /// Fills a frame for the reader with the next bytes. A read that is not
    /// allowed any more is given back, with the reason.
    pub(crate) fn load(
        &mut self,
        memory: &Memory,
        reader: HostId,
        load: &mut Load<'_>,
    ) -> Option<(PeerRead, Reason)> {
        let (asked, at) = self.queue.front_mut()?;
        let len = piece_len(*at, asked.len - *at, load.span_room());
        if len == 0 {
            return None;
        }
        let slot = asked.slot;
        let key = asked.nonce;
        let answer = Address { kind: Kind::Reply, host: reader, slot, word: 0, mask: WHOLE, key };
        match asked.piece(memory, answer, *at, len) {
            Ok((aperture, spot, parts)) => {
                load.put_span(&parts, spot.span);
                load.note(Note::Served(aperture, spot.at, len));
                *at += u64::from(len);
                if *at == asked.len {
                    self.queue.pop_front();
                }
                None
            }
            Err(refusal) => {
                let refused = (*asked, Reason::from(refusal));
                self.queue.pop_front();
                Some(refused)
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Operation {
    link: u32,
    nonce: Key,
    /// The word.
    at: Address,
}

/// An operation that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FinishedOperation {
    pub(crate) operation: OperationId,
    pub(crate) at: Address,
}

/// The operations of this host that are under way.
#[derive(Debug)]
pub(crate) struct Operations {
    table: Table<Operation>,
}

impl Operations {
    pub(crate) fn new(most: usize) -> Self {
        Self { table: Table::new(most) }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.table.has_room()
    }

    /// One more.
    pub(crate) fn begin(&mut self, link: u32, at: Address, nonce: Key) -> Option<OperationId> {
        self.table.insert(Operation { link, nonce, at }).map(OperationId::of)
    }

    /// An answer came, good or bad: which operation is over?
    pub(crate) fn answered(
        &mut self,
        link: u32,
        slot: u16,
        nonce: Key,
    ) -> Result<FinishedOperation, Refusal> {
        let index = u32::from(slot);
        let operation = self.table.get(index).filter(|operation| operation.link == link);
        if operation.ok_or(Refusal::UnknownId)?.nonce != nonce {
            return Err(Refusal::WrongKey);
        }
        self.end(index).ok_or(Refusal::UnknownId)
    }

    /// Some operation of a link that is gone; to be asked until there is none.
    pub(crate) fn link_gone(&mut self, link: u32) -> Option<FinishedOperation> {
        let of_it = |index: &u32| self.table.get(*index).is_some_and(|one| one.link == link);
        let index = self.table.indices().find(of_it)?;
        self.end(index)
    }

    fn end(&mut self, index: u32) -> Option<FinishedOperation> {
        let operation = OperationId::of(self.table.key(index));
        let Operation { at, .. } = self.table.remove(index)?;
        Some(FinishedOperation { operation, at })
    }
}
