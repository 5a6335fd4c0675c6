//! Packets whose pieces lie one after another in a ring: lent as a list, without a
//! copy, or moved to a page when something came in between.

use alloc::vec::Vec;

use landfall_placement::{Span, Spans};

use crate::memory::Pieces;
use crate::packet::{Head, ListId};
use crate::wire::{Key, Parsed};

/// So many packets are gathered at once; more pieces than a list takes go the
/// conventional way.
pub(super) const MOST_OPEN: usize = 8;

/// A packet of which all pieces so far came in order.
#[derive(Debug)]
pub(super) struct Gathered {
    pub(super) key: Key,
    pub(super) first: Parsed,
    pub(super) head: Head,
    /// Each piece as it came, to be read again if the list is given up.
    pub(super) frames: Vec<(Parsed, Span)>,
    /// The pieces reach so far.
    pub(super) filled: u32,
}

/// Lists that were lent, by number.
#[derive(Debug)]
pub(super) struct Lists {
    lists: Vec<Slot>,
    free: Vec<u32>,
    most: usize,
}

#[derive(Debug)]
struct Slot {
    /// Odd while lent.
    generation: u32,
    spans: Spans,
}

impl Lists {
    pub(super) fn new(most: usize) -> Self {
        Self { lists: Vec::new(), free: Vec::new(), most }
    }

    /// A list with these pieces; `None` at the bound, or for too many pieces.
    pub(super) fn lend(&mut self, pieces: impl Iterator<Item = Span>) -> Option<ListId> {
        if self.free.is_empty() {
            if self.lists.len() == self.most {
                return None;
            }
            self.free.push(self.lists.len() as u32);
            self.lists.push(Slot { generation: 0, spans: Spans::new() });
        }
        let index = *self.free.last()?;
        let slot = &mut self.lists[index as usize];
        slot.spans.clear();
        for piece in pieces {
            slot.spans.push(piece).ok()?;
        }
        slot.generation = slot.generation.wrapping_add(1);
        self.free.pop();
        Some(ListId { index, generation: slot.generation })
    }

    pub(super) fn get(&self, id: ListId) -> Option<&[Span]> {
        let slot = self.lists.get(id.index as usize)?;
        (slot.generation == id.generation && id.generation & 1 == 1).then(|| slot.spans.as_slice())
    }

    pub(super) fn give_back(&mut self, id: ListId) -> bool {
        if self.get(id).is_none() {
            return false;
        }
        let slot = &mut self.lists[id.index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.index);
        true
    }
}

/// The payload of a piece, in the frame that lies at `at`.
pub(super) fn payload(parsed: &Parsed, at: Span, skip: u32) -> Span {
    let len = parsed.payload_len.saturating_sub(skip);
    let part = Pieces::one(at).part(u32::from(parsed.payload_at) + skip, len);
    part.iter().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_placement::RegionId;

    #[test]
    fn invariant_7_a_stale_list_names_nothing() {
        let mut lists = Lists::new(2);
        let piece = RegionId::new(1, 1).span(0, 8);
        let first = lists.lend([piece].into_iter()).unwrap();
        assert_eq!(lists.get(first), Some([piece].as_slice()));
        assert!(lists.give_back(first) && !lists.give_back(first));
        assert_eq!(lists.get(first), None);
        let again = lists.lend([piece].into_iter()).unwrap();
        assert!(lists.lend([piece].into_iter()).is_some() && again.index == first.index);
        assert!(lists.lend([piece].into_iter()).is_none(), "at the bound");
        let many = core::iter::repeat_n(piece, Spans::CAPACITY + 1);
        assert!(lists.give_back(again) && lists.lend(many).is_none());
        assert!(lists.lend([piece].into_iter()).is_some(), "a list that failed is not lost");
    }
}
