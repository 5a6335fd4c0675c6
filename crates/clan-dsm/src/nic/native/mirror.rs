//! What an adapter that takes bursts off this host knows, and what it must be told.
//!
//! The tables of this host are the master. What changes is noted entry by entry,
//! so that the notes never are more than the entries.

use alloc::vec::Vec;

use landfall_placement::Serial32;
use landfall_tables::ChangeQueue;

use crate::memory::Memory;
use crate::native::ReceiveWindow;
use crate::offload::{Command, HostProgress};
use crate::tripwire::Tripwires;

/// What is noted of a tripwire.
#[derive(Clone, Copy, Debug, Default)]
struct Wire {
    /// The adapter was told of it, and has not refused.
    is_told: bool,
    /// It had no room for it.
    is_refused: bool,
}

/// What an adapter knows.
#[derive(Debug, Default)]
pub(in crate::nic) struct Mirror {
    /// Slots of apertures that changed.
    slots: ChangeQueue,
    /// Names of groups that it was told of, or is to be told of, and whether it is.
    groups: Vec<(u64, bool)>,
    wires: Vec<Wire>,
    wires_changed: ChangeQueue,
    wires_refused: u32,
    line: HostProgress,
    is_line_changed: bool,
    /// The last fence that is wanted, that it was told, that it answered.
    wanted: Serial32,
    fence_sent: Serial32,
    heard: Serial32,
    /// It watches for all that it was told of once it has answered this one.
    sees_from: Serial32,
    /// Tripwires that fired just now; empty between calls.
    fired: Vec<u32>,
}

impl Mirror {
    // ---- What has changed ----------------------------------------------------

    /// An aperture came, went, or has one key more.
    pub(in crate::nic) fn slot_changed(&mut self, slot: u16) {
        self.slots.push(slot.into());
    }

    /// A group was joined or left.
    pub(in crate::nic) fn group_changed(&mut self, name: u64) {
        match self.groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, is_changed)) => *is_changed = true,
            None => self.groups.push((name, true)),
        }
    }

    /// An aperture went, and with it the groups that lay in it.
    pub(super) fn groups_changed(&mut self) {
        self.groups.iter_mut().for_each(|(_, is_changed)| *is_changed = true);
    }

    /// A tripwire was armed or disarmed.
    pub(in crate::nic) fn wire_changed(&mut self, number: u32) {
        let at = number as usize;
        if self.wires.len() <= at {
            self.wires.resize(at + 1, Wire::default());
        }
        self.wires_changed.push(number);
    }

    /// A tripwire fired: it may be disarmed by that.
    pub(in crate::nic) fn fired(&mut self, number: u32) {
        self.fired.push(number);
    }

    /// Looks which of those that fired are disarmed now.
    pub(in crate::nic) fn settle_fired(&mut self, wires: &mut Tripwires) {
        while let Some(number) = self.fired.pop() {
            if wires.watched_words(number).is_none() {
                self.wire_changed(number);
            }
        }
    }

    /// All that the adapter gave was dealt with up to one more.
    pub(super) const fn seen(&mut self) {
        self.line.seen = self.line.seen.wrapping_add(1);
        self.is_line_changed = true;
    }

    /// How the link is now.
    pub(super) fn line_is(&mut self, session: u32, window: Option<ReceiveWindow>) {
        // What arrives counts the adapter itself; of the host's count it hears together
        // with what the host has seen.
        let edge = |window: Option<ReceiveWindow>| window.map(|window| window.edge);
        let has_changed = edge(self.line.window) != edge(window) || self.line.session != session;
        self.is_line_changed |= has_changed;
        (self.line.session, self.line.window) = (session, window);
    }

    /// The number of the fence behind all that has changed until now.
    pub(super) fn fence(&mut self) -> Serial32 {
        self.wanted = self.fence_sent.plus(1);
        self.wanted
    }

    /// Was it answered?
    pub(super) fn has_heard(&self, fence: Serial32) -> bool {
        !self.heard.precedes(fence)
    }

    /// Does the adapter perhaps not see that a tripwire is touched?
    pub(super) fn is_blind(&self) -> bool {
        self.wires_refused > 0 || !self.wires_changed.is_empty() || !self.has_heard(self.sees_from)
    }

    // ---- What it says --------------------------------------------------------

    /// It has no room for a tripwire.
    pub(super) fn unwatched(&mut self, number: u32) {
        if let Some(wire) = self.wires.get_mut(number as usize) {
            let is_new = core::mem::take(&mut wire.is_told) && !wire.is_refused;
            wire.is_refused |= is_new;
            self.wires_refused += u32::from(is_new);
        }
        self.line.unwatched = self.line.unwatched.wrapping_add(1);
        self.is_line_changed = true;
    }

    /// It has answered a fence: it counts anew what it gives.
    pub(super) fn fenced(&mut self, number: u32) {
        self.heard = Serial32(number);
        (self.line.fence, self.line.seen) = (number, 0);
        self.is_line_changed = true;
    }

    // ---- What it is told -----------------------------------------------------

    /// The next thing.
    pub(super) fn poll(&mut self, memory: &Memory, wires: &mut Tripwires) -> Option<Command> {
        let next = self.next_slot(memory).or_else(|| self.next_group(memory));
        if let Some(command) = next.or_else(|| self.next_wire(wires)) {
            return Some(command);
        }
        let looks = self.wires_refused > 0;
        self.is_line_changed |= looks != core::mem::replace(&mut self.line.looks, looks);
        if core::mem::take(&mut self.is_line_changed) {
            return Some(Command::HostProgress(self.line));
        }
        if self.wanted == self.fence_sent {
            return None;
        }
        self.fence_sent = self.wanted;
        Some(Command::Fence { number: self.fence_sent.0 })
    }

    fn next_slot(&mut self, memory: &Memory) -> Option<Command> {
        let slot = self.slots.pop()? as u16;
        let (generation, aperture) = memory.entry(slot);
        Some(Command::Expose { slot, generation, aperture })
    }

    fn next_group(&mut self, memory: &Memory) -> Option<Command> {
        let nth = self.groups.iter().position(|(_, is_changed)| *is_changed)?;
        let name = self.groups[nth].0;
        let group = memory.apertures().group(name);
        match group {
            Some(_) => self.groups[nth].1 = false,
            None => drop(self.groups.swap_remove(nth)),
        }
        // Who sends, a link knows and no packet says: such a group stays the host's.
        let group = group.filter(|group| group.sender.is_none());
        Some(Command::Join { name, group })
    }

    fn next_wire(&mut self, wires: &mut Tripwires) -> Option<Command> {
        while let Some(number) = self.wires_changed.first() {
            let wanted = wires.watched_words(number);
            let wire = self.wires.get_mut(number as usize)?;
            if wire.is_told {
                // It may watch for something else by now: first that has to go. What found
                // no room may find some then.
                wire.is_told = false;
                self.ask_again();
                return Some(Command::Forget { number });
            }
            self.wires_changed.pop();
            self.wires_refused -= u32::from(core::mem::take(&mut wire.is_refused));
            if let Some((slot, first, last)) = wanted {
                wire.is_told = true;
                self.sees_from = self.fence();
                return Some(Command::Watch { number, slot, first, last });
            }
        }
        None
    }

    fn ask_again(&mut self) {
        if self.wires_refused == 0 {
            return;
        }
        let refused = self.wires.iter().enumerate().filter(|(_, wire)| wire.is_refused);
        let refused: Vec<u32> = refused.map(|(number, _)| number as u32).collect();
        refused.into_iter().for_each(|number| self.wire_changed(number));
    }

    /// It has forgotten all, and must be told anew.
    pub(super) fn lost(&mut self, memory: &Memory) {
        let lost = core::mem::take(self);
        memory.slots_in_use().for_each(|slot| self.slot_changed(slot));
        self.groups = lost.groups;
        self.groups_changed();
        for number in 0..lost.wires.len() as u32 {
            self.wire_changed(number);
        }
        self.is_line_changed = true;
        // Fences that were under way will not be answered: the next one stands for them.
        (self.wanted, self.fence_sent, self.heard) = (lost.wanted, lost.fence_sent, lost.heard);
        self.line.fence = lost.line.fence;
        self.fence();
    }
}
