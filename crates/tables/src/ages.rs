//! Who came first: lists in the order of arrival, at constant cost for each step.

use alloc::vec::Vec;

const END: u32 = u32::MAX;
/// In place of a neighbour, for an index that is in no list.
const UNLISTED: u32 = u32::MAX - 1;

/// The links of lists whose members are indices of a table. Many lists share one
/// set of links; an index is in at most one of them at a time.
///
/// It makes "at the bound the oldest goes" cost the same for one entry and for a
/// million, in the whole table and for each user of it.
#[derive(Clone, Debug, Default)]
pub struct AgeLinks {
    links: Vec<Link>,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    older: u32,
    newer: u32,
}

/// One list: its two ends. What is between them is in an [`AgeLinks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgeList {
    oldest: u32,
    newest: u32,
}

impl AgeList {
    /// A list without members.
    #[must_use]
    pub const fn new() -> Self {
        Self { oldest: END, newest: END }
    }

    /// Who is in it for the longest time.
    #[must_use]
    #[inline]
    pub const fn oldest(&self) -> Option<u32> {
        some(self.oldest)
    }

    /// Who came last.
    #[must_use]
    #[inline]
    pub const fn newest(&self) -> Option<u32> {
        some(self.newest)
    }

    /// Are there no members?
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.oldest == END
    }
}

impl Default for AgeList {
    fn default() -> Self {
        Self::new()
    }
}

impl AgeLinks {
    /// No links yet; memory is bounded by the highest index.
    #[must_use]
    pub const fn new() -> Self {
        Self { links: Vec::new() }
    }

    /// Enters an index as the newest of a list. One that is in a list already
    /// stays where it is.
    #[inline]
    pub fn push(&mut self, list: &mut AgeList, index: u32) {
        self.insert_after(list, list.newest(), index);
    }

    /// Enters an index behind a member of the list, or as the oldest of all. One
    /// that is in a list already stays where it is.
    pub fn insert_after(&mut self, list: &mut AgeList, older: Option<u32>, index: u32) {
        if self.is_listed(index) || index >= UNLISTED {
            return;
        }
        let place = index as usize;
        if self.links.len() <= place {
            self.links.resize(place + 1, Link { older: UNLISTED, newer: UNLISTED });
        }
        let older = older.unwrap_or(END);
        let newer = match self.links.get(older as usize) {
            Some(link) => link.newer,
            None => list.oldest,
        };
        self.links[place] = Link { older, newer };
        self.join(list, older, index);
        self.join(list, index, newer);
    }

    /// Takes an index out of the list that it is in; says whether it was in one.
    #[inline]
    pub fn remove(&mut self, list: &mut AgeList, index: u32) -> bool {
        if !self.is_listed(index) {
            return false;
        }
        let unlisted = Link { older: UNLISTED, newer: UNLISTED };
        let Link { older, newer } = core::mem::replace(&mut self.links[index as usize], unlisted);
        self.join(list, older, newer);
        true
    }

    /// Makes two members neighbours; either may be the end of the list.
    #[inline]
    fn join(&mut self, list: &mut AgeList, older: u32, newer: u32) {
        match self.links.get_mut(older as usize) {
            Some(link) => link.newer = newer,
            None => list.oldest = newer,
        }
        match self.links.get_mut(newer as usize) {
            Some(link) => link.older = older,
            None => list.newest = older,
        }
    }

    /// The member before this one: it came earlier.
    #[must_use]
    #[inline]
    pub fn older(&self, index: u32) -> Option<u32> {
        some(self.links.get(index as usize)?.older)
    }

    /// The member behind this one: it came later.
    #[must_use]
    #[inline]
    pub fn newer(&self, index: u32) -> Option<u32> {
        some(self.links.get(index as usize)?.newer)
    }

    /// Is this index in a list?
    #[must_use]
    #[inline]
    pub fn is_listed(&self, index: u32) -> bool {
        self.links.get(index as usize).is_some_and(|link| link.older != UNLISTED)
    }
}

#[inline]
const fn some(index: u32) -> Option<u32> {
    if index < UNLISTED { Some(index) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn members(links: &AgeLinks, list: &AgeList) -> Vec<u32> {
        let forwards: Vec<_> =
            core::iter::successors(list.oldest(), |index| links.newer(*index)).collect();
        let mut backwards: Vec<_> =
            core::iter::successors(list.newest(), |index| links.older(*index)).collect();
        backwards.reverse();
        assert_eq!(forwards, backwards);
        forwards
    }

    proptest! {
        #[test]
        fn two_lists_are_as_two_queues_are(
            steps in prop::collection::vec((0u32..12, 0usize..2, 0u8..4), 0..200),
        ) {
            let mut links = AgeLinks::new();
            let mut lists = [AgeList::new(); 2];
            let mut model: [Vec<u32>; 2] = Default::default();
            for (index, list, what) in steps {
                let home = model.iter().position(|members| members.contains(&index));
                prop_assert_eq!(links.is_listed(index), home.is_some());
                match (what, home) {
                    (0 | 1, None) => {
                        // Behind the first member, or as the oldest.
                        let older = model[list].first().copied().filter(|_| what == 1);
                        links.insert_after(&mut lists[list], older, index);
                        model[list].insert(usize::from(older.is_some()), index);
                    }
                    (2, _) => {
                        links.push(&mut lists[list], index);
                        if home.is_none() {
                            model[list].push(index);
                        }
                    }
                    (_, Some(home)) => {
                        prop_assert!(links.remove(&mut lists[home], index));
                        model[home].retain(|other| *other != index);
                    }
                    (_, None) => prop_assert!(!links.remove(&mut lists[list], index)),
                }
                for (list, model) in lists.iter().zip(&model) {
                    prop_assert_eq!(&members(&links, list), model);
                    prop_assert_eq!(list.is_empty(), model.is_empty());
                }
            }
        }
    }

    #[test]
    fn an_index_that_cannot_be_is_in_no_list() {
        let (mut links, mut list) = (AgeLinks::new(), AgeList::new());
        for index in [END, UNLISTED] {
            links.push(&mut list, index);
            assert!(list.is_empty() && !links.is_listed(index) && !links.remove(&mut list, index));
        }
    }
}
