//! Where what is echoed lies between coming and going: pieces that are filled one after
//! another, sent back in that order from where they are, and posted again.

use std::ops::Range;

use anyhow::Result;
use landfall::qpip::{Access, Memory, MemoryRegion, Part, ProtectionDomain};

pub(super) const PIECES: usize = 4;
const PIECE: u64 = 32 << 10;

/// The memory of one client.
pub(super) struct ClientBuffers {
    memory: MemoryRegion,
    pieces: [Piece; PIECES],
    /// Whose bytes are the next to go.
    next: usize,
    /// Which will be empty first.
    oldest: usize,
}

#[derive(Clone, Copy, Default)]
struct Piece {
    /// This many bytes have come, and this many of them were handed to sends.
    came: u64,
    handed: u64,
    /// Sends that are under way.
    sends: u32,
    /// No more come.
    is_full: bool,
    /// All of it was handed to sends.
    is_passed: bool,
}

impl ClientBuffers {
    pub(super) fn new(domain: &ProtectionDomain) -> Result<Self> {
        let memory = Memory::zeroed(PIECES * PIECE as usize);
        let memory = domain.register(memory, Access::ReadWrite)?;
        Ok(Self { memory, pieces: [Piece::default(); PIECES], next: 0, oldest: 0 })
    }

    /// All of a piece, to be filled.
    pub(super) fn piece(&self, id: usize) -> Result<Part> {
        self.part(id, 0..PIECE)
    }

    fn part(&self, id: usize, range: Range<u64>) -> Result<Part> {
        let start = id as u64 * PIECE;
        Ok(self.memory.part(start + range.start..start + range.end)?)
    }

    /// The bytes of a piece until here have come.
    pub(super) fn came(&mut self, id: usize, until: u64, is_full: bool) {
        if let Some(piece) = self.pieces.get_mut(id) {
            piece.came = piece.came.max(until);
            piece.is_full |= is_full;
        }
    }

    /// A send out of this piece is over.
    pub(super) fn sent(&mut self, id: usize) {
        if let Some(piece) = self.pieces.get_mut(id) {
            piece.sends = piece.sends.saturating_sub(1);
        }
    }

    /// What goes next: of which piece, and where it lies.
    pub(super) fn next_to_send(&mut self) -> Result<Option<(usize, Part)>> {
        loop {
            let id = self.next;
            let piece = &mut self.pieces[id];
            if piece.handed < piece.came {
                let range = piece.handed..piece.came;
                piece.handed = piece.came;
                piece.sends += 1;
                return Ok(Some((id, self.part(id, range)?)));
            }
            if !piece.is_full || piece.is_passed {
                return Ok(None);
            }
            piece.is_passed = true;
            self.next = (id + 1) % PIECES;
        }
    }

    /// A piece that is empty again, to be posted: in the order in which they were filled.
    pub(super) fn take_empty(&mut self) -> Option<usize> {
        let id = self.oldest;
        let piece = &mut self.pieces[id];
        if !piece.is_passed || piece.sends > 0 {
            return None;
        }
        *piece = Piece::default();
        self.oldest = (id + 1) % PIECES;
        Some(id)
    }

    /// Has all that came been handed to sends?
    pub(super) fn is_drained(&self) -> bool {
        self.pieces.iter().all(|piece| piece.handed == piece.came)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall::qpip::{Adapter, Link};

    fn room() -> ClientBuffers {
        let link = Link::tunnel(([127, 0, 0, 1], 0).into(), []);
        let adapter = Adapter::builder().link(link).address("10.0.0.1/24").open_inline().unwrap();
        ClientBuffers::new(&adapter.domain().unwrap()).unwrap()
    }

    fn sent(room: &mut ClientBuffers) -> Option<(usize, u64, u32)> {
        let (id, part) = room.next_to_send().unwrap()?;
        Some((id, part.offset() - id as u64 * PIECE, part.len()))
    }

    #[test]
    fn what_came_goes_in_its_order_and_small_pieces_together() {
        let mut room = room();
        assert_eq!(sent(&mut room), None);
        room.came(0, 10, false);
        assert_eq!(sent(&mut room), Some((0, 0, 10)));
        assert_eq!(sent(&mut room), None);
        room.came(0, 11, false);
        room.came(0, PIECE, true);
        room.came(1, 5, false);
        assert_eq!(sent(&mut room), Some((0, 10, PIECE as u32 - 10)));
        assert_eq!(sent(&mut room), Some((1, 0, 5)));
        assert!(room.is_drained());
        // Two sends out of it are under way: it is not empty before both are over.
        room.sent(0);
        assert_eq!(room.take_empty(), None);
        room.sent(0);
        assert_eq!(room.take_empty(), Some(0));
        assert_eq!(room.take_empty(), None);
    }

    #[test]
    fn a_piece_that_is_not_empty_is_not_filled_again() {
        let mut room = room();
        for id in 0..PIECES {
            room.came(id, PIECE, true);
            assert_eq!(sent(&mut room), Some((id, 0, PIECE as u32)));
        }
        assert_eq!(sent(&mut room), None, "all are on their way");
        room.sent(1);
        assert_eq!(room.take_empty(), None, "the first is not empty yet");
        room.sent(0);
        assert_eq!((room.take_empty(), room.take_empty()), (Some(0), Some(1)));
        room.came(0, 3, false);
        assert_eq!(sent(&mut room), Some((0, 0, 3)));
    }
}
