//! The naive model: all tripwires in a list, each looked at for each word.

use std::collections::VecDeque;
use std::vec::Vec;

use super::{Action, Place, Watch};
use crate::address::TripwireId;
use crate::cookie::Access;

#[derive(Clone, Debug)]
pub(super) struct Wire {
    pub(super) id: TripwireId,
    pub(super) watch: Watch,
    pub(super) is_armed: bool,
    pub(super) has_fired: bool,
    pub(super) is_told: bool,
    pub(super) count: u64,
    /// Which of the sets it is in.
    pub(super) set: Option<usize>,
}

/// How many tripwires there may be, and names in the queue.
pub(super) const ROOM: usize = 24;

/// One firing at one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fired {
    pub(super) id: TripwireId,
    pub(super) word: u32,
    pub(super) tells: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    /// In the order in which they were last armed.
    pub(super) wires: Vec<Wire>,
    /// Also of tripwires that are gone: they take room until they are read.
    pub(super) names: VecDeque<TripwireId>,
    /// A name found no room.
    pub(super) has_lost: bool,
    pub(super) counters: [u64; 4],
    pub(super) bits: [bool; 4],
    /// Of each set, those that have fired, in order.
    pub(super) sets: [VecDeque<TripwireId>; 2],
}

impl Model {
    pub(super) fn watch(&mut self, id: TripwireId, watch: Watch) {
        let (is_armed, has_fired, is_told) = (true, false, false);
        self.wires.push(Wire { id, watch, is_armed, has_fired, is_told, count: 0, set: None });
    }

    pub(super) fn get(&mut self, id: TripwireId) -> Option<&mut Wire> {
        self.wires.iter_mut().find(|wire| wire.id == id)
    }

    pub(super) fn enable(&mut self, id: TripwireId) -> bool {
        let Some(at) = self.wires.iter().position(|wire| wire.id == id) else { return false };
        if !self.wires[at].is_armed {
            let wire = self.wires.remove(at);
            self.wires.push(Wire { is_armed: true, ..wire });
        }
        true
    }

    pub(super) fn remove(&mut self, id: TripwireId) -> bool {
        let before = self.wires.len();
        self.wires.retain(|wire| wire.id != id);
        self.sets.iter_mut().for_each(|set| set.retain(|member| *member != id));
        self.wires.len() < before
    }

    pub(super) fn forget(&mut self, place: Place) {
        let gone = self.wires.iter().filter(|wire| wire.watch.place == place);
        for id in gone.map(|wire| wire.id).collect::<Vec<_>>() {
            self.remove(id);
        }
    }

    pub(super) fn clear(&mut self, id: TripwireId) -> Option<bool> {
        self.sets.iter_mut().for_each(|set| set.retain(|member| *member != id));
        Some(core::mem::take(&mut self.get(id)?.has_fired))
    }

    pub(super) fn pop(&mut self) -> Option<TripwireId> {
        loop {
            let id = self.names.pop_front()?;
            if let Some(wire) = self.get(id) {
                wire.is_told = false;
                return Some(id);
            }
        }
    }

    pub(super) fn touch(&mut self, place: Place, from: u64, to: u64, access: Access) -> Vec<Fired> {
        let mut all = Vec::new();
        for word in from / 8..to.div_ceil(8) {
            for wire in &mut self.wires {
                let Watch { from: first, to: end, action, .. } = wire.watch;
                let (from, to) = (from.max(first).max(word * 8), to.min(end).min(word * 8 + 8));
                let is_meant = wire.watch.place == place && wire.watch.access.hears(access);
                if !wire.is_armed || !is_meant || from >= to {
                    continue;
                }
                wire.count += 1;
                wire.is_armed = !wire.watch.once;
                if let (false, Some(set)) = (wire.has_fired, wire.set) {
                    self.sets[set].push_back(wire.id);
                }
                wire.has_fired = true;
                let mut is_queued = false;
                let tells = action == Action::Event && !wire.is_told;
                match action {
                    Action::State | Action::Event => {}
                    Action::Identifier if wire.is_told => {}
                    Action::Identifier if self.names.len() == ROOM => self.has_lost = true,
                    Action::Identifier => {
                        self.names.push_back(wire.id);
                        is_queued = true;
                    }
                    Action::Bit(number) => self.bits[number as usize] = true,
                    Action::Count(counter) => self.counters[counter as usize] += 1,
                }
                wire.is_told |= action == Action::Event || is_queued;
                all.push(Fired { id: wire.id, word: u32::try_from(word).unwrap(), tells });
            }
        }
        all
    }
}
