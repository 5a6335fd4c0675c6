//! One piece after another.

use core::iter::FusedIterator;

use landfall_placement::Span;
use zerocopy::FromBytes;
use zerocopy::network_endian::U16;

use super::CutError;
use crate::packet::Head;
use crate::wire::{Fragment, ethernet, ipv4, ipv6};

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
#[expect(clippy::large_enum_variant, reason = "there is one at a time, on the stack")]
enum State<'a> {
    /// The frame fits.
    Untouched(Piece),
    Cutting(Rest<'a>),
    Over,
}

/// What is not sent yet.
#[derive(Clone, Debug)]
pub(super) struct Rest<'a> {
    /// The headers of the next piece, but for its length and place.
    pub(super) headers: Head,
    /// The same for those that follow.
    pub(super) later: Head,
    /// The rest of the packet's head, behind the headers.
    pub(super) extra: &'a [u8],
    /// The rest of its body.
    pub(super) body: Span,
    /// The most bytes behind the link header.
    pub(super) mtu: u16,
    /// All of it as one piece.
    pub(super) piece: Fragment,
    /// Writes into the headers which piece they head, and how long that is.
    pub(super) write: fn(&mut [u8], Fragment, usize),
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

    /// How much a piece may carry behind these headers: at least 8, for which the
    /// smallest MTU leaves room behind the longest headers.
    fn room(&self, headers: &Head) -> usize {
        usize::from(self.mtu).saturating_sub(headers.len() - ethernet::LEN)
    }

    /// How much the next piece carries: all but the last a multiple of 8.
    fn next_len(&self) -> usize {
        let room = self.room(&self.headers);
        if self.len() <= room { self.len() } else { room & !7 }
    }

    /// How many pieces are left.
    fn count(&self) -> usize {
        let behind = self.len() - self.next_len();
        // The last one may fill also the room that a multiple of 8 leaves.
        let room = self.room(&self.later);
        1 + usize::from(behind > 0) + behind.saturating_sub(room).div_ceil(room & !7)
    }

    /// Takes the next piece; says whether it was the last.
    fn next(&mut self) -> (Piece, bool) {
        let len = self.next_len();
        let mut head = core::mem::replace(&mut self.headers, self.later);
        let (in_head, extra) = self.extra.split_at(len.min(self.extra.len()));
        let (payload, body) = self.body.split_at((len - in_head.len()) as u32);
        (self.extra, self.body) = (extra, body);
        let is_last = self.len() == 0;
        let piece = Fragment { more: self.piece.more || !is_last, ..self.piece };
        self.piece.offset += len as u32;
        (self.write)(&mut head.as_mut_slice()[ethernet::LEN..], piece, len);
        head.push(in_head);
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

/// Writes into an IPv4 header which piece it heads, and how long that is.
pub(super) fn write_ipv4(network: &mut [u8], piece: Fragment, len: usize) {
    let total_len = (network.len() + len) as u16;
    let Ok((header, _)) = ipv4::Header::mut_from_prefix(network) else { return };
    header.total_len = U16::new(total_len);
    let flags = header.fragment.get() & !(ipv4::MORE_FRAGMENTS | ipv4::OFFSET);
    let more = if piece.more { ipv4::MORE_FRAGMENTS } else { 0 };
    header.fragment = U16::new(flags | more | (piece.offset / 8) as u16 & ipv4::OFFSET);
    ipv4::seal(network);
}

/// The same for IPv6 headers that end in a fragment header.
pub(super) fn write_ipv6(network: &mut [u8], piece: Fragment, len: usize) {
    let payload_len = (network.len() - ipv6::LEN + len) as u16;
    if let Ok((_, header)) = ipv6::FragmentHeader::mut_from_suffix(network) {
        *header = ipv6::FragmentHeader::new(header.next_header, piece);
    }
    if let Ok((header, _)) = ipv6::Header::mut_from_prefix(network) {
        header.payload_len = U16::new(payload_len);
    }
}
