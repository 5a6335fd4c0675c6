//! One piece after another.

use core::iter::FusedIterator;

use landfall_placement::Span;

use super::CutError;
use super::headers::Headers;
use crate::memory::Head;
use crate::wire::Fragment;

/// One frame to send, in two descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Link header and IP header; in the first piece also what the packet's head
    /// held behind them.
    pub head: Head,
    /// What follows: a part of the packet's body.
    pub payload: Span,
}

/// The pieces of one packet, in order.
#[derive(Clone, Debug)]
pub struct Cut<'a>(State<'a>);

#[derive(Clone, Debug)]
enum State<'a> {
    /// The frame fits.
    Untouched(Piece),
    Cutting(Rest<'a>),
    Over,
}

/// What is not sent yet.
#[derive(Clone, Debug)]
pub(super) struct Rest<'a> {
    pub(super) headers: Headers<'a>,
    /// The rest of the packet's head, behind the headers.
    pub(super) extra: &'a [u8],
    /// The rest of its body.
    pub(super) body: Span,
    /// The most bytes behind the link header.
    pub(super) mtu: u16,
    /// All of it as one piece.
    pub(super) piece: Fragment,
}

impl<'a> Cut<'a> {
    pub(super) fn untouched(head: &[u8], body: Span) -> Result<Self, CutError> {
        let head = Head::from_slice(head).ok_or(CutError::BadHead)?;
        Ok(Self(State::Untouched(Piece { head, payload: body })))
    }

    pub(super) fn new(rest: Rest<'a>) -> Self {
        Self(State::Cutting(rest))
    }
}

impl Rest<'_> {
    fn len(&self) -> usize {
        self.extra.len() + self.body.len as usize
    }

    /// How much a piece may carry behind headers of this length: at least 8, for
    /// which the smallest MTU leaves room behind the longest headers.
    fn room(&self, headers_len: usize) -> usize {
        usize::from(self.mtu).saturating_sub(headers_len)
    }

    /// How much the next piece carries: all but the last a multiple of 8.
    fn next_len(&self) -> usize {
        let room = self.room(self.headers.len());
        if self.len() <= room { self.len() } else { room & !7 }
    }

    /// How many pieces are left.
    fn count(&self) -> usize {
        let behind = self.len() - self.next_len();
        // The last one may fill also the room that a multiple of 8 leaves.
        let room = self.room(self.headers.later_len());
        1 + usize::from(behind > 0) + behind.saturating_sub(room).div_ceil(room & !7)
    }

    /// Takes the next piece; says whether it was the last.
    fn next(&mut self) -> (Piece, bool) {
        let len = self.next_len();
        let (in_head, extra) = self.extra.split_at(len.min(self.extra.len()));
        let (payload, body) = self.body.split_at((len - in_head.len()) as u32);
        (self.extra, self.body) = (extra, body);
        let is_last = self.len() == 0;
        let piece = Fragment { more: self.piece.more || !is_last, ..self.piece };
        self.piece.offset += len as u32;
        let mut head = Head::new();
        self.headers.write(&mut head, piece, len);
        self.headers.is_first = false;
        if !in_head.is_empty() {
            head.push(in_head);
        }
        (Piece { head, payload }, is_last)
    }
}

impl Iterator for Cut<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let (piece, is_last) = match &mut self.0 {
            State::Untouched(piece) => (*piece, true),
            State::Cutting(rest) => rest.next(),
            State::Over => return None,
        };
        if is_last {
            self.0 = State::Over;
        }
        Some(piece)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let count = match &self.0 {
            State::Untouched(_) => 1,
            State::Cutting(rest) => rest.count(),
            State::Over => 0,
        };
        (count, Some(count))
    }
}

impl ExactSizeIterator for Cut<'_> {}
impl FusedIterator for Cut<'_> {}
