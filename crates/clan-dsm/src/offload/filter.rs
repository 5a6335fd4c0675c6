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

use super::map::{Cell, Look, Map, Secret};
use super::place::{ListKey, Listed, TIER, TIERS, Track, page_key};
use super::tables::Totals;

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
    pub(super) marks: Look<'t, u64>,
    pub(super) trees: Look<'t, u128>,
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
        totals: &Totals,
        secret: Secret,
    ) -> Self {
        let tiers = totals.tiers.used;
        Self { marks: Look::new(marks, secret), trees: Look::new(trees, secret), tiers }
    }

    /// The first word from `from` to `last` that a tripwire begins at.
    #[inline]
    pub(super) fn next_start(self, track: Track, from: u32, last: u32) -> Option<u32> {
        let (page, last_page) = (from >> TIER, last >> TIER);
        let marks = self.marks_from(track, page, from);
        if marks != 0 {
            return first_of(page, marks).filter(|found| *found <= last);
        }
        if page == last_page { None } else { self.next_start_behind(track, page, last) }
    }

    #[inline(never)]
    fn next_start_behind(self, track: Track, page: u32, last: u32) -> Option<u32> {
        let page = self.next_page(track, page, last)?;
        first_of(page, self.marks_of(track, 0, page)).filter(|found| *found <= last)
    }

    /// The first page behind `page`, up to that of the word `last`, that has marks.
    pub(super) fn next_page(self, track: Track, page: u32, last: u32) -> Option<u32> {
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
    pub(super) fn marks_from(self, track: Track, page: u32, from: u32) -> u64 {
        self.marks_of(track, 0, page) & (u64::MAX << (from & 63))
    }

    #[inline]
    fn marks_of(self, track: Track, tier: u32, page: u32) -> u64 {
        self.marks.get(page_key(track, tier, page)).unwrap_or(0)
    }

    /// The blocks that this word lies in and that tripwires cover, by tier.
    #[inline]
    pub(super) fn covers(self, track: Track, word: u32) -> impl Iterator<Item = ListKey> {
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
    pub(super) fn is_covered(self, track: Track, word: u32) -> bool {
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
    fn tree_above(self, track: Track, tier: u32, word: u32) -> u128 {
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
            Listed::Start { track, word } => self.mark(track, word),
            Listed::Cover { track, level, block } => {
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
            Listed::Start { track, word } => self.unmark(track, word),
            Listed::Cover { track, level, block } => {
                let (tier, page, node) = node_of(level, block);
                let key = page_key(track, tier, page);
                let Some(tree) = self.trees.get_mut(key) else { return };
                *tree &= !(1 << node);
                if *tree == 0 {
                    self.trees.remove(key);
                    self.tiers.change(tier, -1);
                }
            }
        }
    }

    fn mark(&mut self, track: Track, word: u32) {
        for (tier, at) in [(0, word), (1, word >> TIER)] {
            if let Some(marks) = self.marks.entry(page_key(track, tier, at >> TIER)) {
                *marks |= 1 << (at & 63);
            }
        }
    }

    fn unmark(&mut self, track: Track, word: u32) {
        for (tier, at) in [(0, word), (1, word >> TIER)] {
            let key = page_key(track, tier, at >> TIER);
            let Some(marks) = self.marks.get_mut(key) else { return };
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
