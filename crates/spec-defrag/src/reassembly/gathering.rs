//! One packet whose pieces are being gathered.

use landfall_inet::reassembly::{Assembly, Congestion, Holes, LONGEST, Piece};
use landfall_placement::{Refusal, Span};

use crate::buffers::{BufferId, Buffers, LEAD};
use crate::wire::Parsed;

/// The piece that a frame carries, checked alone.
#[inline]
pub(super) fn piece_of(parsed: &Parsed) -> Result<Piece, Refusal> {
    let fragment = parsed.fragment.ok_or(Refusal::Unexpected)?;
    Piece::new(fragment, parsed.payload_len, LONGEST)
}

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
    pub(super) assembly: Assembly,
}

impl Gathering {
    #[inline]
    pub(super) const fn new(buffer: BufferId, split: u32) -> Self {
        Self { buffer, split, kept: 0, assembly: Assembly::new() }
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
        if piece.start == 0 {
            self.kept = kept;
        }
        self.assembly.note(piece, congestion, holes);
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

    pub(super) const fn kept(&self) -> u32 {
        self.kept
    }

    /// Where these bytes of the payload lie, or belong.
    #[inline]
    pub(super) fn place(&self, buffers: &Buffers, start: u32, end: u32) -> Span {
        buffers.span(self.buffer, LEAD - self.split + start, end - start)
    }
}
