//! [`SendQueue`]: messages that wait to be sent, or to be acknowledged.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use landfall_placement::{Span, Spans};

use super::{Done, MessageOrigin, append};
use crate::offload::Places;
use crate::work::{Operation, Status};

/// A message that was posted.
#[derive(Debug)]
struct Request {
    id: u64,
    gather: Gather,
    /// The position of its first byte in the stream.
    start: u64,
    /// Transmissions under way that read its memory.
    holds: u32,
    is_signaled: bool,
}

impl Request {
    const fn end(&self) -> u64 {
        self.start + self.gather.len() as u64
    }
}

/// The requests that one transmission reads: the driver holds their memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hold {
    first: u32,
    count: u32,
}

/// Messages in the order of posting. They lie behind each other in the stream.
///
/// A request is done when all of it is acknowledged *and* no driver holds its
/// memory any more (the second invariant).
#[derive(Debug)]
pub(crate) struct SendQueue {
    requests: VecDeque<Request>,
    depth: u32,
    /// Counts requests: the first of the queue has this number.
    first: u32,
    /// Where the next message will start.
    end: u64,
    /// What is in front of this position needs no repetition.
    finished: u64,
    /// All that is left is flushed, as soon as nobody holds it.
    flushed: Option<Status>,
    /// What goes with the ends of messages; nothing on most connections.
    words: Option<Box<Words>>,
}

/// Words that go with the ends of messages: where those are, in order.
#[derive(Debug, Default)]
struct Words(VecDeque<(u64, u32)>);

impl SendQueue {
    /// The first byte of a stream: in front of it is the opening.
    pub(crate) const START: u64 = 1;

    pub(crate) const fn new(depth: u32) -> Self {
        Self {
            requests: VecDeque::new(),
            depth,
            first: 0,
            end: Self::START,
            finished: Self::START,
            flushed: None,
            words: None,
        }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.requests.len() < self.depth as usize
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Where the next message will start: behind all that is posted.
    #[inline]
    pub(crate) const fn end(&self) -> u64 {
        self.end
    }

    /// Adds a message; there must be room.
    pub(crate) fn push(&mut self, id: u64, gather: Gather, is_signaled: bool) {
        let start = self.end;
        self.end = start.saturating_add(u64::from(gather.len()));
        append(&mut self.requests, Request { id, gather, start, holds: 0, is_signaled });
    }

    /// The message that was added last has this word.
    pub(crate) fn push_word(&mut self, word: u32) {
        let words = &mut self.words.get_or_insert_default().0;
        // No more are kept than there are requests.
        while words.front().is_some_and(|(end, _)| *end <= self.finished) {
            words.pop_front();
        }
        words.push_back((self.end, word));
    }

    /// The word of the message that ends here.
    pub(crate) fn word_at(&self, end: u64) -> Option<u32> {
        let words = &self.words.as_deref()?.0;
        let index = words.binary_search_by_key(&end, |(end, _)| *end).ok()?;
        words.get(index).map(|(_, word)| *word)
    }

    /// Which request the byte at this position belongs to.
    #[inline]
    fn index_of(&self, position: u64) -> Option<usize> {
        let front = self.requests.front()?;
        if position < front.end() {
            return (position >= front.start).then_some(0);
        }
        let behind = self.requests.partition_point(|request| request.start <= position);
        let index = behind.checked_sub(1)?;
        (position < self.requests[index].end()).then_some(index)
    }

    /// Where the message ends that the byte at this position belongs to.
    #[inline]
    pub(crate) fn message_end(&self, position: u64) -> Option<u64> {
        Some(self.requests[self.index_of(position)?].end())
    }

    /// Does a message end here?
    #[inline]
    pub(crate) fn is_message_end(&self, position: u64) -> bool {
        position > Self::START && self.message_end(position - 1) == Some(position)
    }

    /// Adds the spans of the bytes `[from, to)`, as many as `into` has room for,
    /// and holds their requests. Returns how far that is.
    #[inline]
    pub(crate) fn gather(&mut self, from: u64, to: u64, into: &mut Spans) -> (u64, Hold) {
        let Some(first) = self.index_of(from) else { return (from, Hold::default()) };
        let mut at = from;
        let mut count = 0;
        for request in self.requests.range_mut(first..) {
            if at >= to {
                break;
            }
            let wanted = (to.min(request.end()) - at) as u32;
            let got = request.gather.slice((at - request.start) as u32, wanted, into);
            at += u64::from(got);
            if got > 0 {
                request.holds += 1;
                count += 1;
            }
            if got < wanted {
                break;
            }
        }
        (at, Hold { first: self.first.wrapping_add(first as u32), count })
    }

    /// A transmission holds its memory no longer.
    pub(crate) fn release(&mut self, hold: Hold) {
        let first = hold.first.wrapping_sub(self.first) as usize;
        for request in self.requests.iter_mut().skip(first).take(hold.count as usize) {
            request.holds = request.holds.saturating_sub(1);
        }
    }

    /// All in front of this position needs no repetition.
    #[inline]
    pub(crate) fn finish(&mut self, upto: u64) {
        self.finished = self.finished.max(upto);
    }

    /// What is left ends with this status.
    pub(crate) fn flush(&mut self, status: Status) {
        self.flushed = self.flushed.or(Some(status));
    }

    #[inline]
    pub(crate) fn poll_done(&mut self) -> Option<Done> {
        let front = self.requests.front()?;
        let status = if front.end() <= self.finished { Status::Success } else { self.flushed? };
        if front.holds > 0 {
            return None;
        }
        let Request { id, gather, is_signaled, .. } = self.requests.pop_front()?;
        self.first = self.first.wrapping_add(1);
        Some(Done {
            id,
            operation: Operation::Send,
            status,
            len: gather.len(),
            offset: 0,
            ends_message: true,
            gather: Some(gather),
            origin: MessageOrigin::Peer,
            is_signaled,
        })
    }
}

// `Gather`: the memory of a work request, checked and resolved.

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
    /// for. Returns how many bytes those are.
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

    /// Adds the memory from byte `at` on to what is predicted. Returns whether all
    /// of it found room.
    #[inline]
    pub(crate) fn expect(&self, at: u64, places: &mut Places) -> bool {
        if let Pieces::One(piece) = &self.pieces {
            let (_, rest) = piece.span.split_at(at.min(u64::from(self.len)) as u32);
            return places.push(rest, true) && self.len > 0;
        }
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
