//! One packet whose pieces are being gathered.

use alloc::vec::Vec;

use landfall_placement::Refusal;

use super::refusal_of;
use crate::wire::Ip;
use crate::wire::reassembly::{Assembly, Congestion, Holes, Piece};

/// The buffer of one packet, and which pieces of it are in place.
#[derive(Debug)]
pub(super) struct Gathering {
    bytes: Vec<u8>,
    assembly: Assembly,
    holes: Holes,
    pieces: usize,
    pieces_max: usize,
    /// The header of the first piece.
    ip: Option<Ip>,
}

impl Gathering {
    pub(super) fn new(pieces_max: usize) -> Self {
        Self {
            bytes: Vec::new(),
            assembly: Assembly::new(),
            holes: Holes::default(),
            pieces: 0,
            pieces_max,
            ip: None,
        }
    }

    /// Forgets the packet and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.assembly = Assembly::new();
        self.holes.clear();
        self.pieces = 0;
        self.ip = None;
    }

    /// Whether a piece belongs to the others: [`Refusal::Duplicate`] for a
    /// repetition, [`Refusal::Forbidden`] for one that contradicts them.
    pub(super) fn accepts(&mut self, piece: Piece, bytes: &[u8]) -> Result<(), Refusal> {
        match self.assembly.check(piece, &mut self.holes) {
            Ok(()) if self.pieces >= self.pieces_max => Err(Refusal::NoRoom),
            Err(Refusal::Duplicate)
                if self.bytes.get(piece.start as usize..piece.end as usize) != Some(bytes) =>
            {
                Err(Refusal::Forbidden)
            }
            verdict => verdict,
        }
    }

    /// Copies a piece that was accepted, into room that was reserved, to its place.
    pub(super) fn put(&mut self, ip: &Ip, piece: Piece, bytes: &[u8]) {
        let (start, end) = (piece.start as usize, piece.end as usize);
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[start..end].copy_from_slice(bytes);
        let mut congestion = Congestion::default();
        congestion.add(ip.ecn);
        self.assembly.note(piece, congestion, &mut self.holes);
        self.pieces += 1;
        if start == 0 {
            self.ip = Some(*ip);
        }
    }

    /// The header of the first piece, where that has come.
    pub(super) const fn first_header(&self) -> Option<Ip> {
        self.ip
    }

    /// Nothing is missing.
    pub(super) const fn is_whole(&self) -> bool {
        self.assembly.is_whole()
    }

    /// The header of the whole packet.
    pub(super) fn finish(&self) -> Result<Ip, Refusal> {
        let first = self.ip.ok_or(Refusal::Malformed)?;
        let mut whole = first.reassembled(&self.bytes).map_err(refusal_of)?;
        whole.ecn = self.assembly.congestion().of_all(first.ecn)?;
        Ok(whole)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.pieces == 0
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

    /// Returns the memory back, and says how much that was.
    pub(super) fn free(&mut self) -> usize {
        core::mem::take(&mut self.bytes).capacity()
    }
}
