//! Connections before and after they have a queue pair: listeners, openings that
//! are not proved yet, and TIME-WAIT. Each table is bounded, and a flood of
//! strangers fills these and nothing else.

use alloc::collections::VecDeque;
use core::net::SocketAddr;

use landfall_placement::{Instant, Random};
use landfall_tables::{IndexedHeap, Table};

use super::demux::{ByEnds, Ends};
use crate::tcp::{HalfOpen, Segment, TimeWait};
use crate::wire::Mac;
use crate::work::{ListenerId, QueuePairId};

/// A port that is listened on, and the idle queue pairs that wait there.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) local: SocketAddr,
    pub(super) offers: VecDeque<QueuePairId>,
    /// Connections that are proved and found nobody who waited; some may be
    /// gone by now.
    pub(super) proved: VecDeque<u32>,
}

/// A connection that was asked for, and who asked.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) half: HalfOpen,
    pub(super) listener: ListenerId,
    /// The link, by its place among all, and the station that asked: it is
    /// answered without looking for a neighbour, so that strangers do not fill
    /// that table.
    pub(super) link: usize,
    pub(super) station: Mac,
    /// What proved it, while nobody waits to be mated with it.
    pub(super) proof: Option<Segment>,
}

impl Opening {
    fn ends(&self) -> Ends {
        (self.half.local, self.half.remote)
    }
}

/// Connections that were asked for and are not proved.
#[derive(Debug)]
pub(super) struct Openings {
    table: Table<Opening>,
    by_ends: ByEnds,
    timers: IndexedHeap<Instant>,
}

impl Openings {
    pub(super) fn new(most: usize, random: &mut Random) -> Self {
        Self { table: Table::new(most), by_ends: ByEnds::new(random), timers: IndexedHeap::new() }
    }

    pub(super) fn find(&self, ends: Ends) -> Option<u32> {
        let is_meant = |index| self.table.get(index).is_some_and(|known| known.ends() == ends);
        self.by_ends.find(ends, is_meant)
    }

    pub(super) fn get(&self, index: u32) -> Option<&Opening> {
        self.table.get(index)
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Opening> {
        self.table.get_mut(index)
    }

    /// Enters one; says whether another had to make room.
    pub(super) fn insert(&mut self, opening: Opening) -> (Option<u32>, bool) {
        let is_full = !self.table.has_room();
        // All wait equally long for their first answer: the one whose time is up
        // first is the one that has waited longest.
        if is_full && let Some((_, oldest)) = self.timers.first() {
            self.remove(oldest);
        }
        let (ends, deadline) = (opening.ends(), opening.half.deadline());
        let Some((index, _)) = self.table.insert(opening) else { return (None, is_full) };
        self.by_ends.insert(ends, index);
        self.timers.set(index, deadline);
        (Some(index), is_full)
    }

    pub(super) fn remove(&mut self, index: u32) -> Option<Opening> {
        let opening = self.table.remove(index)?;
        self.by_ends.remove(opening.ends(), index);
        self.timers.remove(index);
        Some(opening)
    }

    /// Forgets all of a listener.
    pub(super) fn forget(&mut self, listener: ListenerId) {
        let of_it = |index: &u32| {
            self.table.get(*index).is_some_and(|opening| opening.listener == listener)
        };
        let all: alloc::vec::Vec<u32> = self.table.indices().filter(of_it).collect();
        for index in all {
            self.remove(index);
        }
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| at)
    }

    /// The next one whose answer was not answered in time.
    pub(super) fn due(&mut self, now: Instant) -> Option<u32> {
        self.timers.pop_up_to(now).map(|(_, index)| index)
    }

    pub(super) fn set_timer(&mut self, index: u32) {
        if let Some(opening) = self.table.get(index) {
            self.timers.set(index, opening.half.deadline());
        }
    }
}

/// Connections that both sides have closed, for as long as late segments of
/// them may come.
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
        let is_meant =
            |index| self.table.get(index).is_some_and(|known| (known.local, known.remote) == ends);
        self.by_ends.find(ends, is_meant)
    }

    pub(super) fn get(&self, index: u32) -> Option<&TimeWait> {
        self.table.get(index)
    }

    /// Enters one; at the bound the one that has waited longest makes room.
    pub(super) fn insert(&mut self, rest: TimeWait) {
        if !self.table.has_room()
            && let Some((_, oldest)) = self.timers.first()
        {
            self.remove(oldest);
        }
        let (ends, until) = ((rest.local, rest.remote), rest.until);
        if let Some((index, _)) = self.table.insert(rest) {
            self.by_ends.insert(ends, index);
            self.timers.set(index, until);
        }
    }

    pub(super) fn remove(&mut self, index: u32) {
        if let Some(rest) = self.table.remove(index) {
            self.by_ends.remove((rest.local, rest.remote), index);
            self.timers.remove(index);
        }
    }

    /// Late segments came: the time starts again.
    pub(super) fn restart(&mut self, index: u32, until: Instant) {
        if let Some(rest) = self.table.get_mut(index) {
            rest.until = until;
            self.timers.set(index, until);
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
}
