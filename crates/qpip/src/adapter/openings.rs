//! [`Openings`]: connections that were asked for and are not proved.

use alloc::vec::Vec;

use landfall_placement::{Instant, Random};
use landfall_tables::{EntryKey, IndexedHeap, Table};

use super::demux::{ByEnds, Ends};
use super::links::Origin;
use crate::tcp::{HalfOpen, Segment};
use crate::wire::Mac;
use crate::work::ListenerId;

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
    /// What proved it, while nobody waits to be assigned it.
    pub(super) proof: Option<Segment>,
}

impl Opening {
    fn ends(&self) -> Ends {
        self.half.ends()
    }

    /// Where its answers go.
    pub(super) fn origin(&self) -> Origin {
        Origin { link: self.link, station: self.station, ends: self.ends() }
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

    /// Is there room for one more, or does a stranger have to be answered without?
    pub(super) fn has_room(&self) -> bool {
        self.table.has_room()
    }

    /// Enters one that is proved; says whether one that is not had to make room: the one that
    /// was asked for first, for who has had the most time to prove itself is the least likely
    /// to be there. (Whose answer is on its way would wait for long: nothing is known of it
    /// any more, and what it sends proves nothing.) Nobody who is proved makes room for anybody.
    pub(super) fn insert_proved(&mut self, opening: Opening) -> (Option<u32>, bool) {
        let is_full = !self.table.has_room();
        if is_full {
            let unproved = self.table.indices().filter_map(|index| {
                let known = self.table.get(index).filter(|known| known.proof.is_none())?;
                Some((known.half.asked_at(), index))
            });
            let stranger = unproved.min().map(|(_, index)| index);
            if let Some(stranger) = stranger {
                self.remove(stranger);
            }
        }
        let index = self.insert(opening);
        (index, is_full && index.is_some())
    }

    /// Enters one, where there is room.
    pub(super) fn insert(&mut self, opening: Opening) -> Option<u32> {
        let (ends, deadline) = (opening.ends(), opening.half.deadline());
        let EntryKey { index, .. } = self.table.insert(opening)?;
        self.by_ends.insert(ends, index);
        self.timers.set(index, deadline);
        Some(index)
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
        let all: Vec<u32> = self.table.indices().filter(of_it).collect();
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
