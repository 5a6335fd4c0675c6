//! [`Layout`]: which byte of the stream belongs to which posted request.

use alloc::boxed::Box;
use alloc::vec::Vec;

use landfall_placement::Spans;

use crate::offload::Places;
use crate::queue::{Gather, ReceiveQueue};

/// A request begins where the one before it ended: where that was full, or
/// where a message ended in it. The ends of messages beyond what has come
/// without a hole are an assumption: that holes hold none.
#[derive(Debug)]
pub(crate) struct Layout {
    /// Where the first request begins.
    front: u64,
    /// The ends of messages that are known, in order; all behind `front`.
    ends: Vec<u64>,
    /// What came with ends; nothing on most connections.
    words: Option<Box<Words>>,
    near: Near,
}

/// A request that is not far in front of what comes next: searches begin there. Until it is
/// found it is the first.
#[derive(Clone, Copy, Debug)]
struct Near {
    /// How many requests are in front of it,
    requests: u32,
    /// and how many bytes these cover.
    bytes: u32,
}

impl Near {
    const FIRST: Self = Self { requests: 0, bytes: 0 };
}

/// Words that came with the ends of messages, in order.
#[derive(Debug, Default)]
struct Words(Vec<(u64, u32)>);

/// The first request covers the stream from its start up to here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FirstRequest {
    pub(crate) end: u64,
    pub(crate) ends_message: bool,
}

/// What a request covers of the stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent<'a> {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) gather: &'a Gather,
}

impl Layout {
    /// The most ends that are remembered. What ends a message beyond them has to come again.
    const MOST_ENDS: usize = 1024;

    pub(crate) const fn new(start: u64) -> Self {
        Self { front: start, ends: Vec::new(), words: None, near: Near::FIRST }
    }

    #[inline]
    pub(crate) const fn front(&self) -> u64 {
        self.front
    }

    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.ends.len() < Self::MOST_ENDS
    }

    /// How far the first request reaches, as far as is known.
    #[inline]
    pub(crate) fn front_end(&self, queue: &ReceiveQueue) -> Option<FirstRequest> {
        let full = self.front + u64::from(queue.front()?.gather.len());
        Some(match self.ends.first() {
            Some(end) if *end <= full => FirstRequest { end: *end, ends_message: true },
            _ => FirstRequest { end: full, ends_message: false },
        })
    }

    /// The first request ended there: the next one is first.
    #[inline]
    pub(crate) fn advance(&mut self, front: FirstRequest) {
        let len = (front.end - self.front) as u32;
        self.near = match self.near.requests.checked_sub(1) {
            Some(requests) => Near { requests, bytes: self.near.bytes.saturating_sub(len) },
            None => Near::FIRST,
        };
        self.front = front.end;
        if front.ends_message {
            self.ends.remove(0);
        }
    }

    /// Adds the spans for the bytes `[from, to)`, as many as there is memory
    /// and room for. Returns how far that is. `from` is not in front of the first
    /// request.
    #[inline]
    pub(crate) fn place(&self, from: u64, to: u64, queue: &ReceiveQueue, into: &mut Spans) -> u64 {
        let mut at = from;
        for Extent { start, end, gather } in self.extents_to(from, queue) {
            if at < end {
                let wanted = (to.min(end) - at) as u32;
                let got = gather.slice((at - start) as u32, wanted, into);
                at += u64::from(got);
                if got < wanted || at >= to {
                    break;
                }
            }
        }
        at
    }

    /// Where the bytes from here on belong, if no message ends in front of them
    /// that is not known of: a few pieces of memory. Nothing where there is none,
    /// or where that is not all that is known.
    pub(crate) fn predict(&self, at: u64, queue: &ReceiveQueue) -> Option<Places> {
        let has_room = self.ends.len() + Places::MOST < Self::MOST_ENDS;
        if !has_room || self.ends.last().is_some_and(|end| *end > at) {
            return None;
        }
        let mut places = Places::new();
        for Extent { start, end, gather } in self.extents_to(at, queue) {
            if at < end && !gather.expect(at.max(start) - start, &mut places) {
                break;
            }
        }
        (!places.is_empty()).then_some(places)
    }

    /// Where the memory of the requests ends.
    pub(crate) fn end(&self, queue: &ReceiveQueue) -> u64 {
        self.boundary_from(u64::MAX, queue)
    }

    /// Is it known that a message ends here? Mostly it is the first that does.
    #[inline]
    pub(crate) fn is_end(&self, position: u64) -> bool {
        self.ends.first() == Some(&position) || self.ends.binary_search(&position).is_ok()
    }

    /// Is this where a request begins or ends anyway, whether a message ends
    /// here or not?
    pub(crate) fn is_boundary(&self, position: u64, queue: &ReceiveQueue) -> bool {
        self.boundary_from(position, queue) == position
    }

    /// The first place from this position on where a request begins or ends; where there is
    /// none, the last in front of it.
    fn boundary_from(&self, position: u64, queue: &ReceiveQueue) -> u64 {
        let extents = self.extents_to(0, queue);
        let in_front = extents.take_while(|extent| extent.start < position);
        in_front.last().map_or(self.front, |extent| extent.end)
    }

    /// What each request covers of the stream, as far as is known: all those that reach beyond
    /// this position, and maybe some in front of it.
    #[inline]
    pub(super) fn extents_to<'a>(
        &self,
        position: u64,
        queue: &'a ReceiveQueue,
    ) -> impl Iterator<Item = Extent<'a>> {
        let near = self.front + u64::from(self.near.bytes);
        let (from, mut next) =
            if near <= position { (self.near.requests, near) } else { (0, self.front) };
        let mut ends = self.ends.get(self.known_ends(next)..).unwrap_or_default().iter().copied();
        let mut message_end = ends.next().unwrap_or(u64::MAX);
        queue.range(from as usize).map(move |request| {
            while message_end <= next {
                message_end = ends.next().unwrap_or(u64::MAX);
            }
            let end = message_end.min(next + u64::from(request.gather.len()));
            let start = core::mem::replace(&mut next, end);
            Extent { start, end, gather: &request.gather }
        })
    }

    /// What is looked for next is from here on: a batch of messages may fill many requests
    /// before the first of them is done.
    pub(crate) fn seek(&mut self, position: u64, queue: &ReceiveQueue) {
        let mut at = self.front + u64::from(self.near.bytes);
        if at > position {
            (self.near, at) = (Near::FIRST, self.front);
        }
        let mut ends = self.ends.get(self.known_ends(at)..).unwrap_or_default();
        for request in queue.range(self.near.requests as usize) {
            let full = at + u64::from(request.gather.len());
            let end = match ends.split_first() {
                Some((end, rest)) if *end <= full => {
                    ends = rest;
                    *end
                }
                _ => full,
            };
            if end > position {
                break;
            }
            at = end;
            self.near.requests += 1;
        }
        self.near.bytes = (at - self.front) as u32;
    }

    /// How many ends of messages are known up to this position.
    #[inline]
    fn known_ends(&self, position: u64) -> usize {
        match self.ends.last() {
            Some(last) if *last > position => self.ends.partition_point(|end| *end <= position),
            _ => self.ends.len(),
        }
    }

    /// What is known of this position, or of what is in front of it, was changed.
    fn forget_near(&mut self, position: u64) {
        if position <= self.front + u64::from(self.near.bytes) {
            self.near = Near::FIRST;
        }
    }

    /// A message ends here: mostly behind all others.
    pub(crate) fn add_end(&mut self, position: u64) {
        if position <= self.front {
            return;
        }
        if self.ends.last().is_none_or(|last| *last < position) {
            self.ends.push(position);
            self.forget_near(position);
            return;
        }
        if let Err(index) = self.ends.binary_search(&position) {
            self.ends.insert(index, position);
            self.forget_near(position);
        }
    }

    /// This word came with the end of a message. The first one stays, as its bytes do.
    pub(crate) fn add_word(&mut self, end: u64, word: u32) {
        if end <= self.front {
            return; // It was told with its message.
        }
        let words = &mut self.words.get_or_insert_default().0;
        if let Err(index) = words.binary_search_by_key(&end, |(end, _)| *end) {
            words.insert(index, (end, word));
        }
    }

    /// The word of the message that ends here, once; those in front of it are over.
    pub(crate) fn take_word(&mut self, end: u64) -> Option<u32> {
        let words = &mut self.words.as_deref_mut()?.0;
        let behind = words.partition_point(|(at, _)| *at <= end);
        let last = words.drain(..behind).next_back();
        last.filter(|(at, _)| *at == end).map(|(_, word)| word)
    }

    /// No message ends here after all.
    pub(crate) fn remove_end(&mut self, position: u64) {
        if let Ok(index) = self.ends.binary_search(&position) {
            self.ends.remove(index);
            self.forget_near(position);
        }
    }

    /// Nothing is known of what is behind this position.
    pub(crate) fn forget_behind(&mut self, position: u64) {
        let known = self.ends.partition_point(|end| *end <= position);
        self.ends.truncate(known);
        self.forget_near(position);
        if let Some(words) = &mut self.words {
            words.0.retain(|(end, _)| *end <= position);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Piece;
    use landfall_placement::RegionId;
    use proptest::prelude::*;

    /// The same, searched from the first request on.
    fn anew(layout: &Layout) -> Layout {
        let ends = layout.ends.clone();
        Layout { front: layout.front, ends, words: None, near: Near::FIRST }
    }

    proptest! {
        /// Whatever is learnt, forgotten and finished: where a search begins makes no difference.
        #[test]
        fn a_search_that_begins_near_finds_what_one_from_the_front_finds(
            steps in prop::collection::vec((0u8..6, 0u64..60), 1..120),
        ) {
            let (mut layout, mut queue) = (Layout::new(1), ReceiveQueue::new(1_000));
            for (nth, (step, value)) in (0u64..).zip(steps) {
                let position = layout.front + value;
                match step {
                    0 => layout.add_end(position),
                    1 => layout.remove_end(position),
                    2 => layout.forget_behind(position),
                    3 => layout.seek(position, &queue),
                    4 => if let Some(front) = layout.front_end(&queue) {
                        queue.finish((front.end - layout.front) as u32, front.ends_message, None);
                        layout.advance(front);
                    },
                    _ => {
                        let span = RegionId::new(1, 0).span(nth * 1_000, 1 + value as u32 % 20);
                        let gather = Gather::new(&[Piece { key: 0, span }]).expect("it is short");
                        queue.push(nth, gather);
                    }
                }
                let fresh = anew(&layout);
                for from in layout.front..layout.front + 70 {
                    let (mut found, mut expected) = (Spans::new(), Spans::new());
                    let placed = layout.place(from, from + 25, &queue, &mut found);
                    prop_assert_eq!(placed, fresh.place(from, from + 25, &queue, &mut expected));
                    prop_assert_eq!(found.as_slice(), expected.as_slice());
                    prop_assert_eq!(layout.predict(from, &queue), fresh.predict(from, &queue));
                }
            }
        }
    }
}
