//! [`Index`]: from the two ends of a packet to an entry, in storage that
//! somebody else owns.

/// A place of the index: a hash and an entry, or nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pointer {
    hash: u32,
    /// One more than the entry's slot; zero in an empty place.
    slot: u32,
}

/// Open addressing. Half as many entries as places make for short searches; every
/// search is bounded by the number of places.
#[derive(Debug)]
pub(super) struct Index<'a> {
    places: &'a mut [Pointer],
    mask: usize,
}

impl<'a> Index<'a> {
    /// The first places of the storage are used, as many as a power of two has.
    #[inline]
    pub(super) fn new(places: &'a mut [Pointer]) -> Self {
        let used = places.len().checked_ilog2().map_or(0, |log| 1 << log);
        Self { places, mask: usize::wrapping_sub(used, 1) }
    }

    const fn len(&self) -> usize {
        self.mask.wrapping_add(1)
    }

    #[inline]
    fn at(&self, place: usize) -> Pointer {
        self.places.get(place).copied().unwrap_or_default()
    }

    fn set(&mut self, place: usize, pointer: Pointer) {
        if let Some(old) = self.places.get_mut(place) {
            *old = pointer;
        }
    }

    /// Of the slots that were entered with this hash the one that is meant.
    #[inline]
    pub(super) fn find(&self, hash: u32, is_meant: impl Fn(u32) -> bool) -> Option<u32> {
        for n in 0..self.len() {
            let found = self.at((hash as usize).wrapping_add(n) & self.mask);
            if found.slot == 0 {
                return None;
            }
            if found.hash == hash && is_meant(found.slot - 1) {
                return Some(found.slot - 1);
            }
        }
        None
    }

    /// Enters a slot; false where there is no place for it.
    pub(super) fn insert(&mut self, hash: u32, slot: u32) -> bool {
        let places = (0..self.len()).map(|n| (hash as usize).wrapping_add(n) & self.mask);
        let free = places.into_iter().find(|place| self.at(*place).slot == 0);
        let (Some(free), Some(slot)) = (free, slot.checked_add(1)) else { return false };
        self.set(free, Pointer { hash, slot });
        true
    }

    /// Takes a slot out. Those behind it move up, so that no gap breaks a search.
    pub(super) fn remove(&mut self, hash: u32, slot: u32) {
        let wanted = Pointer { hash, slot: slot.wrapping_add(1) };
        let mut places = (0..self.len()).map(|n| (hash as usize).wrapping_add(n) & self.mask);
        let Some(mut gap) = places.find(|place| self.at(*place) == wanted) else { return };
        let start = gap;
        for n in 1..self.len() {
            let place = start.wrapping_add(n) & self.mask;
            let other = self.at(place);
            if other.slot == 0 {
                break;
            }
            // It may move up to the gap if its home is not behind the gap.
            let home = other.hash as usize;
            if place.wrapping_sub(home) & self.mask >= place.wrapping_sub(gap) & self.mask {
                self.set(gap, other);
                gap = place;
            }
        }
        self.set(gap, Pointer::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::vec;

    proptest! {
        // Few hashes, so that homes collide and wrap around; storage may be full,
        // and need not be a power of two.
        #[test]
        fn it_finds_what_a_set_finds(
            room in 0usize..20,
            steps in prop::collection::vec((0u32..9, 0u32..4, any::<bool>()), 0..200),
        ) {
            let mut storage = vec![Pointer::default(); room];
            let mut model = BTreeSet::new();
            for (hash, slot, enters) in steps {
                let hash = hash.wrapping_sub(4);
                let mut index = Index::new(&mut storage);
                let most = index.len();
                if enters && !model.contains(&(hash, slot)) {
                    prop_assert_eq!(index.insert(hash, slot), model.len() < most);
                    if model.len() < most {
                        model.insert((hash, slot));
                    }
                } else if !enters {
                    index.remove(hash, slot);
                    model.remove(&(hash, slot));
                }
                for (hash, slot) in (0..9).flat_map(|hash| (0..4).map(move |slot| (hash, slot))) {
                    let hash = u32::wrapping_sub(hash, 4);
                    let found = index.find(hash, |found| found == slot);
                    prop_assert_eq!(found.is_some(), model.contains(&(hash, slot)));
                }
            }
        }
    }
}
