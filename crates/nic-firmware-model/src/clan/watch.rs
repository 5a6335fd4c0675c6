//! The tripwires of an adapter: which words somebody watches, in a content-addressable
//! memory.
//!
//! The CAM compares addresses of words. A range of words is a few blocks of powers of
//! two, each of which is one entry of which some bits do not matter; so a tripwire takes
//! one entry for one word, and at most 62 for any range.

use crate::machine::{Cam, Store};

/// What the CAM compares: how many low bits do not matter, the aperture, and the others.
pub type Key = (u8, u16, u32);

/// The words that one tripwire watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words {
    /// The aperture.
    pub slot: u16,
    /// The first word.
    pub first: u32,
    /// The last word.
    pub last: u32,
}

impl Words {
    /// The fewest blocks that together are these words.
    fn blocks(self) -> impl Iterator<Item = Key> {
        let (mut at, last) = (u64::from(self.first), u64::from(self.last));
        core::iter::from_fn(move || {
            if at > last {
                return None;
            }
            let longest = (last - at).saturating_add(1).checked_ilog2().unwrap_or(0);
            let level = at.trailing_zeros().min(longest);
            let key = (level as u8, self.slot, shifted(at, level));
            at += 1 << level;
            Some(key)
        })
    }
}

const fn shifted(word: u64, level: u32) -> u32 {
    (word >> level) as u32
}

/// The tripwires that an adapter was told of.
#[derive(Debug)]
pub struct Watched<'s> {
    /// How many tripwires share a block.
    cam: Cam<'s, Key, u16>,
    /// What each tripwire watches.
    wires: Store<'s, Option<Words>>,
    /// Bit `level` is set where a block of it may be watched.
    levels: u64,
}

impl<'s> Watched<'s> {
    /// None yet.
    #[must_use]
    pub fn new(cam: Cam<'s, Key, u16>, wires: impl Into<Store<'s, Option<Words>>>) -> Self {
        Self { cam, wires: wires.into(), levels: 0 }
    }

    /// Watches words for a tripwire, which watches nothing else any more. False, and it
    /// watches nothing, where there is no room.
    pub fn watch(&mut self, number: u32, words: Words) -> bool {
        self.forget(number);
        let Some(wire) = self.wires.get_mut(number as usize) else { return false };
        for (entered, key) in words.blocks().enumerate() {
            let shared = self.cam.get(key).unwrap_or(0);
            let more = shared.checked_add(1);
            if !more.is_some_and(|more| self.cam.insert(key, more)) {
                for key in words.blocks().take(entered) {
                    self.release(key);
                }
                return false;
            }
            self.levels |= 1 << key.0;
        }
        *wire = Some(words);
        true
    }

    /// A tripwire watches nothing any more.
    pub fn forget(&mut self, number: u32) {
        let wire = self.wires.get_mut(number as usize);
        let Some(words) = wire.and_then(Option::take) else { return };
        for key in words.blocks() {
            self.release(key);
        }
    }

    fn release(&mut self, key: Key) {
        match self.cam.get(key) {
            Some(shared) if shared > 1 => {
                self.cam.insert(key, shared - 1);
            }
            _ => {
                self.cam.remove(key);
            }
        }
        if self.cam.is_empty() {
            self.levels = 0;
        }
    }

    /// Does anybody watch one of these words? The hardware compares each word with
    /// all entries as it passes.
    #[must_use]
    pub fn is_touched(&self, words: Words) -> bool {
        let Words { slot, first, last } = words;
        let mut levels = self.levels;
        while levels != 0 {
            let level = levels.trailing_zeros();
            levels &= levels - 1;
            let (from, to) = (shifted(first.into(), level), shifted(last.into(), level));
            let found = self.cam.first_from((level as u8, slot, from));
            if found.is_some_and(|(key, _)| key <= (level as u8, slot, to)) {
                return true;
            }
        }
        false
    }

    /// How many entries are taken.
    #[must_use]
    pub fn len(&self) -> usize {
        self.cam.len()
    }

    /// Is nothing watched?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cam.is_empty()
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.cam.clear();
        self.wires.fill(None);
        self.levels = 0;
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words() -> impl Strategy<Value = Words> {
        let near = (0u16..3, 0u32..40, 0u32..40);
        let far = (0u16..3, any::<u32>(), any::<u32>());
        prop_oneof![near, far].prop_map(|(slot, a, b)| Words {
            slot,
            first: a.min(b),
            last: a.max(b),
        })
    }

    proptest! {
        #[test]
        fn it_sees_what_a_list_sees(
            room in 0usize..40,
            steps in proptest::collection::vec((0u32..8, proptest::option::of(words())), 0..40),
            asked in proptest::collection::vec(words(), 0..40),
        ) {
            let mut watched = Watched::new(Cam::owned(room), Store::filled_with(6, || None));
            let mut list = [None; 8];
            for (number, step) in steps {
                match step {
                    Some(words) => {
                        let fits = watched.watch(number, words);
                        prop_assert!(!fits || number < 6);
                        list[number as usize] = fits.then_some(words);
                    }
                    None => {
                        watched.forget(number);
                        list[number as usize] = None;
                    }
                }
                prop_assert!(watched.len() <= room);
                prop_assert_eq!(watched.is_empty(), list.iter().all(Option::is_none));
                for words in &asked {
                    let sees = list.iter().flatten().any(|known| {
                        known.slot == words.slot
                            && known.first <= words.last
                            && words.first <= known.last
                    });
                    prop_assert_eq!(watched.is_touched(*words), sees);
                }
            }
        }
    }

    #[test]
    fn a_word_is_one_entry_and_all_words_are_one() {
        let mut watched = Watched::new(Cam::owned(2), Store::filled_with(3, || None));
        let all = Words { slot: 9, first: 0, last: u32::MAX };
        assert!(watched.watch(0, Words { slot: 9, first: 77, last: 77 }));
        assert!(watched.watch(1, all) && watched.watch(2, all), "an entry is shared");
        assert_eq!(watched.len(), 2);
        assert!(!watched.watch(0, Words { slot: 9, first: 1, last: 6 }), "that takes four");
        assert_eq!(watched.len(), 1, "and then it watches nothing");
    }
}
