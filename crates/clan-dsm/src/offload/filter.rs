//! Is any armed tripwire touched? What almost every burst gets to know, and all
//! that it costs.
//!
//! For 64 neighbouring words there is one page, and only where something is
//! armed. Its *marks* say at which of the words a tripwire begins. Its *tree*
//! says which blocks inside of it are covered by tripwires that began before:
//! one bit for each node of a binary tree, so that all blocks that a word lies in
//! are looked at by one `and`. The pages of the next tier say the same of 64
//! pages each: a long burst skips empty ones, and a long range is a few blocks
//! in a few tiers, never one entry per word.
//!
//! Which memory a tripwire watches, and the names under which tables know parts of it.
//!
//! All names are numbers of 64 bits. A [`WatchedMemory`] is one memory seen in one way
//! (its reads, or its writes). On a track there are words, and *blocks*: block
//! `b` of level `l` is the `2^l` words from `b * 2^l` on. Blocks are numbered
//! like the nodes of a heap, so that one number tells level and place. Six levels
//! make a *tier*; a *page* is what one tier knows of 64 neighbours.

use landfall_placement::assumed;

use super::map::{Cell, Map, Secret, TableView};
use super::tables::TableTotals;
use crate::address::HostId;
use crate::cookie::Access;

/// The tree bits of the blocks that each of 64 neighbours lies in.
static ABOVE: [u128; 64] = {
    let mut above = [0; 64];
    let mut leaf = 0;
    while leaf < 64 {
        let mut level = 0;
        while level < TIER {
            above[leaf] |= 1 << ((64 + leaf) >> level);
            level += 1;
        }
        leaf += 1;
    }
    above
};

/// What is armed, to be asked.
#[derive(Clone, Copy, Debug)]
pub struct Filter<'t> {
    pub(super) marks: TableView<'t, u64>,
    pub(super) trees: TableView<'t, u128>,
    /// Bit `t` is set where tier `t` has a tree.
    pub(super) tiers: u8,
}

impl<'t> Filter<'t> {
    /// The part of the [`Tables`](super::Tables) in this storage that says what is armed.
    #[must_use]
    #[inline]
    pub fn new(
        marks: &'t [Cell<u64>],
        trees: &'t [Cell<u128>],
        totals: &TableTotals,
        secret: Secret,
    ) -> Self {
        let tiers = totals.tiers.used;
        Self { marks: TableView::new(marks, secret), trees: TableView::new(trees, secret), tiers }
    }

    /// The first word from `from` to `last` that a tripwire begins at.
    #[inline]
    pub(super) fn next_start(self, track: WatchedMemory, from: u32, last: u32) -> Option<u32> {
        let (page, last_page) = (from >> TIER, last >> TIER);
        let marks = self.marks_from(track, page, from);
        if marks != 0 {
            return first_of(page, marks).filter(|found| *found <= last);
        }
        if page == last_page { None } else { self.next_start_behind(track, page, last) }
    }

    #[inline(never)]
    fn next_start_behind(self, track: WatchedMemory, page: u32, last: u32) -> Option<u32> {
        let page = self.next_page(track, page, last)?;
        first_of(page, self.marks_of(track, 0, page)).filter(|found| *found <= last)
    }

    /// The first page behind `page`, up to that of the word `last`, that has marks.
    pub(super) fn next_page(self, track: WatchedMemory, page: u32, last: u32) -> Option<u32> {
        let last = last >> TIER;
        if page >= last {
            return None;
        }
        // A page next to it is looked at straight away, more by way of the next tier.
        if page + 1 == last {
            return (self.marks_of(track, 0, last) != 0).then_some(last);
        }
        let mut mask = u64::MAX << ((page + 1) & 63);
        for group in (page + 1) >> TIER..=last >> TIER {
            if let Some(found) = first_of(group, self.marks_of(track, 1, group) & mask) {
                return (found <= last).then_some(found);
            }
            mask = u64::MAX;
        }
        None
    }

    /// The marks of a page at the word `from`, which lies in it, and behind.
    #[inline]
    pub(super) fn marks_from(self, track: WatchedMemory, page: u32, from: u32) -> u64 {
        self.marks_of(track, 0, page) & (u64::MAX << (from & 63))
    }

    #[inline]
    fn marks_of(self, track: WatchedMemory, tier: u32, page: u32) -> u64 {
        self.marks.get(page_key(track, tier, page)).unwrap_or(0)
    }

    /// The blocks that this word lies in and that tripwires cover, by tier.
    #[inline]
    pub(super) fn covers(self, track: WatchedMemory, word: u32) -> impl Iterator<Item = ListKey> {
        let mut tiers = self.tiers;
        let (mut tier, mut tree) = (0, 0u128);
        core::iter::from_fn(move || {
            while tree == 0 {
                if tiers == 0 {
                    return None;
                }
                tier = tiers.trailing_zeros();
                tiers &= tiers - 1;
                tree = self.tree_above(track, tier, word);
            }
            let node = tree.trailing_zeros();
            tree &= tree - 1;
            let level = tier * TIER + TIER - node.max(1).ilog2();
            Some(ListKey::cover(track, level, shifted(word, level)))
        })
    }

    /// Does a tripwire that began before this word cover it?
    #[inline]
    pub(super) fn is_covered(self, track: WatchedMemory, word: u32) -> bool {
        let mut tiers = self.tiers;
        while tiers != 0 {
            if self.tree_above(track, tiers.trailing_zeros(), word) != 0 {
                return true;
            }
            tiers &= tiers - 1;
        }
        false
    }

    #[inline]
    fn tree_above(self, track: WatchedMemory, tier: u32, word: u32) -> u128 {
        let page = shifted(word, (tier + 1) * TIER);
        let leaf = shifted(word, tier * TIER) as usize & 63;
        self.trees.get(page_key(track, tier, page)).unwrap_or(0) & ABOVE[leaf]
    }
}

/// The block of this level that the word lies in.
#[inline]
const fn shifted(word: u32, level: u32) -> u32 {
    (word as u64 >> level) as u32
}

/// The first of the 64 neighbours in a page that is marked.
#[inline]
const fn first_of(page: u32, marks: u64) -> Option<u32> {
    if marks == 0 { None } else { Some(page << TIER | marks.trailing_zeros()) }
}

/// What is armed, to be changed.
#[derive(Debug)]
pub(super) struct FilterMut<'a, 't> {
    pub(super) marks: &'a mut Map<'t, u64>,
    pub(super) trees: &'a mut Map<'t, u128>,
    pub(super) tiers: &'a mut Tiers,
}

/// How many trees each tier has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tiers {
    counts: [u32; TIERS],
    /// Bit `t` is set where tier `t` has any.
    pub(super) used: u8,
}

impl Tiers {
    fn change(&mut self, tier: u32, by: i32) {
        if let Some(count) = self.counts.get_mut(tier as usize) {
            *count = count.wrapping_add_signed(by);
            self.used = self.used & !(1 << tier) | u8::from(*count > 0) << tier;
        }
    }
}

/// Pages that one list may need at most, in each of the two tables.
pub(super) const PAGES_PER_LIST: usize = 2;

impl FilterMut<'_, '_> {
    /// A list has its first tripwire.
    pub(super) fn set(&mut self, key: ListKey) {
        match key.listed() {
            ListPosition::Start { track, word } => self.mark(track, word),
            ListPosition::Cover { track, level, block } => {
                let (tier, page, node) = node_of(level, block);
                if let Some(tree) = self.trees.entry(page_key(track, tier, page)) {
                    if *tree == 0 {
                        self.tiers.change(tier, 1);
                    }
                    *tree |= 1 << node;
                }
            }
        }
    }

    /// A list has lost its last tripwire.
    pub(super) fn clear(&mut self, key: ListKey) {
        match key.listed() {
            ListPosition::Start { track, word } => self.unmark(track, word),
            ListPosition::Cover { track, level, block } => {
                let (tier, page, node) = node_of(level, block);
                let key = page_key(track, tier, page);
                let Some(tree) = assumed(
                    self.trees.get_mut(key),
                    "a list with tripwires is in the tree of its page",
                ) else {
                    return;
                };
                *tree &= !(1 << node);
                if *tree == 0 {
                    self.trees.remove(key);
                    self.tiers.change(tier, -1);
                }
            }
        }
    }

    fn mark(&mut self, track: WatchedMemory, word: u32) {
        for (tier, at) in [(0, word), (1, word >> TIER)] {
            if let Some(marks) = self.marks.entry(page_key(track, tier, at >> TIER)) {
                *marks |= 1 << (at & 63);
            }
        }
    }

    fn unmark(&mut self, track: WatchedMemory, word: u32) {
        for (tier, at) in [(0, word), (1, word >> TIER)] {
            let key = page_key(track, tier, at >> TIER);
            let Some(marks) = assumed(
                self.marks.get_mut(key),
                "a list with tripwires is among the marks of its page",
            ) else {
                return;
            };
            *marks &= !(1 << (at & 63));
            if *marks != 0 {
                return;
            }
            self.marks.remove(key);
        }
    }
}

/// The tier and page that a block belongs to, and its bit in the tree there.
const fn node_of(level: u32, block: u32) -> (u32, u32, u32) {
    let height = TIER - level % TIER;
    let node = 1 << height | block & ((1 << height) - 1);
    (level / TIER, block >> height, node)
}

/// Memory that tripwires watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// An aperture of this host, which others touch.
    Local(u16),
    /// An aperture of another host, which this one touches.
    Remote(HostId, u16),
}

impl Place {
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::Local(slot) => slot as u32,
            Self::Remote(host, slot) => 1 << 28 | (host.number() as u32) << 16 | slot as u32,
        }
    }
}

/// One memory, seen in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WatchedMemory(u32);

impl WatchedMemory {
    /// The tracks that such accesses to a place are seen on: one, or two.
    #[inline]
    pub(super) const fn of(place: u32, access: Access) -> (Self, Option<Self>) {
        let (read, write) = (Self(place << 1), Self(place << 1 | 1));
        match access {
            Access::Read => (read, None),
            Access::Write => (write, None),
            Access::Both => (read, Some(write)),
        }
    }

    #[inline]
    const fn high(self) -> u64 {
        (self.0 as u64) << 34
    }
}

/// Levels of one tier.
pub(super) const TIER: u32 = 6;
/// Tiers that 32 bits of word offset need, with the level of all words.
pub(super) const TIERS: usize = 6;

/// What a list of tripwires is found by: those that begin at a word, or those
/// that cover a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ListKey(pub(super) u64);

/// What a [`ListKey`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListPosition {
    Start { track: WatchedMemory, word: u32 },
    Cover { track: WatchedMemory, level: u32, block: u32 },
}

const START: u64 = 1 << 33;
const WORDS: u64 = 1 << 32;

impl ListKey {
    #[inline]
    pub(super) const fn start(track: WatchedMemory, word: u32) -> Self {
        Self(track.high() | START | word as u64)
    }

    #[inline]
    pub(super) const fn cover(track: WatchedMemory, level: u32, block: u32) -> Self {
        Self(track.high() | WORDS >> level | block as u64)
    }

    pub(super) const fn listed(self) -> ListPosition {
        let track = WatchedMemory((self.0 >> 34) as u32);
        if self.0 & START != 0 {
            return ListPosition::Start { track, word: self.0 as u32 };
        }
        let heap = self.0 & (START - 1);
        let height = match heap.checked_ilog2() {
            Some(height) => height,
            // No key is so: the block of all words has number one.
            None => 0,
        };
        ListPosition::Cover {
            track,
            level: 32 - height,
            block: (heap & ((1 << height) - 1)) as u32,
        }
    }
}

/// What a page is found by.
#[inline]
pub(super) const fn page_key(track: WatchedMemory, tier: u32, page: u32) -> u64 {
    track.high() | 1 << 33 | (tier as u64) << 27 | page as u64
}

/// The fewest blocks that together are the words from `from` to `last`, in order,
/// as level and block: at most two of each level.
pub(super) fn blocks(from: u64, last: u64) -> impl Iterator<Item = (u32, u32)> {
    let mut at = from;
    core::iter::from_fn(move || {
        if at > last || last > u64::from(u32::MAX) {
            return None;
        }
        let level = at.trailing_zeros().min((last - at + 1).ilog2());
        let block = (at >> level) as u32;
        at += 1 << level;
        Some((level, block))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn names_say_what_they_were_made_of(place in 0u32..1 << 29, level in 0u32..=32, word: u32) {
            let (read, write) = WatchedMemory::of(place, Access::Both);
            for track in [read, write.unwrap()] {
                let block = u32::try_from(u64::from(word) >> level).unwrap();
                prop_assert_eq!(
                    ListKey::cover(track, level, block).listed(),
                    ListPosition::Cover { track, level, block }
                );
                prop_assert_eq!(
                    ListKey::start(track, word).listed(),
                    ListPosition::Start { track, word }
                );
                prop_assert!(ListKey::cover(track, level, block).0 != 0);
            }
        }

        #[test]
        fn blocks_are_all_words_once_and_few(from: u32, len in 1u64..1 << 33) {
            let from = u64::from(from);
            let last = (from + len - 1).min(u64::from(u32::MAX));
            let all: Vec<_> = blocks(from, last).collect();
            let mut at = from;
            for (level, block) in &all {
                prop_assert_eq!(u64::from(*block) << level, at);
                at += 1 << level;
            }
            prop_assert_eq!(at, last + 1);
            prop_assert!(all.len() as u32 <= 2 * (last - from + 1).ilog2().max(1));
        }
    }

    #[test]
    fn nothing_has_no_blocks() {
        assert_eq!(blocks(5, 4).count(), 0);
        assert!(blocks(0, u64::from(u32::MAX)).eq([(32, 0)]));
        assert_eq!(blocks(1, u64::from(u32::MAX) - 1).count(), 62);
    }
}
