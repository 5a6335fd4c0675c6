//! A bounded table whose entries are named by index and generation.

use alloc::vec::Vec;

/// Entries in slots that are used again; a slot's generation says how often.
#[derive(Debug)]
pub(crate) struct Table<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    limit: usize,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    entry: Option<T>,
}

impl<T> Table<T> {
    /// An empty table for at most so many entries; memory is taken as it fills.
    pub(crate) const fn new(limit: usize) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), limit }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.len() < self.limit
    }

    /// The index and generation that the next entry gets.
    pub(crate) fn next(&self) -> Option<(u32, u32)> {
        match self.free.last() {
            Some(index) => Some((*index, self.slots[*index as usize].generation)),
            None if self.slots.len() < self.limit => Some((self.slots.len() as u32, 0)),
            None => None,
        }
    }

    /// Keeps an entry; nothing where the table is full.
    pub(crate) fn insert(&mut self, entry: T) -> Option<(u32, u32)> {
        let next = self.next()?;
        if self.free.pop().is_some() {
            self.slots[next.0 as usize].entry = Some(entry);
        } else {
            self.slots.push(Slot { generation: 0, entry: Some(entry) });
        }
        Some(next)
    }

    /// Takes an entry out; its name will mean nothing from now on.
    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let slot = self.slots.get_mut(index as usize)?;
        let entry = slot.entry.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        Some(entry)
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.slots.get(index as usize)?.entry.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slots.get_mut(index as usize)?.entry.as_mut()
    }

    /// The entry of this name, if it still is the same.
    #[inline]
    pub(crate) fn named(&self, index: u32, generation: u32) -> Option<&T> {
        let slot = self.slots.get(index as usize)?;
        if slot.generation == generation { slot.entry.as_ref() } else { None }
    }

    /// The same by the low bits of the generation, which is what fits a ticket.
    #[inline]
    pub(crate) fn named_low(&self, index: u32, generation: u16) -> Option<&T> {
        let slot = self.slots.get(index as usize)?;
        if slot.generation as u16 == generation { slot.entry.as_ref() } else { None }
    }

    pub(crate) fn generation(&self, index: u32) -> u32 {
        self.slots.get(index as usize).map_or(0, |slot| slot.generation)
    }

    /// The indices that are in use, in order.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> + '_ {
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
        assert_eq!(table.remove(a.0), Some('a'));
        assert_eq!(table.remove(a.0), None);
        let c = table.insert('c').unwrap();
        assert_eq!(c.0, a.0, "the slot is used again");
        assert_eq!(table.named(a.0, a.1), None);
        assert_eq!(table.named(c.0, c.1), Some(&'c'));
        assert_eq!(table.named(b.0, b.1), Some(&'b'));
        assert_eq!((table.len(), table.has_room()), (2, false));
    }
}
