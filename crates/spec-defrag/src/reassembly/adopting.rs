//! How a page in which pieces landed becomes the buffer of their packet.

use landfall_inet::reassembly::{Congestion, Piece};
use landfall_placement::{Instant, Refusal, Span};

use super::gathering::{Gathering, piece_of};
use super::joining::keep;
use super::shelf::{Found, State};
use super::{Adopted, Reassembly, SPLIT_MOST};
use crate::buffers::{Buffers, LEAD};
use crate::memory::Memory;
use crate::packet::{Head, Packet};

impl Reassembly {
    /// Takes over a page in which the first pieces of a packet lie already: no byte
    /// is copied, unless pieces of the packet are here already. The page is not the
    /// caller's any more, whatever comes of it.
    ///
    /// # Errors
    /// As [`Reassembly::insert`]; [`Refusal::Malformed`] where what is said of the
    /// page cannot be, [`Refusal::UnknownId`] where it was given back before.
    pub fn adopt<M: Memory>(
        &mut self,
        now: Instant,
        adopted: &Adopted<'_>,
        buffers: &mut Buffers,
        memory: &mut M,
    ) -> Result<Option<Packet>, Refusal> {
        if now >= self.next_end {
            self.handle_timeout(now, buffers, memory);
        }
        if !buffers.is_taken(adopted.buffer) {
            return Err(Refusal::UnknownId);
        }
        let found = adopted.check(buffers).map(|()| self.shelf.find(&adopted.first.key));
        let result = match found {
            Ok(Found::Nothing { hash }) => {
                return self.take_over(adopted, hash, buffers).map(|()| None);
            }
            Ok(Found::Packet(at)) => self.merge(at, adopted, buffers, memory),
            Err(refusal) => Err(refusal),
        };
        buffers.give_back(adopted.buffer);
        result
    }

    /// The page becomes the buffer of a packet that nothing was known of.
    fn take_over(
        &mut self,
        adopted: &Adopted<'_>,
        hash: u32,
        buffers: &mut Buffers,
    ) -> Result<(), Refusal> {
        let split = u32::from(adopted.split);
        let name = (adopted.first.key, hash);
        let room = Gathering::room_for(split, adopted.filled);
        let opened = self.shelf.open(adopted.started, name, room, Some(adopted.buffer), buffers);
        let (at, buffer) = match opened {
            Ok(opened) => opened,
            Err(refusal) => {
                buffers.give_back(adopted.buffer);
                return Err(refusal);
            }
        };
        let kept = keep(&mut self.firsts, at, adopted.first, adopted.head, split)?;
        self.begin(at, Gathering::new(buffer, split));
        for piece in adopted.pieces() {
            self.note(at, piece, kept, adopted.congestion);
        }
        Ok(())
    }

    /// Pieces of the packet are here: those in the page are copied to them.
    fn merge<M: Memory>(
        &mut self,
        at: u32,
        adopted: &Adopted<'_>,
        buffers: &mut Buffers,
        memory: &mut M,
    ) -> Result<Option<Packet>, Refusal> {
        self.shelf.touch(at);
        for piece in adopted.pieces() {
            match self.accepts(at, piece, buffers, memory) {
                Ok(()) => {}
                Err(Refusal::Duplicate) => continue,
                Err(refusal) => return Err(refusal),
            }
            let mut kept = 0;
            if piece.start == 0 {
                let split = u32::from(adopted.split);
                kept = keep(&mut self.firsts, at, adopted.first, adopted.head, split)?;
            }
            let Some(gathering) = self.gathering(at) else { return Err(Refusal::UnknownId) };
            let from = adopted.place(buffers, piece.start + kept, piece.end);
            memory.copy(from, gathering.place(buffers, piece.start + kept, piece.end));
            self.note(at, piece, kept, adopted.congestion);
        }
        match self.gathering(at) {
            Some(gathering) if gathering.assembly.is_whole() => self.finish(at, buffers).map(Some),
            _ => Ok(None),
        }
    }

    fn note(&mut self, at: u32, piece: Piece, kept: u32, congestion: Congestion) {
        if let Some(State::Gathering(gathering)) =
            self.shelf.get_mut(at).map(|entry| &mut entry.state)
        {
            let holes = &mut self.holes[gathering.buffer.index as usize];
            gathering.note(piece, kept, congestion, holes);
        }
    }

    fn gathering(&self, at: u32) -> Option<&Gathering> {
        match &self.shelf.get(at)?.state {
            State::Gathering(gathering) => Some(gathering),
            State::Refused => None,
        }
    }
}

impl Adopted<'_> {
    fn check(&self, buffers: &Buffers) -> Result<(), Refusal> {
        let first = piece_of(self.first)?;
        let split = u32::from(self.split);
        let head_len = usize::from(self.first.payload_at) + usize::from(self.split);
        let is_first = first.start == 0 && !first.is_last && split <= first.end;
        let fits = self.filled >= first.end
            && self.filled.is_multiple_of(8)
            && self.filled <= 65_535
            && Gathering::room_for(split, self.filled) <= buffers.capacity(self.buffer);
        if !is_first || !fits || self.split > SPLIT_MOST || self.head.len() < head_len {
            return Err(Refusal::Malformed);
        }
        // What is in the head alone has no other place.
        if head_len > Head::MOST { Err(Refusal::NoRoom) } else { Ok(()) }
    }

    /// The pieces that lie in the page: all as long as the first.
    fn pieces(&self) -> impl Iterator<Item = Piece> + use<> {
        let (len, filled) = (self.first.payload_len, self.filled);
        (0..filled).step_by(len.max(1) as usize).map(move |start| Piece {
            start,
            end: (start + len).min(filled),
            is_last: false,
        })
    }

    fn place(&self, buffers: &Buffers, start: u32, end: u32) -> Span {
        buffers.span(self.buffer, LEAD - u32::from(self.split) + start, end - start)
    }
}
