//! Tickets of the engine behind the tickets of the wrapper.
//!
//! A unit may leave twice, or much later than the engine sent it. The engine
//! hears that its memory is free once the last copy is out of the driver's hands.

use landfall_placement::Ticket;

/// A unit that the engine sent and that has not left in all its copies.
#[derive(Debug)]
struct Original<T> {
    ticket: Ticket,
    copies: u32,
    note: T,
}

/// All units under way, by index; the generation tells old tickets apart. The
/// wrapper may note something with each.
#[derive(Debug, Default)]
pub(crate) struct Originals<T> {
    slots: Vec<(u32, Option<Original<T>>)>,
    free: Vec<u32>,
}

impl<T> Originals<T> {
    /// The wrapper's ticket for a unit of which so many copies will leave.
    pub(crate) fn insert(&mut self, ticket: Ticket, copies: u32, note: T) -> Ticket {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        let (generation, slot) = &mut self.slots[index as usize];
        *slot = Some(Original { ticket, copies, note });
        Ticket::new(index, *generation)
    }

    /// One copy left. With the last one: the engine's ticket, and what was noted.
    pub(crate) fn one_left(&mut self, ours: Ticket) -> Option<(Ticket, T)> {
        let (generation, slot) = self.slots.get_mut(ours.index() as usize)?;
        let original = slot.as_mut().filter(|_| *generation == ours.generation())?;
        original.copies -= 1;
        if original.copies > 0 {
            return None;
        }
        let original = slot.take()?;
        *generation = generation.wrapping_add(1);
        self.free.push(ours.index());
        Some((original.ticket, original.note))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_hears_of_the_last_copy_only() {
        let mut originals = Originals::default();
        let ours = originals.insert(Ticket::from_raw(77), 2, Some(3));
        assert_eq!(originals.one_left(ours), None);
        assert_eq!(originals.one_left(ours), Some((Ticket::from_raw(77), Some(3))));
        assert_eq!(originals.one_left(ours), None, "invariant 7: stale is harmless");
        let next = originals.insert(Ticket::from_raw(78), 1, None);
        assert_ne!(ours, next);
        assert_eq!(originals.one_left(ours), None);
        assert_eq!(originals.one_left(next), Some((Ticket::from_raw(78), None)));
    }
}
