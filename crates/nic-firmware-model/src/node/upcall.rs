//! What adapters tell: reports go to the engine, whole frames are placed by it.

use landfall_placement::Instant;

use super::software::{Took, take_deposit, take_frame};
use super::{NicNode, Offloaded, Reached};
use crate::firmware::Firmware;
use crate::machine::Upcall;

impl<F, E> NicNode<F, E>
where
    E: Offloaded + 'static,
    F: Firmware<Command = E::Command, Report = E::Report> + 'static,
{
    /// Takes what an adapter has told, in order.
    pub(super) fn take_upcalls(&mut self, now: Instant, index: usize) -> bool {
        let mut is_busy = false;
        while let Some(upcall) = self.adapters[index].poll_upcall() {
            is_busy = true;
            match upcall {
                Upcall::Report(report) => {
                    self.engine.handle_report(now, index as u8, &report);
                }
                Upcall::Frame(buffer) => {
                    self.take_frame(now, index, buffer);
                    self.adapters[index].give_back(buffer);
                }
            }
        }
        is_busy
    }

    /// The software path: place, write, report.
    fn take_frame(&mut self, now: Instant, index: usize, buffer: u16) {
        let Some(frame) = self.adapters[index].frame(buffer) else { return };
        let mut memory = Reached { memory: &mut self.memory, now };
        let took = take_frame(&mut self.engine, &mut memory, now, &frame, &mut self.refusals);
        let counters = &mut self.counters;
        counters.units += 1;
        match took {
            Took::Copied(bytes) => counters.copied_bytes += bytes,
            Took::Corrupt => counters.corrupt += 1,
            Took::Failed => counters.failed += 1,
            Took::Word { .. } => counters.words += 1,
            // The engine counted its own refusals.
            Took::Consumed | Took::Refused => {}
        }
    }

    /// What the engine kept goes to its place.
    pub(super) fn take_deposits(&mut self, now: Instant, budget: &mut usize) {
        while *budget > 0 {
            let mut memory = Reached { memory: &mut self.memory, now };
            let Some((bytes, is_there)) = take_deposit(&mut self.engine, &mut memory, now) else {
                return;
            };
            *budget -= 1;
            if is_there {
                self.counters.deposits += 1;
                self.counters.copied_bytes += bytes;
            } else {
                self.counters.failed += 1;
            }
        }
    }
}
