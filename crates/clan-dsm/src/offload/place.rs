//! Which memory a tripwire watches, and the names under which tables know parts of it.
//!
//! All names are numbers of 64 bits. A [`Track`] is one memory seen in one way
//! (its reads, or its writes). On a track there are words, and *blocks*: block
//! `b` of level `l` is the `2^l` words from `b * 2^l` on. Blocks are numbered
//! like the nodes of a heap, so that one number tells level and place. Six levels
//! make a *tier*; a *page* is what one tier knows of 64 neighbours.

use crate::address::HostId;
use crate::cookie::Access;

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
pub(super) struct Track(u32);

impl Track {
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
pub(super) enum Listed {
    Start { track: Track, word: u32 },
    Cover { track: Track, level: u32, block: u32 },
}

const START: u64 = 1 << 33;
const WORDS: u64 = 1 << 32;

impl ListKey {
    #[inline]
    pub(super) const fn start(track: Track, word: u32) -> Self {
        Self(track.high() | START | word as u64)
    }

    #[inline]
    pub(super) const fn cover(track: Track, level: u32, block: u32) -> Self {
        Self(track.high() | WORDS >> level | block as u64)
    }

    pub(super) const fn listed(self) -> Listed {
        let track = Track((self.0 >> 34) as u32);
        if self.0 & START != 0 {
            return Listed::Start { track, word: self.0 as u32 };
        }
        let heap = self.0 & (START - 1);
        let height = match heap.checked_ilog2() {
            Some(height) => height,
            // No key is so: the block of all words has number one.
            None => 0,
        };
        Listed::Cover { track, level: 32 - height, block: (heap & ((1 << height) - 1)) as u32 }
    }
}

/// What a page is found by.
#[inline]
pub(super) const fn page_key(track: Track, tier: u32, page: u32) -> u64 {
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
            let (read, write) = Track::of(place, Access::Both);
            for track in [read, write.unwrap()] {
                let block = u32::try_from(u64::from(word) >> level).unwrap();
                prop_assert_eq!(
                    ListKey::cover(track, level, block).listed(),
                    Listed::Cover { track, level, block }
                );
                prop_assert_eq!(
                    ListKey::start(track, word).listed(),
                    Listed::Start { track, word }
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
