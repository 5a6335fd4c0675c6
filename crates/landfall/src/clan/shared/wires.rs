//! [`Wires`]: which tripwires a touch meets, at a cost that does not grow with their
//! number.

use std::collections::BTreeMap;
use std::ops::Range;

/// Things that lie over ranges of words, by class of length. A range of a class is
/// no longer than that class says, so all that can meet a touch begin near it.
#[derive(Debug)]
pub(super) struct Wires<T> {
    classes: BTreeMap<u32, Class<T>>,
}

/// By first word and number: the first word behind, and what lies there.
type Class<T> = BTreeMap<(u64, u64), (u64, T)>;

impl<T> Default for Wires<T> {
    fn default() -> Self {
        Self { classes: BTreeMap::new() }
    }
}

/// The least power of two that is no shorter; ranges are not empty.
const fn class_of(words: &Range<u64>) -> u32 {
    u64::BITS - (words.end - words.start).saturating_sub(1).leading_zeros()
}

impl<T> Wires<T> {
    /// Adds one, by a number of its own.
    pub(super) fn insert(&mut self, words: &Range<u64>, id: u64, what: T) {
        let class = self.classes.entry(class_of(words)).or_default();
        class.insert((words.start, id), (words.end, what));
    }

    /// Takes it away.
    pub(super) fn remove(&mut self, words: &Range<u64>, id: u64) {
        if let Some(class) = self.classes.get_mut(&class_of(words)) {
            class.remove(&(words.start, id));
            if class.is_empty() {
                self.classes.remove(&class_of(words));
            }
        }
    }

    /// All that lie over one of these words.
    pub(super) fn touched(&self, words: &Range<u64>) -> impl Iterator<Item = &T> {
        self.classes.iter().flat_map(move |(class, wires)| {
            let longest = 1u64.checked_shl(*class).unwrap_or(u64::MAX);
            let first = words.start.saturating_sub(longest - 1);
            wires
                .range((first, 0)..(words.end, 0))
                .filter(|(_, (end, _))| *end > words.start)
                .map(|(_, (_, what))| what)
        })
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = &T> {
        self.classes.values().flat_map(BTreeMap::values).map(|(_, what)| what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every range against every touch, of a small memory.
    #[test]
    fn just_those_are_met_that_overlap() {
        let mut wires = Wires::default();
        let ranges: Vec<_> =
            (0..20u64).flat_map(|start| (start + 1..=20).map(move |end| start..end)).collect();
        for (id, range) in ranges.iter().enumerate() {
            wires.insert(range, id as u64, range.clone());
        }
        for touch in &ranges {
            let mut met: Vec<_> = wires.touched(touch).cloned().collect();
            met.sort_by_key(|range| (range.start, range.end));
            let overlaps = |range: &&Range<u64>| range.start < touch.end && touch.start < range.end;
            let expected: Vec<_> = ranges.iter().filter(overlaps).cloned().collect();
            assert_eq!(met, expected, "touched {touch:?}");
        }
        assert_eq!(wires.all().count(), ranges.len());
        for (id, range) in ranges.iter().enumerate() {
            wires.remove(range, id as u64);
        }
        assert_eq!(wires.all().count(), 0);
    }
}
