//! Content-addressable memory: asked for a key, it answers in one step.

use super::ring::Store;

/// Entries of fixed number, found by their keys.
///
/// The hardware compares all keys at once; here they lie in order.
#[derive(Debug)]
pub struct Cam<'s, K, V> {
    entries: Store<'s, Option<(K, V)>>,
    len: usize,
}

impl<'s, K: Copy + Ord, V: Copy> Cam<'s, K, V> {
    /// How many entries the CAM of a CLAN adapter has.
    pub const CLAN: usize = 4096;

    /// An empty one in this storage.
    #[must_use]
    pub fn new(entries: impl Into<Store<'s, Option<(K, V)>>>) -> Self {
        Self { entries: entries.into(), len: 0 }
    }

    /// An empty one for so many entries, in memory of its own.
    #[cfg(feature = "std")]
    #[must_use]
    pub fn owned(capacity: usize) -> Self {
        Self { entries: Store::filled_with(capacity, || None), len: 0 }
    }

    /// Where a key is, or would be.
    fn find(&self, key: K) -> Result<usize, usize> {
        let known = self.entries.get(..self.len).unwrap_or(&[]);
        // A place below `len` is never empty.
        known.binary_search_by(|entry| entry.as_ref().map_or(key, |(other, _)| *other).cmp(&key))
    }

    /// What belongs to a key.
    #[must_use]
    pub fn get(&self, key: K) -> Option<V> {
        let at = self.find(key).ok()?;
        self.entries.get(at)?.map(|(_, value)| value)
    }

    /// The first entry whose key is not less.
    #[must_use]
    pub fn first_from(&self, key: K) -> Option<(K, V)> {
        let at = self.find(key).unwrap_or_else(|at| at);
        *self.entries.get(..self.len)?.get(at)?
    }

    /// Enters a value under a key, or replaces it. False, and nothing changed,
    /// where there is no room.
    pub fn insert(&mut self, key: K, value: V) -> bool {
        match self.find(key) {
            Ok(at) => {
                if let Some(entry) = self.entries.get_mut(at) {
                    *entry = Some((key, value));
                }
                true
            }
            Err(at) => {
                let Some(moved) = self.entries.get_mut(at..=self.len) else { return false };
                let mut carried = Some((key, value));
                moved.iter_mut().for_each(|place| core::mem::swap(place, &mut carried));
                self.len += 1;
                true
            }
        }
    }

    /// Removes a key.
    pub fn remove(&mut self, key: K) -> Option<V> {
        let at = self.find(key).ok()?;
        let moved = self.entries.get_mut(at..self.len)?;
        let mut carried = None;
        moved.iter_mut().rev().for_each(|place| core::mem::swap(place, &mut carried));
        self.len -= 1;
        carried.map(|(_, value)| value)
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Are there none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        for entry in self.entries.iter_mut() {
            *entry = None;
        }
        self.len = 0;
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn it_is_a_map_with_a_bound(
            capacity in 0usize..8,
            steps in proptest::collection::vec((0u8..12, proptest::option::of(any::<u8>())), 0..80),
        ) {
            let mut cam = Cam::<u8, u8>::owned(capacity);
            let mut model = BTreeMap::new();
            for (key, step) in steps {
                match step {
                    Some(value) => {
                        let fits = model.contains_key(&key) || model.len() < capacity;
                        prop_assert_eq!(cam.insert(key, value), fits);
                        if fits {
                            model.insert(key, value);
                        }
                    }
                    None => prop_assert_eq!(cam.remove(key), model.remove(&key)),
                }
                prop_assert_eq!(cam.len(), model.len());
                for key in 0..13 {
                    prop_assert_eq!(cam.get(key), model.get(&key).copied());
                    let from = model.range(key..).next().map(|(key, value)| (*key, *value));
                    prop_assert_eq!(cam.first_from(key), from);
                }
            }
        }
    }
}
