//! One packet whose pieces are being gathered.

use landfall_placement::{Refusal, Span};

use super::Congestion;
use super::holes::Holes;
use crate::buffers::{BufferId, Buffers, LEAD};
use crate::wire::Parsed;

/// Which bytes of its packet a piece carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) start: u32,
    pub(super) end: u32,
    /// The packet ends with it.
    pub(super) is_last: bool,
}

/// The longest payload: the length fields have 16 bits.
const PAYLOAD_MOST: u32 = 65_535;

impl Piece {
    /// The piece that a frame carries, checked alone.
    #[inline]
    pub(super) fn new(parsed: &Parsed) -> Result<Self, Refusal> {
        let fragment = parsed.fragment.ok_or(Refusal::Unexpected)?;
        let (start, len) = (fragment.offset, parsed.payload_len);
        if len == 0 || !start.is_multiple_of(8) || fragment.more && !len.is_multiple_of(8) {
            return Err(Refusal::Malformed);
        }
        match start.checked_add(len) {
            Some(end) if end <= PAYLOAD_MOST => Ok(Self { start, end, is_last: !fragment.more }),
            _ => Err(Refusal::OutOfBounds),
        }
    }

    #[inline]
    pub(super) const fn len(self) -> u32 {
        self.end - self.start
    }
}

/// Where a packet ends, before its last piece came.
const UNKNOWN: u32 = u32::MAX;

/// The buffer of a packet, and what of it is there.
///
/// Position x of the payload lies at `LEAD - split + x` in the buffer, so that what
/// follows a header of `split` bytes is aligned as a page is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gathering {
    pub(super) buffer: BufferId,
    split: u32,
    /// So many bytes at the start are kept with the first head, not in the buffer.
    kept: u32,
    /// How many bytes are there.
    filled: u32,
    /// The end of the furthest piece.
    reached: u32,
    total: u32,
    /// How long the first piece is.
    unit: u32,
    /// Whether the holes are in use. They are not as long as pieces come in order and
    /// as long as the first: then these few numbers say all.
    is_described: bool,
    has_first: bool,
    congestion: Congestion,
}

impl Gathering {
    #[inline]
    pub(super) fn new(buffer: BufferId, split: u32) -> Self {
        Self {
            buffer,
            split,
            kept: 0,
            filled: 0,
            reached: 0,
            total: UNKNOWN,
            unit: 0,
            is_described: false,
            has_first: false,
            congestion: Congestion::default(),
        }
    }

    /// Whether a piece belongs to the others: [`Refusal::Duplicate`] for a
    /// repetition, [`Refusal::Forbidden`] for one that contradicts them.
    #[inline]
    pub(super) fn verdict(&mut self, piece: Piece, holes: &mut Holes) -> Result<(), Refusal> {
        if self.is_next(piece) {
            return Ok(());
        }
        self.describe(holes);
        self.verdict_among(piece, holes)
    }

    /// Is it what a sender sends next, and nothing is missing before?
    #[inline]
    const fn is_next(&self, piece: Piece) -> bool {
        !self.is_described
            && piece.start == self.reached
            && (piece.is_last || piece.start == 0 || piece.len() == self.unit)
    }

    /// From now on the holes say what is there.
    fn describe(&mut self, holes: &mut Holes) {
        if self.is_described {
            return;
        }
        self.is_described = true;
        holes.clear();
        for start in (0..self.reached).step_by(self.unit.max(1) as usize) {
            holes.fill(start, (start + self.unit).min(self.reached));
        }
    }

    fn verdict_among(&self, piece: Piece, holes: &Holes) -> Result<(), Refusal> {
        if piece.start >= self.reached && self.total == UNKNOWN {
            return Ok(());
        }
        let ends_alike =
            if piece.is_last { piece.end == self.total } else { piece.end < self.total };
        if ends_alike && holes.is_piece(piece.start, piece.end) {
            return Err(Refusal::Duplicate);
        }
        let disagrees = match (self.total, piece.is_last) {
            (UNKNOWN, true) => piece.end < self.reached,
            (UNKNOWN, false) => false,
            (_, true) => true,
            (total, false) => piece.end > total,
        };
        if disagrees || holes.overlap(piece.start, piece.end) {
            return Err(Refusal::Forbidden);
        }
        Ok(())
    }

    /// The piece is in place; `kept` of its bytes are with the first head.
    #[inline]
    pub(super) fn note(
        &mut self,
        piece: Piece,
        kept: u32,
        congestion: Congestion,
        holes: &mut Holes,
    ) {
        if !self.is_next(piece) {
            self.describe(holes);
            holes.fill(piece.start, piece.end);
        }
        self.filled += piece.len();
        self.reached = self.reached.max(piece.end);
        if piece.is_last {
            self.total = piece.end;
        }
        if piece.start == 0 {
            self.kept = kept;
            self.unit = piece.len();
            self.has_first = true;
        }
        self.congestion = self.congestion.with(congestion);
    }

    /// Nothing is missing: pieces do not overlap, so that counting is enough.
    #[inline]
    pub(super) const fn is_whole(&self) -> bool {
        self.filled == self.total
    }

    /// How much room behind the lead of its buffer a piece that ends here needs.
    #[inline]
    pub(super) const fn room_for(split: u32, end: u32) -> u32 {
        end.saturating_sub(split)
    }

    /// The same with the split of this packet.
    #[inline]
    pub(super) const fn needs(&self, end: u32) -> u32 {
        Self::room_for(self.split, end)
    }

    #[inline]
    pub(super) const fn split(&self) -> u32 {
        self.split
    }

    /// The furthest byte that is there.
    pub(super) const fn reached(&self) -> u32 {
        self.reached
    }

    /// How many bytes the whole packet has. Only when it is whole.
    pub(super) const fn total(&self) -> u32 {
        self.total
    }

    pub(super) const fn kept(&self) -> u32 {
        self.kept
    }

    /// Whether the holes are in use.
    pub(super) const fn is_described(&self) -> bool {
        self.is_described
    }

    pub(super) const fn has_first(&self) -> bool {
        self.has_first
    }

    pub(super) const fn congestion(&self) -> Congestion {
        self.congestion
    }

    /// Where these bytes of the payload lie, or belong.
    #[inline]
    pub(super) fn place(&self, buffers: &Buffers, start: u32, end: u32) -> Span {
        buffers.span(self.buffer, LEAD - self.split + start, end - start)
    }
}
