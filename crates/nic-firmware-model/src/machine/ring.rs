//! A queue of fixed length, and the storage of all tables: borrowed on an adapter, owned on a
//! host.
//!
//! Content-addressable memory: asked for a key, it answers in one step.

use core::ops::{Deref, DerefMut};

/// First in, first out, and never more than there is storage for.
#[derive(Debug)]
pub struct Ring<'s, T> {
    places: Store<'s, Option<T>>,
    head: usize,
    len: usize,
}

impl<'s, T: Copy> Ring<'s, T> {
    /// An empty ring in this storage.
    #[must_use]
    pub fn new(places: impl Into<Store<'s, Option<T>>>) -> Self {
        Self { places: places.into(), head: 0, len: 0 }
    }

    /// An empty ring for this many, in memory of its own.
    #[cfg(feature = "std")]
    #[must_use]
    pub fn owned(capacity: usize) -> Self {
        Self { places: Store::filled_with(capacity, || None), head: 0, len: 0 }
    }

    /// How many are in it.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Are there none?
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many more fit.
    #[must_use]
    #[inline]
    pub fn room(&self) -> usize {
        self.places.len().saturating_sub(self.len)
    }

    /// How many fit into it at all.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.places.len()
    }

    /// Puts one behind the others. False, and nothing changed, where it is full.
    #[inline]
    pub fn push(&mut self, item: T) -> bool {
        let at = self.index(self.len);
        match self.places.get_mut(at) {
            Some(place) if place.is_none() => {
                *place = Some(item);
                self.len += 1;
                true
            }
            _ => false,
        }
    }

    /// Takes the first.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let item = self.places.get_mut(self.head)?.take()?;
        self.head = self.index(1);
        self.len -= 1;
        Some(item)
    }

    /// The first.
    #[must_use]
    #[inline]
    pub fn front(&self) -> Option<&T> {
        self.get(0)
    }

    /// The one with `nth` before it.
    #[must_use]
    #[inline]
    pub fn get(&self, nth: usize) -> Option<&T> {
        if nth >= self.len {
            return None;
        }
        self.places.get(self.index(nth))?.as_ref()
    }

    /// The one with `nth` before it, to be changed.
    #[inline]
    pub fn get_mut(&mut self, nth: usize) -> Option<&mut T> {
        if nth >= self.len {
            return None;
        }
        let at = self.index(nth);
        self.places.get_mut(at)?.as_mut()
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        for place in self.places.iter_mut() {
            *place = None;
        }
        self.head = 0;
        self.len = 0;
    }

    /// Where the nth of them is; `nth` is at most the capacity.
    #[inline]
    fn index(&self, nth: usize) -> usize {
        let at = self.head + nth;
        if at >= self.places.len() { at - self.places.len() } else { at }
    }
}

/// A table of fixed length, in memory that was handed in.
///
/// On a bare machine that is a slice of a static; where there is an allocator it
/// may own its memory, so that an adapter in a simulation borrows from nobody.
#[derive(Debug)]
pub enum Store<'s, T> {
    /// Somebody else's memory.
    Borrowed(&'s mut [T]),
    /// Its own memory.
    #[cfg(feature = "std")]
    Owned(Box<[T]>),
}

#[cfg(feature = "std")]
impl<T> Store<'_, T> {
    /// This many, each made by `make`.
    #[must_use]
    pub fn filled_with(count: usize, make: impl FnMut() -> T) -> Self {
        Self::Owned(std::iter::repeat_with(make).take(count).collect())
    }
}

impl<'s, T> From<&'s mut [T]> for Store<'s, T> {
    fn from(slice: &'s mut [T]) -> Self {
        Self::Borrowed(slice)
    }
}

impl<T> Deref for Store<'_, T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match self {
            Self::Borrowed(slice) => slice,
            #[cfg(feature = "std")]
            Self::Owned(slice) => slice,
        }
    }
}

impl<T> DerefMut for Store<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::Borrowed(slice) => slice,
            #[cfg(feature = "std")]
            Self::Owned(slice) => slice,
        }
    }
}

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

    /// An empty one for this many entries, in memory of its own.
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
    use std::collections::{BTreeMap, VecDeque};

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

    proptest! {
        #[test]
        fn it_is_a_queue_with_a_bound(
            capacity in 0usize..6,
            steps in proptest::collection::vec(proptest::option::of(any::<u8>()), 0..60),
        ) {
            let mut ring = Ring::<u8>::owned(capacity);
            let mut model = VecDeque::new();
            for step in steps {
                match step {
                    Some(item) => {
                        let fits = model.len() < capacity;
                        prop_assert_eq!(ring.push(item), fits);
                        if fits {
                            model.push_back(item);
                        }
                    }
                    None => prop_assert_eq!(ring.pop(), model.pop_front()),
                }
                prop_assert_eq!((ring.len(), ring.room()), (model.len(), capacity - model.len()));
                for nth in 0..=capacity {
                    prop_assert_eq!(ring.get(nth), model.get(nth));
                }
            }
        }
    }

    #[test]
    fn it_lies_in_memory_that_was_handed_in() {
        let mut places = [None; 2];
        let mut ring = Ring::new(&mut places[..]);
        assert!(ring.push(1) && ring.push(2) && !ring.push(3));
        assert_eq!((ring.pop(), ring.pop(), ring.pop()), (Some(1), Some(2), None));
    }
}
