//! A bounded table whose entries are named by index and generation.

use alloc::vec::Vec;

/// The name of an entry of a [`Table`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryKey {
    /// The slot of the entry.
    pub index: u32,
    /// How often the slot was used before.
    pub generation: u32,
}

/// Entries in slots that are used again; a slot's generation says how often, so
/// that the name of an entry that is gone means nothing.
#[derive(Clone, Debug)]
pub struct Table<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    limit: usize,
}

#[derive(Clone, Debug)]
struct Slot<T> {
    generation: u32,
    entry: Option<T>,
}

impl<T> Table<T> {
    /// An empty table for at most this many entries; memory is taken as it fills.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), limit }
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Are there none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Would one more fit?
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.len() < self.limit
    }

    /// The key that the next entry gets; nothing where the table is full.
    #[must_use]
    pub fn next(&self) -> Option<EntryKey> {
        match self.free.last() {
            Some(&index) => {
                Some(EntryKey { index, generation: self.slots[index as usize].generation })
            }
            None if self.slots.len() < self.limit => {
                Some(EntryKey { index: self.slots.len() as u32, generation: 0 })
            }
            None => None,
        }
    }

    /// Keeps an entry and returns its key. A full table forgets the entry and
    /// gives nothing: ask [`Table::has_room`] before.
    pub fn insert(&mut self, entry: T) -> Option<EntryKey> {
        let next = self.next()?;
        if self.free.pop().is_some() {
            self.slots[next.index as usize].entry = Some(entry);
        } else {
            self.slots.push(Slot { generation: 0, entry: Some(entry) });
        }
        Some(next)
    }

    /// Takes an entry out; its name will mean nothing from now on.
    pub fn remove(&mut self, index: u32) -> Option<T> {
        let slot = self.slots.get_mut(index as usize)?;
        let entry = slot.entry.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        Some(entry)
    }

    /// The entry that is in this slot now, whatever its generation.
    #[must_use]
    #[inline]
    pub fn get(&self, index: u32) -> Option<&T> {
        self.slots.get(index as usize)?.entry.as_ref()
    }

    /// The same, to be changed.
    #[must_use]
    #[inline]
    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slots.get_mut(index as usize)?.entry.as_mut()
    }

    /// The entry of this name, if it still is the same.
    #[must_use]
    #[inline]
    pub fn named(&self, index: u32, generation: u32) -> Option<&T> {
        let slot = self.slots.get(index as usize)?;
        if slot.generation == generation { slot.entry.as_ref() } else { None }
    }

    /// The same, to be changed.
    #[must_use]
    #[inline]
    pub fn named_mut(&mut self, index: u32, generation: u32) -> Option<&mut T> {
        let slot = self.slots.get_mut(index as usize)?;
        if slot.generation == generation { slot.entry.as_mut() } else { None }
    }

    /// The same by the low bits of the generation, where a name has room for no
    /// more, as in a ticket.
    #[must_use]
    #[inline]
    pub fn named_low(&self, index: u32, generation: u16) -> Option<&T> {
        let slot = self.slots.get(index as usize)?;
        if slot.generation as u16 == generation { slot.entry.as_ref() } else { None }
    }

    /// The key of what is in this slot now.
    #[must_use]
    pub fn key(&self, index: u32) -> EntryKey {
        EntryKey { index, generation: self.generation(index) }
    }

    /// The generation that a slot is in; zero where there is no such slot yet.
    #[must_use]
    pub fn generation(&self, index: u32) -> u32 {
        self.slots.get(index as usize).map_or(0, |slot| slot.generation)
    }

    /// The indices that are in use, in ascending order.
    pub fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        let used = |(index, slot): (usize, &Slot<T>)| slot.entry.is_some().then_some(index as u32);
        self.slots.iter().enumerate().filter_map(used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_name_means_nothing() {
        let mut table = Table::new(2);
        let a = table.insert('a').unwrap();
        let b = table.insert('b').unwrap();
        assert_eq!(table.insert('c'), None, "it is full");
        assert_eq!(table.remove(a.index), Some('a'));
        assert_eq!(table.remove(a.index), None);
        let c = table.insert('c').unwrap();
        assert_eq!(c.index, a.index, "the slot is used again");
        assert_eq!(table.named(a.index, a.generation), None);
        assert_eq!(table.named(c.index, c.generation), Some(&'c'));
        assert_eq!(table.named(b.index, b.generation), Some(&'b'));
        assert_eq!(table.named_mut(a.index, a.generation), None);
        assert_eq!(table.named_mut(c.index, c.generation), Some(&mut 'c'));
        assert!(table.indices().eq([a.index, b.index]));
        assert_eq!((table.len(), table.has_room()), (2, false));
    }

    #[test]
    fn the_next_key_is_the_one_that_an_entry_gets() {
        let mut table = Table::new(2);
        assert!(table.is_empty() && table.has_room());
        for _ in 0..2 {
            let next = table.next();
            assert!(next.is_some() && table.insert(()) == next);
        }
        assert!(!table.is_empty() && !table.has_room() && table.next().is_none());
        table.remove(0);
        assert_eq!(table.next(), Some(EntryKey { index: 0, generation: 1 }));
        table.remove(1);
        assert!(table.is_empty());
    }

    #[test]
    fn a_slot_says_what_it_holds_and_how_often_it_was_used_before() {
        let mut table = Table::new(1);
        for n in 0..3 {
            assert_eq!(table.insert(n), Some(EntryKey { index: 0, generation: n }));
            assert_eq!(
                (table.generation(0), table.key(0)),
                (n, EntryKey { index: 0, generation: n })
            );
            *table.get_mut(0).unwrap() += 10;
            assert_eq!(table.get(0), Some(&(n + 10)));
            assert_eq!(table.remove(0), Some(n + 10));
            assert_eq!(table.get(0), None);
            assert_eq!(table.get_mut(0), None);
        }
        assert_eq!((table.generation(7), table.get(7)), (0, None), "there is no such slot");
    }

    #[test]
    fn a_short_name_is_the_low_half_of_the_generation() {
        let mut table = Table::new(1);
        for _ in 0..0x1_0002 {
            table.insert('a');
            table.remove(0);
        }
        table.insert('b');
        assert_eq!(table.generation(0), 0x1_0002);
        assert_eq!([1, 2, 3].map(|low| table.named_low(0, low)), [None, Some(&'b'), None]);
    }
}
