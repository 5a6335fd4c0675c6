//! [`Gather`]: the memory of a work request, checked and resolved.

use alloc::boxed::Box;

use landfall_placement::{Span, Spans};

use crate::offload::Places;

/// A part of registered memory that was checked when it was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The slot of its registration, which is in use as long as this is.
    pub(crate) key: u32,
    pub(crate) span: Span,
}

/// The memory of a work request. One piece, the usual case, takes no allocation.
#[derive(Debug)]
pub(crate) struct Gather {
    len: u32,
    pieces: Pieces,
}

#[derive(Debug)]
enum Pieces {
    One(Piece),
    Many(Box<[Piece]>),
}

impl Gather {
    /// Nothing, if there are more bytes than a request can have.
    pub(crate) fn new(pieces: &[Piece]) -> Option<Self> {
        let len = pieces.iter().try_fold(0u32, |sum, piece| sum.checked_add(piece.span.len))?;
        let pieces = match pieces {
            [one] => Pieces::One(*one),
            many => Pieces::Many(many.into()),
        };
        Some(Self { len, pieces })
    }

    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn pieces(&self) -> &[Piece] {
        match &self.pieces {
            Pieces::One(piece) => core::slice::from_ref(piece),
            Pieces::Many(pieces) => pieces,
        }
    }

    /// Adds the spans of the bytes `[at, at + len)`, as many as `into` has room
    /// for. Gives how many bytes those are.
    #[inline]
    pub(crate) fn slice(&self, at: u32, len: u32, into: &mut Spans) -> u32 {
        let (mut skip, mut wanted) = (at, len);
        for piece in self.pieces() {
            if wanted == 0 {
                break;
            }
            if skip >= piece.span.len {
                skip -= piece.span.len;
                continue;
            }
            let (part, _) = piece.span.split_at(skip).1.split_at(wanted);
            skip = 0;
            if into.push(part).is_err() {
                break;
            }
            wanted -= part.len;
        }
        len - wanted
    }

    /// Adds the memory from byte `at` on to what is predicted. Says whether all
    /// of it found room.
    pub(crate) fn expect(&self, at: u64, places: &mut Places) -> bool {
        let mut skip = at;
        for (nth, piece) in self.pieces().iter().enumerate() {
            let len = u64::from(piece.span.len);
            let (_, rest) = piece.span.split_at(skip.min(len) as u32);
            skip -= skip.min(len);
            let is_last = self.pieces()[nth + 1..].iter().all(|piece| piece.span.len == 0);
            if !places.push(rest, is_last) {
                return false;
            }
        }
        self.len > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_placement::RegionId;

    fn piece(offset: u64, len: u32) -> Piece {
        Piece { key: 0, span: RegionId::new(1, 1).span(offset, len) }
    }

    #[test]
    fn slices_run_over_the_pieces() {
        let gather = Gather::new(&[piece(100, 10), piece(0, 0), piece(500, 5)]).unwrap();
        assert_eq!(gather.len(), 15);
        let mut into = Spans::new();
        assert_eq!(gather.slice(8, 4, &mut into), 4);
        assert_eq!(into.as_slice(), [piece(108, 2).span, piece(500, 2).span]);
        into.clear();
        assert_eq!(gather.slice(12, 100, &mut into), 3);
        assert_eq!(into.as_slice(), [piece(502, 3).span]);
    }

    #[test]
    fn what_no_number_counts_is_refused() {
        assert!(Gather::new(&[piece(0, u32::MAX), piece(0, 1)]).is_none());
    }

    #[test]
    fn a_full_list_gives_fewer_bytes() {
        let many: alloc::vec::Vec<_> = (0..100).map(|n| piece(n * 2, 1)).collect();
        let gather = Gather::new(&many).unwrap();
        let mut into = Spans::new();
        assert_eq!(gather.slice(0, 100, &mut into), Spans::CAPACITY as u32);
    }
}
