//! Which entry of a table a key belongs to, at constant cost for a million of them.

use alloc::vec;
use alloc::vec::Vec;
#[expect(deprecated, reason = "core has no other keyed hash, and this one stays what it is")]
use core::hash::SipHasher;
use core::hash::{Hash, Hasher};

/// Key to index: open addressing. Keys are drawn at random by the engine
/// itself, or hashed with a secret, so they are their own hash, and nobody else
/// can make them collide. Key zero means an empty place and belongs to nothing.
#[derive(Clone, Debug, Default)]
pub struct KeyIndex {
    places: Vec<(u32, u32)>,
    len: usize,
}

impl KeyIndex {
    /// The index that this key was entered with.
    #[must_use]
    #[inline]
    pub fn get(&self, key: u32) -> Option<u32> {
        self.find(key, |_| true)
    }

    /// Of the indices that this key was entered with, the one that is meant.
    #[inline]
    pub fn find(&self, key: u32, is_meant: impl Fn(u32) -> bool) -> Option<u32> {
        if key == 0 || self.places.is_empty() {
            return None;
        }
        let mask = self.places.len() - 1;
        let mut place = key as usize & mask;
        loop {
            match self.places[place] {
                (0, _) => return None,
                (found, index) if found == key && is_meant(index) => return Some(index),
                _ => place = (place + 1) & mask,
            }
        }
    }

    /// Enters a key under an index that it does not have. Key zero belongs to
    /// nothing and is not entered.
    pub fn insert(&mut self, key: u32, index: u32) {
        if key == 0 {
            return;
        }
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

    /// Takes a key out.
    pub fn remove(&mut self, key: u32) {
        if let Some(index) = self.get(key) {
            self.remove_entry(key, index);
        }
    }

    /// Takes a key with this index out. Those behind it move up, so that no gap
    /// breaks a search.
    pub fn remove_entry(&mut self, key: u32, index: u32) {
        if self.find(key, |found| found == index).is_none() {
            return;
        }
        self.len -= 1;
        let mask = self.places.len() - 1;
        let mut gap = key as usize & mask;
        while self.places[gap] != (key, index) {
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

/// The key of a keyed hash (SipHash's `k0` and `k1`): anyone who knows it can make keys collide.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HashSecret {
    k0: u64,
    k1: u64,
}

/// The secret is not printed.
impl core::fmt::Debug for HashSecret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("HashSecret")
    }
}

impl HashSecret {
    /// A secret of two random numbers.
    #[must_use]
    pub const fn new(k0: u64, k1: u64) -> Self {
        Self { k0, k1 }
    }

    /// The first half, for a hash function that is not this crate's.
    #[must_use]
    pub const fn k0(self) -> u64 {
        self.k0
    }

    /// The second half.
    #[must_use]
    pub const fn k1(self) -> u64 {
        self.k1
    }
}

/// The same for keys that strangers choose, such as addresses and ports: they
/// are hashed with a secret, so that nobody can make them collide. The index keeps
/// only the hashes; anyone who asks says which of the entries found is meant.
#[derive(Clone)]
pub struct HashIndex {
    secret: HashSecret,
    hashes: KeyIndex,
}

/// The secret is not printed.
impl core::fmt::Debug for HashIndex {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("HashIndex").field("entries", &self.hashes.len).finish_non_exhaustive()
    }
}

impl HashIndex {
    /// An empty index; the secret comes from the engine's seed.
    #[must_use]
    pub fn new(secret: HashSecret) -> Self {
        Self { secret, hashes: KeyIndex::default() }
    }

    /// The hash of a key with the secret, never zero. Who looks up, enters and takes
    /// out one key works it out once.
    #[must_use]
    #[expect(deprecated, reason = "core has no other keyed hash, and this one stays what it is")]
    pub fn hash(&self, key: &impl Hash) -> u32 {
        let mut hasher = SipHasher::new_with_keys(self.secret.k0, self.secret.k1);
        key.hash(&mut hasher);
        (hasher.finish() as u32).max(1)
    }

    /// Of the indices that were entered with this key (or, rarely, with another
    /// of the same hash) the one that is meant.
    #[must_use]
    #[inline]
    pub fn find(&self, key: &impl Hash, is_meant: impl Fn(u32) -> bool) -> Option<u32> {
        self.hashes.find(self.hash(key), is_meant)
    }

    /// Enters an index under a key that it is not entered with.
    pub fn insert(&mut self, key: &impl Hash, index: u32) {
        self.hashes.insert(self.hash(key), index);
    }

    /// Takes an index out that was entered under this key.
    pub fn remove(&mut self, key: &impl Hash, index: u32) {
        self.hashes.remove_entry(self.hash(key), index);
    }

    /// [`HashIndex::find`] for a key whose [`HashIndex::hash`] is known.
    #[must_use]
    #[inline]
    pub fn find_hashed(&self, hash: u32, is_meant: impl Fn(u32) -> bool) -> Option<u32> {
        self.hashes.find(hash, is_meant)
    }

    /// [`HashIndex::insert`] for a key whose hash is known.
    pub fn insert_hashed(&mut self, hash: u32, index: u32) {
        self.hashes.insert(hash, index);
    }

    /// [`HashIndex::remove`] for a key whose hash is known.
    pub fn remove_hashed(&mut self, hash: u32, index: u32) {
        self.hashes.remove_entry(hash, index);
    }

    /// Was nothing entered, or all taken out again?
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.hashes.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_placement::Random;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

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

        #[test]
        fn one_key_may_have_several_indices(steps in prop::collection::vec((1u32..4, 0u32..6, any::<bool>()), 0..200)) {
            let mut keys = KeyIndex::default();
            let mut model = BTreeSet::new();
            for (key, index, enters) in steps {
                if enters && model.insert((key, index)) {
                    keys.insert(key, index);
                } else if !enters {
                    keys.remove_entry(key, index);
                    model.remove(&(key, index));
                }
                for (key, index) in (1..4).flat_map(|key| (0..6).map(move |index| (key, index))) {
                    let found = keys.find(key, |found| found == index);
                    prop_assert_eq!(found.is_some(), model.contains(&(key, index)));
                }
            }
        }
    }

    /// Steps, not time: how many places are looked at.
    fn steps(keys: &KeyIndex, key: u32) -> usize {
        let mask = keys.places.len() - 1;
        let home = key as usize & mask;
        (0..).find(|n| keys.places[(home + n) & mask].0 == key).unwrap() + 1
    }

    #[test]
    fn a_million_keys_are_found_in_as_few_steps_as_a_thousand() {
        for count in [1_000, 1_000_000] {
            let mut random = Random::from_number(7);
            let mut keys = KeyIndex::default();
            let mut all = Vec::new();
            for index in 0..count {
                let key = random.next_u32().max(1);
                if keys.get(key).is_none() {
                    keys.insert(key, index);
                    all.push(key);
                }
            }
            // Knuth 6.4: half full, 1.5 steps on average.
            let steps: usize = all.iter().map(|key| steps(&keys, *key)).sum();
            assert!(steps <= all.len() * 8 / 5, "{steps} steps for {} keys", all.len());
        }
    }

    #[test]
    fn what_strangers_choose_is_found() {
        let mut addresses = HashIndex::new(HashSecret::new(1, 2));
        let known = |index: u32| (index % 2, [10, 0, (index / 512) as u8, (index / 2) as u8]);
        for index in 0..1_000 {
            addresses.insert(&known(index), index);
        }
        for index in (0..1_000).step_by(3) {
            addresses.remove(&known(index), index);
        }
        for index in 0..1_000 {
            let key = known(index);
            let found = addresses.find(&key, |other| known(other) == key);
            assert_eq!(found, (index % 3 != 0).then_some(index));
            let hash = addresses.hash(&key);
            assert_eq!(addresses.find_hashed(hash, |other| known(other) == key), found);
            addresses.remove_hashed(hash, index);
        }
        assert!(addresses.is_empty());
        addresses.insert_hashed(addresses.hash(&known(5)), 5);
        assert_eq!(addresses.find(&known(5), |_| true), Some(5));
    }

    #[test]
    fn key_zero_belongs_to_nothing() {
        let mut keys = KeyIndex::default();
        keys.insert(0, 7);
        assert_eq!(keys.get(0), None);
        assert_eq!(keys.len, 0);
    }

    #[test]
    fn the_places_of_an_index_are_twice_its_keys_at_least() {
        let mut keys = KeyIndex::default();
        for (key, places) in (1..=17).zip([[16; 8].as_slice(), &[32; 8], &[64]].concat()) {
            keys.insert(key, key);
            assert_eq!(keys.places.len(), places, "{key} keys");
        }
        // Places of keys that were taken out are free.
        (1..=17).for_each(|key| keys.remove(key));
        (1..=32).for_each(|key| keys.insert(key, key));
        assert_eq!((keys.len, keys.places.len()), (32, 64));
    }

    /// The vector of eight bytes of SipHash's authors (`vectors.h` of the reference).
    #[test]
    fn keys_are_hashed_by_siphash_2_4_with_both_halves_of_the_secret() {
        let secret = HashSecret::new(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        let key = u64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(HashIndex::new(secret).hash(&key), 0x9a93_2462);
        assert_eq!((secret.k0(), secret.k1()), (0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908));
    }

    #[test]
    fn a_secret_is_not_printed() {
        let secret = HashSecret::new(4_711, 815);
        assert_eq!(std::format!("{secret:?}"), "HashSecret");
        let mut index = HashIndex::new(secret);
        assert!(index.is_empty());
        index.insert(&7, 1);
        assert!(!index.is_empty());
        assert_eq!(std::format!("{index:?}"), "HashIndex { entries: 1, .. }");
    }
}
