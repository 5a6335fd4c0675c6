//! [`TimeWaits`]: connections that both sides have closed, for as long as late
//! segments of them may come.

use landfall_placement::{Instant, Random, assumed};
use landfall_tables::{EntryKey, IndexedHeap, Table};

use super::context::Context;
use super::demux::{ByEnds, Ends};
use super::links::{Links, Marks, Origin};
use crate::tcp::{Draft, LateAction, Segment, TimeWait};
use crate::wire::Options;
use crate::wire::tcp::Flags;

/// All of them, by their two ends.
#[derive(Debug)]
pub(super) struct TimeWaits {
    table: Table<TimeWait>,
    by_ends: ByEnds,
    timers: IndexedHeap<Instant>,
}

impl TimeWaits {
    pub(super) fn new(most: usize, random: &mut Random) -> Self {
        Self { table: Table::new(most), by_ends: ByEnds::new(random), timers: IndexedHeap::new() }
    }

    pub(super) fn find(&self, ends: Ends) -> Option<u32> {
        let is_meant = |index| self.table.get(index).is_some_and(|known| known.ends() == ends);
        self.by_ends.find(ends, is_meant)
    }

    fn get(&self, index: u32) -> Option<&TimeWait> {
        self.table.get(index)
    }

    /// Enters one; at the bound the one that has waited longest makes room.
    pub(super) fn insert(&mut self, rest: TimeWait) {
        if !self.table.has_room()
            && let Some((_, oldest)) = self.timers.first()
        {
            self.remove(oldest);
        }
        let (ends, until) = (rest.ends(), rest.until);
        if let Some(EntryKey { index, .. }) = self.table.insert(rest) {
            self.by_ends.insert(ends, index);
            self.timers.set(index, until);
        }
    }

    fn remove(&mut self, index: u32) {
        if let Some(rest) = self.table.remove(index) {
            self.by_ends.remove(rest.ends(), index);
            self.timers.remove(index);
        }
    }

    /// Late segments came: the time starts again.
    fn restart(&mut self, index: u32, until: Instant) {
        if let Some(rest) = self.table.get_mut(index) {
            rest.until = until;
            self.timers.set(index, until);
        }
    }

    /// Something that is no end was answered.
    fn note_answer(&mut self, index: u32, now: Instant) {
        if let Some(rest) = self.table.get_mut(index) {
            rest.answered_at = Some(now);
        }
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| at)
    }

    /// Forgets those whose time is up.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some((_, index)) = self.timers.pop_up_to(now) {
            self.remove(index);
        }
    }

    /// A late segment of a connection that is over. Returns whether it may be more:
    /// a new connection of the same two ends.
    pub(super) fn handle(
        &mut self,
        now: Instant,
        context: &mut Context,
        links: &mut Links,
        origin: &Origin,
        segment: &Segment,
    ) -> bool {
        // It rests no longer.
        let Some(index) = self.find(origin.ends) else { return true };
        let Some(rest) = assumed(self.get(index), "the index leads to those that rest") else {
            return true;
        };
        match rest.handle(now, segment) {
            LateAction::Ignore => false,
            LateAction::Reopen => {
                self.remove(index);
                true
            }
            late @ (LateAction::Acknowledge | LateAction::Restart) => {
                let options = Options { timestamp: rest.timestamp(now), ..Options::default() };
                let draft =
                    Draft { options, ..Draft::bare(Flags::ACK, rest.send_next, rest.receive_next) };
                if late == LateAction::Restart {
                    self.restart(index, now + context.config.tcp.time_wait);
                } else {
                    self.note_answer(index, now);
                }
                links.queue_segment(context, origin, Marks::default(), &draft);
                false
            }
        }
    }
}
