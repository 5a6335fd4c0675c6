//! One packet whose fragments are being gathered: their bytes in the order in which they came, and
//! which bytes of the packet those are.

use alloc::vec::Vec;

use landfall_inet::reassembly::{Assembly, Congestion, Holes, LONGEST, Piece};
use landfall_placement::{Ecn, Refusal};

use super::outcome::DropReason;
use crate::memory::Head;
use crate::wire::{Parsed, write_whole_head};

/// In place of a place: the bytes are those of the frame that came last.
const IN_FRAME: u32 = u32::MAX;
/// The most bytes that a packet keeps.
const LONGEST_BUFFER: usize = LONGEST as usize + Head::MOST;

/// Bytes of the payload that lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    start: u32,
    pub(super) end: u32,
    /// Where they lie in the buffer.
    at: u32,
}

impl Run {
    pub(super) fn bytes<'a>(&self, buffer: &'a [u8], last: &'a [u8]) -> &'a [u8] {
        match self.at {
            IN_FRAME => last,
            at => &buffer[at as usize..][..(self.end - self.start) as usize],
        }
    }
}

/// The memory of a packet, which the next one may have.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    pub(super) bytes: Vec<u8>,
    /// In the order of their starts. None overlaps another.
    pub(super) runs: Vec<Run>,
    holes: Holes,
}

impl Buffer {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.runs.clear();
        self.holes.clear();
    }

    /// How many bytes of memory it has.
    pub(super) const fn memory(&self) -> usize {
        self.bytes.capacity() + self.runs.capacity() * size_of::<Run>() + self.holes.memory()
    }

    /// How large the buffer has to be for this many more bytes; more, if it may, so that fragments
    /// in order do not move it each time: as large as packets `usually` are, where that is not out of
    /// all proportion to what is here.
    pub(super) fn capacity_for(&self, more: usize, usually: usize) -> usize {
        /// The first step to a long packet, and what is out of proportion.
        const STEP: usize = 4;
        const OUT_OF_PROPORTION: usize = 16;
        let (has, needed) = (self.bytes.capacity(), self.bytes.len() + more);
        if needed <= has {
            return has;
        }
        let expected =
            if usually > needed * OUT_OF_PROPORTION { needed * STEP } else { usually.max(needed) };
        expected.max((has * 2).min(LONGEST_BUFFER))
    }

    /// Enters bytes of the payload that lie at `at`.
    fn enter(&mut self, piece: Piece, at: u32) {
        let behind = self.runs.partition_point(|run| run.start < piece.start);
        if let Some(before) = behind.checked_sub(1).and_then(|at| self.runs.get_mut(at))
            && before.end == piece.start
            && before.at != IN_FRAME
            && at != IN_FRAME
            && before.at + (before.end - before.start) == at
        {
            before.end = piece.end;
            return;
        }
        self.runs.insert(behind, Run { start: piece.start, end: piece.end, at });
    }

    /// The bytes of a fragment that is here.
    fn of_piece(&self, piece: Piece) -> Option<&[u8]> {
        let behind = self.runs.partition_point(|run| run.start <= piece.start);
        let run = self.runs.get(behind.checked_sub(1)?)?;
        let at = run.at.checked_add(piece.start - run.start)? as usize;
        self.bytes.get(at..at + piece.len() as usize)
    }
}

/// The first fragment: what its headers say, and where they lie in the buffer.
#[derive(Clone, Copy, Debug)]
struct First {
    parsed: Parsed,
    at: u32,
}

/// A packet that is not complete. It lies apart from its entry of the table, and its memory is the
/// next packet's: what is entered and taken out is as small as a key.
#[derive(Debug, Default)]
pub(super) struct Datagram {
    pub(super) buffer: Buffer,
    assembly: Assembly,
    first: Option<First>,
    pub(super) fragments: u16,
}

/// A fragment with its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived<'a> {
    pub(super) parsed: &'a Parsed,
    pub(super) piece: Piece,
    pub(super) frame: &'a [u8],
}

impl<'a> Arrived<'a> {
    pub(super) fn head(&self) -> &'a [u8] {
        &self.frame[..self.parsed.payload_at.into()]
    }

    pub(super) fn payload(&self) -> &'a [u8] {
        &self.frame[self.parsed.payload_at.into()..][..self.piece.len() as usize]
    }

    /// How many bytes are kept of it: of a first one its headers as well.
    pub(super) fn kept_len(&self) -> usize {
        let head = if self.piece.start == 0 { self.head().len() } else { 0 };
        head + self.piece.len() as usize
    }
}

impl Datagram {
    /// Another packet may have its memory.
    pub(super) fn clear(&mut self) {
        self.buffer.clear();
        (self.assembly, self.first, self.fragments) = (Assembly::new(), None, 0);
    }

    /// Keeps a fragment of which nothing has to be asked but whether it is the next one in order, in
    /// the middle of the packet, and has room: what most are. False says nothing about it.
    #[inline]
    pub(super) fn append(&mut self, piece: Piece, ecn: Ecn, payload: &[u8], most: u16) -> bool {
        let Buffer { bytes, runs, holes } = &mut self.buffer;
        let [.., run] = &mut runs[..] else { return false };
        let lies_behind = run.end == piece.start
            && run.at.checked_add(run.end - run.start) == Some(bytes.len() as u32);
        let is_between = piece.start > 0 && !piece.is_last;
        if !(is_between
            && lies_behind
            && self.assembly.is_next(piece)
            && payload.len() <= bytes.capacity() - bytes.len()
            && self.fragments < most)
        {
            return false;
        }
        bytes.extend_from_slice(payload);
        run.end = piece.end;
        let mut congestion = Congestion::default();
        congestion.add(ecn);
        self.assembly.note(piece, congestion, holes);
        self.fragments += 1;
        true
    }

    /// How many bytes of the payload are here.
    pub(super) const fn filled(&self) -> u32 {
        self.assembly.filled()
    }

    /// Whether a fragment belongs to the others.
    pub(super) fn check(&mut self, arrived: &Arrived<'_>) -> Result<(), DropReason> {
        match self.assembly.check(arrived.piece, &mut self.buffer.holes) {
            Ok(()) => Ok(()),
            Err(Refusal::Duplicate)
                if self.buffer.of_piece(arrived.piece) == Some(arrived.payload()) =>
            {
                Err(DropReason::Duplicate)
            }
            // Other bytes in the same place are an overlap, too.
            Err(_) => Err(DropReason::Overlap),
        }
    }

    /// Whether nothing is missing once this fragment, which was checked, is here.
    pub(super) const fn is_completed_by(&self, piece: Piece) -> bool {
        self.assembly.is_whole_with(piece)
    }

    /// Keeps the bytes of a fragment that was checked.
    pub(super) fn keep(&mut self, arrived: &Arrived<'_>) {
        if arrived.piece.start == 0 {
            let at = self.buffer.bytes.len() as u32;
            self.first = Some(First { parsed: *arrived.parsed, at });
            self.buffer.bytes.extend_from_slice(arrived.head());
        }
        let at = self.buffer.bytes.len() as u32;
        self.buffer.bytes.extend_from_slice(arrived.payload());
        self.note(arrived, at);
    }

    /// Enters the fragment that completes the packet: its bytes stay in its frame.
    pub(super) fn complete(&mut self, arrived: &Arrived<'_>) {
        self.note(arrived, IN_FRAME);
    }

    fn note(&mut self, arrived: &Arrived<'_>, at: u32) {
        let mut congestion = Congestion::default();
        congestion.add(arrived.parsed.ecn);
        self.assembly.note(arrived.piece, congestion, &mut self.buffer.holes);
        self.buffer.enter(arrived.piece, at);
        self.fragments += 1;
    }

    /// The headers of the packet, which `last` completed.
    pub(super) fn whole_head(&self, last: &Arrived<'_>, head: &mut Head) -> Result<(), DropReason> {
        let (parsed, headers) = match self.first() {
            Some(first) => first,
            None => (last.parsed, last.head()),
        };
        let congestion = self.assembly.congestion().of_all(parsed.ecn);
        let ecn = congestion.map_err(|_| DropReason::MixedCongestion)?;
        write_whole_head(head, headers, parsed, self.assembly.total(), ecn).map_err(DropReason::of)
    }

    /// The first fragment's headers, if it came before the last.
    pub(super) fn first(&self) -> Option<(&Parsed, &[u8])> {
        let First { parsed, at } = self.first.as_ref()?;
        Some((parsed, self.buffer.bytes.get(*at as usize..)?.get(..parsed.payload_at.into())?))
    }

    /// As much of the first fragment's payload as fits.
    pub(super) fn first_payload(&self, most: usize) -> &[u8] {
        let run = self.buffer.runs.first().filter(|run| run.start == 0);
        let bytes = run.map_or(&[][..], |run| run.bytes(&self.buffer.bytes, &[]));
        let len = self.first.map_or(0, |first| first.parsed.payload_len as usize);
        &bytes[..bytes.len().min(len).min(most)]
    }
}

impl Datagram {
    /// All of a packet that came in one piece.
    pub(super) fn set_whole(&mut self, piece: Piece) {
        self.clear();
        self.buffer.enter(piece, IN_FRAME);
        self.fragments = 1;
    }
}
