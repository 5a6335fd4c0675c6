//! Which connection a key belongs to, at constant cost for a million of them.

use alloc::vec;
use alloc::vec::Vec;

/// Key to index: open addressing. Keys are drawn at random by the engine
/// itself, so they are their own hash, and nobody else can make them collide.
/// Key zero means an empty place and belongs to no connection.
#[derive(Debug, Default)]
pub(crate) struct KeyIndex {
    places: Vec<(u32, u32)>,
    len: usize,
}

impl KeyIndex {
    /// The index that this key was entered with.
    #[inline]
    pub(crate) fn get(&self, key: u32) -> Option<u32> {
        if key == 0 || self.places.is_empty() {
            return None;
        }
        let mask = self.places.len() - 1;
        let mut place = key as usize & mask;
        loop {
            match self.places[place] {
                (0, _) => return None,
                (found, index) if found == key => return Some(index),
                _ => place = (place + 1) & mask,
            }
        }
    }

    /// Enters a key that is neither zero nor entered already.
    pub(crate) fn insert(&mut self, key: u32, index: u32) {
        if (self.len + 1) * 2 > self.places.len() {
            self.grow();
        }
        self.len += 1;
        self.put(key, index);
    }

    fn put(&mut self, key: u32, index: u32) {
        let mask = self.places.len() - 1;
        let mut place = key as usize & mask;
        while self.places[place].0 != 0 {
            place = (place + 1) & mask;
        }
        self.places[place] = (key, index);
    }

    fn grow(&mut self) {
        let larger = vec![(0, 0); (self.places.len() * 2).max(16)];
        let old = core::mem::replace(&mut self.places, larger);
        for (key, index) in old.into_iter().filter(|(key, _)| *key != 0) {
            self.put(key, index);
        }
    }

    /// Takes a key out. Those behind it move up, so that no gap breaks a search.
    pub(crate) fn remove(&mut self, key: u32) {
        if self.get(key).is_none() {
            return;
        }
        self.len -= 1;
        let mask = self.places.len() - 1;
        let mut gap = key as usize & mask;
        while self.places[gap].0 != key {
            gap = (gap + 1) & mask;
        }
        let mut place = (gap + 1) & mask;
        while self.places[place].0 != 0 {
            let home = self.places[place].0 as usize & mask;
            // It may move up to the gap if its home is not behind the gap.
            if place.wrapping_sub(home) & mask >= place.wrapping_sub(gap) & mask {
                self.places[gap] = self.places[place];
                gap = place;
            }
            place = (place + 1) & mask;
        }
        self.places[gap] = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        // Few low bits, so that homes collide and wrap around.
        #[test]
        fn it_finds_what_a_map_finds(steps in prop::collection::vec((1u32..8, 0u32..6, any::<bool>()), 0..200)) {
            let mut keys = KeyIndex::default();
            let mut model = BTreeMap::new();
            for (high, low, enters) in steps {
                let key = high << 8 | (low * 3) | 0xf0;
                if enters && !model.contains_key(&key) {
                    keys.insert(key, high);
                    model.insert(key, high);
                } else if !enters {
                    keys.remove(key);
                    model.remove(&key);
                }
                for (key, index) in &model {
                    prop_assert_eq!(keys.get(*key), Some(*index));
                }
                prop_assert_eq!(keys.get(key), model.get(&key).copied());
            }
        }
    }
}
