//! What the adapters tell their users, and whether it is true.

use alloc::format;

use landfall_placement::Engine;

use super::Pair;
use super::side::Side;
use crate::error::Ended;
use crate::event::Event;

impl Pair {
    /// Takes all events, and checks what each of them says.
    pub(super) fn listen(&mut self) {
        for number in [0, 1] {
            while let Some(event) = self.sides[number].nic.poll_event() {
                self.tell(|| format!("  {number} is told: {event:?}"));
                let [ref mut first, ref mut second] = self.sides;
                let (here, there) = if number == 0 { (first, second) } else { (second, first) };
                let is_lawless = self.is_lawless;
                let known = here.failures.len();
                here.hear(there, event);
                if is_lawless {
                    // Whoever believes a liar cannot help it.
                    here.failures.truncate(known);
                }
            }
        }
    }
}

impl Side {
    fn hear(&mut self, there: &Self, event: Event) {
        match event {
            Event::LinkUp { link, .. } => self.link = Some(link),
            Event::LinkDown { link, .. } => {
                if self.link == Some(link) {
                    self.link = None;
                }
                self.lanes.iter_mut().for_each(super::ledger::Ledger::link_gone);
                self.onto.iter_mut().for_each(|onto| onto.shadow.is_unknown = true);
            }
            Event::Written { write, result } => {
                let Some(at) = self.pending.writes.iter().position(|(id, _)| *id == write) else {
                    return self.fail(format!("{write} was not asked for"));
                };
                let (_, serial) = self.pending.writes.remove(at);
                self.arrived(there, "a write", result, serial, serial);
            }
            Event::Dma { dma, result, .. } => {
                let Some(at) = self.pending.chains.iter().position(|(id, ..)| *id == dma) else {
                    return self.fail(format!("{dma} was not asked for"));
                };
                let (_, first, last) = self.pending.chains.remove(at);
                self.arrived(there, "a chain", result, first, last);
            }
            Event::Barrier { barrier, result } => {
                let known = self.pending.barriers.iter().position(|(id, _)| *id == barrier);
                let Some(at) = known else {
                    return self.fail(format!("{barrier} was not asked for"));
                };
                let (_, serial) = self.pending.barriers.remove(at);
                self.arrived(there, "a barrier", result, 0, serial);
            }
            Event::Read { read, result } => {
                let Some(at) = self.pending.reads.iter().position(|(id, ..)| *id == read) else {
                    return self.fail(format!("{read} was not asked for"));
                };
                let (_, serial, aperture, offset, into) = self.pending.reads.remove(at);
                let from = into.offset as usize;
                let bytes = &self.regions[2][from..from + into.len as usize];
                let shadow = &self.onto[aperture].shadow;
                if result.is_ok() && !shadow.may_be(serial, offset as usize, bytes) {
                    self.fail(format!("{read} got what was never there, or no more"));
                }
            }
            Event::Word { operation, result } => {
                let known = self.pending.words.iter().position(|(id, _)| *id == operation);
                let Some(at) = known else {
                    return self.fail(format!("{operation} was not asked for"));
                };
                let (_, expected) = self.pending.words.remove(at);
                if let (Ok(old), Some(expected)) = (result, expected)
                    && old != expected
                {
                    self.fail(format!("{operation}: {old:#x}, not {expected:#x}"));
                }
            }
            Event::Exception { .. } => self.exceptions += 1,
            Event::Tripwire { tripwire } => {
                if self.nic.has_fired(tripwire) == Ok(false) {
                    self.fail(format!("{tripwire} is told and has not fired"));
                }
            }
            Event::OutOfBand { .. } | Event::Overflow { .. } => {}
            Event::SwitchUp { .. } | Event::Released { .. } => {
                self.fail(format!("{event:?} at a network"));
            }
        }
    }

    /// These requests are said to be in place at the other side.
    fn arrived(
        &mut self,
        there: &Self,
        what: &str,
        result: Result<(), Ended>,
        first: u64,
        last: u64,
    ) {
        if result.is_err() {
            return;
        }
        let is_gone = |n: usize| there.shown.get(n).is_none_or(|shown| shown.is_gone);
        let mut missing = self.lanes.iter().flat_map(|lane| lane.missing(is_gone));
        let is_missing = missing.any(|one| (first..=last).contains(&one.serial));
        drop(missing);
        if is_missing {
            self.fail(format!("{what} is said to be there, and is not"));
        }
    }
}
