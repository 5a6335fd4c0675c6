//! What has changed and was not said yet: each entry once, however often it changed.

use crate::{AgeLinks, AgeList};

/// Indices of entries that changed, each once, in the order of its first change.
///
/// An engine whose adapter keeps a copy of its tables notes here which entries the adapter
/// must be told of, and looks each up when it tells: so the notes are never more than the
/// entries, and of many changes the last is said. Each step costs the same for one entry and
/// for a million; memory is bounded by the highest index.
#[derive(Clone, Debug, Default)]
pub struct ChangeQueue {
    links: AgeLinks,
    list: AgeList,
}

impl ChangeQueue {
    /// Nothing has changed.
    #[must_use]
    pub const fn new() -> Self {
        Self { links: AgeLinks::new(), list: AgeList::new() }
    }

    /// An entry changed. One that waits already keeps its place.
    #[inline]
    pub fn push(&mut self, index: u32) {
        self.links.push(&mut self.list, index);
    }

    /// The entry that waits for the longest time.
    #[must_use]
    #[inline]
    pub const fn first(&self) -> Option<u32> {
        self.list.oldest()
    }

    /// Takes it out: all of it was said.
    #[inline]
    pub fn pop(&mut self) -> Option<u32> {
        let index = self.first()?;
        self.links.remove(&mut self.list, index);
        Some(index)
    }

    /// Nothing has to be said of this entry any more.
    pub fn remove(&mut self, index: u32) {
        self.links.remove(&mut self.list, index);
    }

    /// Does nothing wait?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Nothing has to be said of any entry.
    pub fn clear(&mut self) {
        while self.pop().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn each_change_waits_once_and_in_order(
            steps in prop::collection::vec((0u32..9, 0u8..8), 0..120),
        ) {
            let (mut queue, mut model) = (ChangeQueue::new(), Vec::new());
            for (index, what) in steps {
                match what {
                    0..4 => {
                        queue.push(index);
                        if !model.contains(&index) {
                            model.push(index);
                        }
                    }
                    4 => {
                        queue.remove(index);
                        model.retain(|other| *other != index);
                    }
                    5 if index == 0 => {
                        queue.clear();
                        model.clear();
                    }
                    _ => {
                        let first = (!model.is_empty()).then(|| model.remove(0));
                        prop_assert_eq!(queue.pop(), first);
                    }
                }
                prop_assert_eq!(queue.first(), model.first().copied());
                prop_assert_eq!(queue.is_empty(), model.is_empty());
            }
        }
    }
}
