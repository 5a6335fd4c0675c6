//! A bounded table of things that are under way with a driver.

use alloc::boxed::Box;
use alloc::vec::Vec;

use landfall_placement::Ticket;

/// Slots with generations; the storage is made once.
#[derive(Debug)]
pub(super) struct Slots<T> {
    slots: Box<[(u32, Option<T>)]>,
    free: Vec<u32>,
}

impl<T: Copy> Slots<T> {
    pub(super) fn new(bound: usize) -> Self {
        Self {
            slots: (0..bound).map(|_| (0, None)).collect(),
            free: (0..bound as u32).rev().collect(),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keeps a thing until its ticket comes back.
    #[inline]
    pub(super) fn insert(&mut self, thing: T) -> Option<Ticket> {
        let index = self.free.pop()?;
        let (generation, slot) = self.slots.get_mut(index as usize)?;
        *slot = Some(thing);
        Some(Ticket::new(index, *generation))
    }

    #[inline]
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<T> {
        let (generation, slot) = self.slots.get_mut(ticket.index() as usize)?;
        if *generation != ticket.generation() {
            return None;
        }
        let thing = slot.take()?;
        *generation = generation.wrapping_add(1);
        self.free.push(ticket.index());
        Some(thing)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|(_, slot)| slot.as_ref())
    }
}
