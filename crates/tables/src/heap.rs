//! The smallest first: a heap whose entries have names, so that each can be
//! moved or taken out. It orders timers by moment and work by what is left.

use alloc::vec::Vec;

const ABSENT: u32 = u32::MAX;

/// A binary heap of (key, index) in which each index occurs at most once.
/// Setting, moving and removing take logarithmic time; memory is bounded by
/// the highest index.
#[derive(Clone, Debug)]
pub struct IndexedHeap<K> {
    entries: Vec<(K, u32)>,
    /// Where each index is among the entries.
    places: Vec<u32>,
}

impl<K: Ord + Copy> IndexedHeap<K> {
    /// An empty heap.
    #[must_use]
    pub const fn new() -> Self {
        Self { entries: Vec::new(), places: Vec::new() }
    }

    /// The smallest key, and whose it is. Of equal keys the lowest index comes first.
    #[must_use]
    #[inline]
    pub fn first(&self) -> Option<(K, u32)> {
        self.entries.first().copied()
    }

    /// The key of an index.
    #[must_use]
    #[inline]
    pub fn key_of(&self, index: u32) -> Option<K> {
        let place = *self.places.get(index as usize)?;
        Some(self.entries.get(place as usize)?.0)
    }

    /// Enters an index, or moves it to another key.
    pub fn set(&mut self, index: u32, key: K) {
        let name = index as usize;
        if self.places.len() <= name {
            self.places.resize(name + 1, ABSENT);
        }
        let place = self.places[name] as usize;
        if let Some(entry) = self.entries.get_mut(place) {
            if entry.0 == key {
                return;
            }
            entry.0 = key;
            let place = self.rise(place);
            self.sink(place);
        } else {
            self.entries.push((key, index));
            self.places[name] = (self.entries.len() - 1) as u32;
            self.rise(self.entries.len() - 1);
        }
    }

    /// Takes an index out; says whether it was in.
    pub fn remove(&mut self, index: u32) -> bool {
        let Some(place) = self.places.get_mut(index as usize) else { return false };
        let place = core::mem::replace(place, ABSENT) as usize;
        if place >= self.entries.len() {
            return false;
        }
        self.entries.swap_remove(place);
        if let Some((_, moved)) = self.entries.get(place) {
            self.places[*moved as usize] = place as u32;
            let place = self.rise(place);
            self.sink(place);
        }
        true
    }

    /// Takes out the first entry whose key is not above `limit`.
    pub fn pop_up_to(&mut self, limit: K) -> Option<(K, u32)> {
        let first = self.first().filter(|(key, _)| *key <= limit)?;
        self.remove(first.1);
        Some(first)
    }

    fn rise(&mut self, mut place: usize) -> usize {
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.entries[parent] <= self.entries[place] {
                break;
            }
            self.swap(parent, place);
            place = parent;
        }
        place
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let left = 2 * place + 1;
            let Some(left_entry) = self.entries.get(left) else { return };
            let right = left + 1;
            let child = match self.entries.get(right) {
                Some(right_entry) if right_entry < left_entry => right,
                _ => left,
            };
            if self.entries[place] <= self.entries[child] {
                return;
            }
            self.swap(place, child);
            place = child;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.entries.swap(a, b);
        self.places[self.entries[a].1 as usize] = a as u32;
        self.places[self.entries[b].1 as usize] = b as u32;
    }
}

impl<K: Ord + Copy> Default for IndexedHeap<K> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn it_orders_as_a_sorted_map_does(steps in prop::collection::vec((0u32..40, 0u64..30, any::<bool>()), 0..300)) {
            let mut heap = IndexedHeap::new();
            let mut model = BTreeMap::new();
            for (index, key, enters) in steps {
                if enters {
                    heap.set(index, key);
                    model.insert(index, key);
                } else {
                    prop_assert_eq!(heap.remove(index), model.remove(&index).is_some());
                }
                let least = model.iter().map(|(index, key)| (*key, *index)).min();
                prop_assert_eq!(heap.first(), least);
                prop_assert_eq!(heap.key_of(index), model.get(&index).copied());
            }
            let mut sorted: std::vec::Vec<_> = model.iter().map(|(index, key)| (*key, *index)).collect();
            sorted.sort_unstable();
            for entry in sorted.into_iter().filter(|(key, _)| *key <= 20) {
                prop_assert_eq!(heap.pop_up_to(20), Some(entry));
            }
            prop_assert_eq!(heap.pop_up_to(20), None);
        }
    }
}
