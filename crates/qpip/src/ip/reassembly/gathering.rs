//! One packet whose pieces are being gathered.

use alloc::vec::Vec;

use landfall_placement::Refusal;

use super::{Congestion, refusal_of};
use crate::wire::{Fragment, Ip};

/// A piece that is in place: its first byte, and the one behind its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    start: u32,
    end: u32,
}

/// The buffer of one packet, and which pieces of it are in place.
#[derive(Debug)]
pub(super) struct Gathering {
    bytes: Vec<u8>,
    /// In order, without overlap; at most as many as there was room for at first.
    pieces: Vec<Piece>,
    pieces_max: usize,
    /// How many bytes are in place.
    filled: u32,
    /// Where the packet ends; known once its last piece is there.
    total: Option<u32>,
    /// The header of the first piece.
    ip: Option<Ip>,
    congestion: Congestion,
}

impl Gathering {
    pub(super) fn new(pieces_max: usize) -> Self {
        Self {
            bytes: Vec::new(),
            pieces: Vec::with_capacity(pieces_max),
            pieces_max,
            filled: 0,
            total: None,
            ip: None,
            congestion: Congestion::default(),
        }
    }

    /// Forgets the packet and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.pieces.clear();
        self.filled = 0;
        self.total = None;
        self.ip = None;
        self.congestion = Congestion::default();
    }

    /// Whether a piece belongs to the others: [`Refusal::Duplicate`] for a
    /// repetition, [`Refusal::Forbidden`] for one that contradicts them.
    pub(super) fn accepts(&self, piece: Fragment, bytes: &[u8]) -> Result<(), Refusal> {
        let new = Piece { start: piece.offset, end: piece.offset + bytes.len() as u32 };
        let reached = self.pieces.last().map_or(0, |last| last.end);
        let is_repeated = self.pieces.contains(&new)
            && self.bytes.get(new.start as usize..new.end as usize) == Some(bytes)
            && (self.total == Some(new.end)) != piece.more;
        if is_repeated {
            return Err(Refusal::Duplicate);
        }
        let at = self.pieces.partition_point(|other| other.end <= new.start);
        let overlaps = self.pieces.get(at).is_some_and(|other| other.start < new.end);
        let disagrees = match (self.total, piece.more) {
            (Some(total), true) => new.end > total,
            (Some(_), false) => true,
            (None, true) => false,
            (None, false) => new.end < reached,
        };
        if overlaps || disagrees {
            return Err(Refusal::Forbidden);
        }
        if self.pieces.len() >= self.pieces_max { Err(Refusal::NoRoom) } else { Ok(()) }
    }

    /// Copies a piece that was accepted, into room that was reserved, to its place.
    pub(super) fn put(&mut self, ip: &Ip, piece: Fragment, bytes: &[u8]) {
        let new = Piece { start: piece.offset, end: piece.offset + bytes.len() as u32 };
        let (start, end) = (new.start as usize, new.end as usize);
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[start..end].copy_from_slice(bytes);
        let at = self.pieces.partition_point(|other| other.end <= new.start);
        self.pieces.insert(at, new);
        self.filled += new.end - new.start;
        if !piece.more {
            self.total = Some(new.end);
        }
        if piece.offset == 0 {
            self.ip = Some(*ip);
        }
        self.congestion.add(ip.ecn);
    }

    /// Nothing is missing: pieces do not overlap, so that counting is enough.
    pub(super) fn is_whole(&self) -> bool {
        self.total == Some(self.filled)
    }

    /// The header of the whole packet.
    pub(super) fn finish(&self) -> Result<Ip, Refusal> {
        let first = self.ip.ok_or(Refusal::Malformed)?;
        let mut whole = first.reassembled(&self.bytes).map_err(refusal_of)?;
        whole.ecn = self.congestion.of_all(first.ecn)?;
        Ok(whole)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    pub(super) fn payload(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) const fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Makes the buffer so long, at least.
    pub(super) fn grow(&mut self, wanted: usize) -> Result<(), Refusal> {
        let more = wanted.saturating_sub(self.bytes.len());
        self.bytes.try_reserve_exact(more).map_err(|_| Refusal::NoRoom)
    }

    /// Gives the memory back, and says how much that was.
    pub(super) fn free(&mut self) -> usize {
        core::mem::take(&mut self.bytes).capacity()
    }
}
