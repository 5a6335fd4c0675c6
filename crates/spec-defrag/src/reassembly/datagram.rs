//! One packet whose fragments are being gathered: their bytes in the order in which they came, and
//! which bytes of the packet those are.

use alloc::vec::Vec;
use core::ops::Range;

use landfall_inet::reassembly::{Assembly, Congestion, Holes, LONGEST, Piece};
use landfall_placement::{Ecn, Refusal};

use super::kept::{Frame, Offered};
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

/// A frame that is kept, and where the payload begins in it.
#[derive(Debug)]
struct Kept<F> {
    frame: F,
    payload_at: u16,
}

/// The memory of a packet, which the next one may have.
#[derive(Debug)]
pub(super) struct Buffer<F> {
    /// What was copied: nothing where frames are kept.
    pub(super) bytes: Vec<u8>,
    /// Frames, one for each run.
    frames: Vec<Kept<F>>,
    /// How many bytes these hold, and how many were set aside for them.
    held: usize,
    room: usize,
    /// In the order of their starts. None overlaps another.
    pub(super) runs: Vec<Run>,
    holes: Holes,
}

impl<F> Default for Buffer<F> {
    fn default() -> Self {
        let (bytes, frames, runs) = (Vec::new(), Vec::new(), Vec::new());
        Self { bytes, frames, held: 0, room: 0, runs, holes: Holes::default() }
    }
}

impl<F: Frame> Buffer<F> {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.frames.clear();
        (self.held, self.room) = (0, 0);
        self.runs.clear();
        self.holes.clear();
    }

    /// How many bytes of memory it has.
    pub(super) const fn memory(&self) -> usize {
        self.capacity()
            + self.frames.capacity() * size_of::<Kept<F>>()
            + self.runs.capacity() * size_of::<Run>()
            + self.holes.memory()
    }

    /// How many bytes there is room for: those that are copied, or those that frames hold.
    pub(super) const fn capacity(&self) -> usize {
        self.bytes.capacity() + self.room
    }

    /// How many of them are in use.
    pub(super) const fn len(&self) -> usize {
        self.bytes.len() + self.held
    }

    /// Has it memory that is worth keeping?
    pub(super) const fn is_worth_keeping(&self) -> bool {
        self.bytes.capacity() + self.frames.capacity() > 0
    }

    /// Sets room aside: `capacity` in all, more than there is.
    pub(super) fn grow(&mut self, capacity: usize) {
        if F::IS_KEPT {
            self.room = capacity;
        } else {
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
    }

    /// The bytes of a run.
    pub(super) fn run<'a>(&'a self, run: &Run, last: &'a [u8]) -> &'a [u8] {
        let len = (run.end - run.start) as usize;
        match run.at {
            IN_FRAME => last,
            at if F::IS_KEPT => {
                let Kept { frame, payload_at } = &self.frames[at as usize];
                &frame.as_ref()[usize::from(*payload_at)..][..len]
            }
            at => &self.bytes[at as usize..][..len],
        }
    }

    /// Keeps these bytes of the frame, or all of it; gives where the payload lies, which begins at
    /// `payload_at` in it.
    fn push(&mut self, offered: &mut Offered<'_, F>, copied: Range<usize>, payload_at: u16) -> u32 {
        match offered {
            Offered::Bytes(frame) => {
                let at = self.bytes.len() + usize::from(payload_at) - copied.start;
                self.bytes.extend_from_slice(&frame[copied]);
                at as u32
            }
            Offered::Frame(frame) => {
                let at = self.frames.len();
                if let Some(frame) = frame.take() {
                    self.held += frame.held();
                    self.frames.push(Kept { frame, payload_at });
                }
                at as u32
            }
        }
    }

    /// How large the buffer has to be for this many more bytes; more, if it may, so that fragments
    /// in order do not move it each time.
    pub(super) fn capacity_for(&self, more: usize) -> usize {
        let (has, needed) = (self.capacity(), self.len() + more);
        if needed <= has { has } else { needed.max((has * 2).min(LONGEST_BUFFER)) }
    }

    /// Enters bytes of the payload that lie at `at`.
    fn enter(&mut self, piece: Piece, at: u32) {
        let behind = self.runs.partition_point(|run| run.start < piece.start);
        if let Some(before) = behind.checked_sub(1).and_then(|at| self.runs.get_mut(at))
            && before.end == piece.start
            && before.at != IN_FRAME
            && at != IN_FRAME
            && !F::IS_KEPT
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
        self.run(run, &[]).get((piece.start - run.start) as usize..)?.get(..piece.len() as usize)
    }
}

/// The first fragment: what its headers say, and where its payload lies in the buffer.
#[derive(Clone, Copy, Debug)]
struct First {
    parsed: Parsed,
    at: u32,
}

/// A packet that is not complete. It lies apart from its entry of the table, and its memory is the
/// next packet's: what is entered and taken out is as small as a key.
#[derive(Debug)]
pub(super) struct Datagram<F> {
    pub(super) buffer: Buffer<F>,
    assembly: Assembly,
    first: Option<First>,
    pub(super) fragments: u16,
}

/// A fragment behind all headers, as it is appended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Next {
    pub(super) piece: Piece,
    pub(super) ecn: Ecn,
    pub(super) payload_at: u16,
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

    /// How much of the buffer it takes to keep it.
    pub(super) fn needs<F: Frame>(&self, offered: &Offered<'_, F>) -> usize {
        offered.needs(copied(self.parsed, self.piece).len())
    }
}

/// Which bytes of its frame are copied where a fragment is: its payload, and of a first one its
/// headers.
fn copied(parsed: &Parsed, piece: Piece) -> Range<usize> {
    let payload_at = usize::from(parsed.payload_at);
    let from = if piece.start == 0 { 0 } else { payload_at };
    from..payload_at + piece.len() as usize
}

impl<F> Default for Datagram<F> {
    fn default() -> Self {
        let (buffer, assembly) = (Buffer::default(), Assembly::new());
        Self { buffer, assembly, first: None, fragments: 0 }
    }
}

impl<F: Frame> Datagram<F> {
    /// Another packet may have its memory.
    pub(super) fn clear(&mut self) {
        self.buffer.clear();
        (self.assembly, self.first, self.fragments) = (Assembly::new(), None, 0);
    }

    /// Keeps a fragment of which nothing has to be asked but whether it is the next one in order, in
    /// the middle of the packet, and has room: what most are. False says nothing about it.
    #[inline]
    pub(super) fn append(&mut self, plain: &Next, offered: &mut Offered<'_, F>, most: u16) -> bool {
        let Next { piece, ecn, payload_at } = *plain;
        let Self { buffer, assembly, fragments, .. } = self;
        // It is the first fragment.
        let Some(run) = buffer.runs.last() else { return false };
        let needs = offered.needs(piece.len() as usize);
        let lies_behind = F::IS_KEPT
            || run.at.checked_add(run.end - run.start) == Some(buffer.bytes.len() as u32);
        let is_between = piece.start > 0 && !piece.is_last;
        if !(is_between
            && run.end == piece.start
            && lies_behind
            && assembly.is_next(piece)
            && *fragments < most
            && (!F::IS_KEPT || buffer.runs.len() < buffer.runs.capacity())
            && (!F::IS_KEPT || buffer.frames.len() < buffer.frames.capacity())
            && needs <= buffer.capacity().saturating_sub(buffer.len()))
        {
            return false;
        }
        let from = usize::from(payload_at);
        let at = buffer.push(offered, from..from + piece.len() as usize, payload_at);
        match buffer.runs.last_mut() {
            Some(run) if !F::IS_KEPT => run.end = piece.end,
            _ => buffer.runs.push(Run { start: piece.start, end: piece.end, at }),
        }
        let mut congestion = Congestion::default();
        congestion.add(ecn);
        assembly.note_next(piece, congestion);
        *fragments += 1;
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

    /// Keeps a fragment that was checked.
    pub(super) fn keep(&mut self, parsed: &Parsed, piece: Piece, offered: &mut Offered<'_, F>) {
        let at = self.buffer.push(offered, copied(parsed, piece), parsed.payload_at);
        if piece.start == 0 {
            self.first = Some(First { parsed: *parsed, at });
        }
        self.note(piece, parsed.ecn, at);
    }

    /// Enters the fragment that completes the packet: its bytes stay in its frame.
    pub(super) fn complete(&mut self, arrived: &Arrived<'_>) {
        self.note(arrived.piece, arrived.parsed.ecn, IN_FRAME);
    }

    fn note(&mut self, piece: Piece, ecn: Ecn, at: u32) {
        let mut congestion = Congestion::default();
        congestion.add(ecn);
        self.assembly.note(piece, congestion, &mut self.buffer.holes);
        self.buffer.enter(piece, at);
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
        let len = usize::from(parsed.payload_at);
        let head = if F::IS_KEPT {
            self.buffer.frames.get(*at as usize)?.frame.as_ref().get(..len)?
        } else {
            self.buffer.bytes.get(..*at as usize)?.get(*at as usize - len..)?
        };
        Some((parsed, head))
    }

    /// As much of the first fragment's payload as fits.
    pub(super) fn first_payload(&self, most: usize) -> &[u8] {
        let run = self.buffer.runs.first().filter(|run| run.start == 0);
        let bytes = run.map_or(&[][..], |run| self.buffer.run(run, &[]));
        let len = self.first.map_or(0, |first| first.parsed.payload_len as usize);
        &bytes[..bytes.len().min(len).min(most)]
    }
}

impl<F: Frame> Datagram<F> {
    /// All of a packet that came in one piece.
    pub(super) fn set_whole(&mut self, piece: Piece) {
        self.clear();
        self.buffer.enter(piece, IN_FRAME);
        self.fragments = 1;
    }
}
