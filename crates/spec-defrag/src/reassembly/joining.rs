//! How a piece gets to its place, and a packet that is whole out.

use landfall_inet::reassembly::{Congestion, Holes, Piece};
use landfall_placement::Refusal;

use super::gathering::First;
use super::gathering::Gathering;
use super::shelf::State;
use super::{Arrived, Reassembly, SPLIT_MOST};
use crate::buffers::Buffers;
use crate::memory::Memory;
use crate::packet::{Body, Head, Packet, Way};
use crate::wire::{Parsed, whole_head};

impl Reassembly {
    /// A packet that was opened has its buffer.
    #[inline]
    pub(super) fn begin(&mut self, at: u32, gathering: Gathering) {
        let buffer = gathering.buffer.index as usize;
        if self.holes.len() <= buffer {
            self.holes.resize_with(buffer + 1, Holes::default);
        }
        if let Some(end) = self.shelf.begin(at, gathering) {
            self.next_end = self.next_end.min(end);
        }
    }

    /// Whether a piece belongs to this packet. If so there is room for it.
    #[inline]
    pub(super) fn accepts<M: Memory>(
        &mut self,
        at: u32,
        piece: Piece,
        buffers: &mut Buffers,
        memory: &mut M,
    ) -> Result<(), Refusal> {
        let entry = self.shelf.get_mut(at).ok_or(Refusal::UnknownId)?;
        let State::Gathering(gathering) = &mut entry.state else { return Err(Refusal::Forbidden) };
        let buffer = gathering.buffer;
        let needed = gathering.needs(piece.end);
        if let Err(refusal) =
            gathering.assembly.check(piece, &mut self.holes[buffer.index as usize])
        {
            match refusal {
                Refusal::Duplicate => self.shelf.counters.repeated += 1,
                _ => self.shelf.refuse(at, buffers),
            }
            return Err(refusal);
        }
        if needed <= buffers.capacity(buffer) {
            return Ok(());
        }
        self.grow(at, needed, buffers, memory)
    }

    /// The packet outgrows its page: what is there of it moves to a large buffer.
    fn grow<M: Memory>(
        &mut self,
        at: u32,
        needed: u32,
        buffers: &mut Buffers,
        memory: &mut M,
    ) -> Result<(), Refusal> {
        let large = self.shelf.grow(at, needed, buffers)?;
        let Some(State::Gathering(gathering)) =
            self.shelf.get_mut(at).map(|entry| &mut entry.state)
        else {
            buffers.give_back(large);
            return Err(Refusal::UnknownId);
        };
        let (start, end) = (gathering.kept(), gathering.assembly.reached());
        let from = gathering.place(buffers, start, end);
        let page = core::mem::replace(&mut gathering.buffer, large);
        memory.copy(from, gathering.place(buffers, start, end));
        let is_described = gathering.assembly.is_described();
        let (page_at, large_at) = (page.index as usize, large.index as usize);
        if self.holes.len() <= large_at {
            self.holes.resize_with(large_at + 1, Holes::default);
        }
        if is_described {
            let mut holes = core::mem::take(&mut self.holes[page_at]);
            holes.move_to(&mut self.holes[large_at]);
            self.holes[page_at] = holes;
        }
        buffers.give_back(page);
        Ok(())
    }

    /// Copies a piece that was accepted to its place.
    #[inline]
    pub(super) fn put<M: Memory>(
        &mut self,
        at: u32,
        arrived: &Arrived<'_>,
        piece: Piece,
        buffers: &mut Buffers,
        memory: &mut M,
    ) -> Result<Option<Packet>, Refusal> {
        let Some(State::Gathering(gathering)) =
            self.shelf.get_mut(at).map(|entry| &mut entry.state)
        else {
            return Err(Refusal::UnknownId);
        };
        let mut kept = 0;
        if piece.start == 0 {
            kept = keep(&mut self.firsts, at, arrived.parsed, arrived.head, gathering.split())?;
        }
        let from = u32::from(arrived.parsed.payload_at) + kept;
        let to = gathering.place(buffers, piece.start + kept, piece.end);
        arrived.frame.part(from, to.len).copy_to(to, memory);
        let mut congestion = Congestion::default();
        congestion.add(arrived.parsed.ecn);
        let holes = &mut self.holes[gathering.buffer.index as usize];
        gathering.note(piece, kept, congestion, holes);
        if gathering.assembly.is_whole() { self.finish(at, buffers).map(Some) } else { Ok(None) }
    }

    /// The packet is whole: it goes out.
    pub(super) fn finish(&mut self, at: u32, buffers: &mut Buffers) -> Result<Packet, Refusal> {
        let Some(State::Gathering(gathering)) = self.shelf.get(at).map(|entry| &entry.state) else {
            return Err(Refusal::UnknownId);
        };
        let first = self.firsts.get(at as usize);
        let packet = first.ok_or(Refusal::Malformed).and_then(|first| {
            let ecn = gathering.assembly.congestion().of_all(first.parsed.ecn)?;
            let mut head =
                whole_head(first.headers(), &first.parsed, gathering.assembly.total(), ecn)?;
            head.push(first.kept());
            Ok(packet(head, gathering, buffers, Way::Conventional))
        });
        match packet {
            Ok(_) => {
                self.shelf.counters.whole += 1;
                self.shelf.close(at);
            }
            Err(_) => self.shelf.refuse(at, buffers),
        }
        packet
    }

    /// A packet in one piece behind a fragment header passes at once (RFC 6946).
    pub(super) fn pass<M: Memory>(
        &mut self,
        arrived: &Arrived<'_>,
        piece: Piece,
        buffers: &mut Buffers,
        memory: &mut M,
    ) -> Result<Packet, Refusal> {
        let parsed = arrived.parsed;
        let split = u32::from(arrived.split.min(SPLIT_MOST));
        let mut first = First::NONE;
        let kept = first.keep(parsed, arrived.head, split).ok_or(Refusal::NoRoom)?;
        let mut head = whole_head(first.headers(), parsed, piece.end, parsed.ecn)?;
        head.push(first.kept());
        let buffer =
            self.shelf.take_buffer(None, Gathering::room_for(split, piece.end), buffers)?;
        let mut gathering = Gathering::new(buffer, split);
        let to = gathering.place(buffers, kept, piece.end);
        arrived.frame.part(u32::from(parsed.payload_at) + kept, to.len).copy_to(to, memory);
        gathering.note(piece, kept, Congestion::default(), &mut Holes::default());
        self.shelf.counters.atomic += 1;
        Ok(packet(head, &gathering, buffers, Way::Whole))
    }
}

/// Keeps what is needed of a first piece; says how much of its payload that is.
#[inline]
pub(super) fn keep(
    firsts: &mut alloc::vec::Vec<First>,
    at: u32,
    parsed: &Parsed,
    head: &[u8],
    split: u32,
) -> Result<u32, Refusal> {
    let at = at as usize;
    if firsts.len() <= at {
        firsts.resize_with(at + 1, || First::NONE);
    }
    firsts[at].keep(parsed, head, split).ok_or(Refusal::NoRoom)
}

#[inline]
fn packet(head: Head, gathering: &Gathering, buffers: &Buffers, way: Way) -> Packet {
    let span = gathering.place(buffers, gathering.kept(), gathering.assembly.total());
    let body = Body::Buffer(gathering.buffer, span);
    Packet { head, body, body_len: span.len, way }
}
