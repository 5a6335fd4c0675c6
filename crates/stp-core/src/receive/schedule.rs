//! Who gets the next grant, and how much: the receiver paces all senders.
//!
//! Granted and not arrived is at most the configured window, over all senders,
//! and on each link at most its congestion window. What is ready is granted in
//! the order of the policy; what finds no room on its links waits for that.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use landfall_placement::Instant;
use landfall_tables::IndexedHeap;

use super::{State, Turn};
use crate::config::Policy;
use crate::endpoint::Endpoint;
use crate::link::Link;

/// What whoever is new is granted at first where there are others: this part of the window.
const FIRST_PART: u64 = 128;

/// Transfers that may get the next grant, in the order of the policy.
#[derive(Debug)]
pub(crate) enum Ready {
    Fair(VecDeque<u32>),
    Shortest(IndexedHeap<u64>),
}

impl Ready {
    pub(crate) const fn new(policy: Policy) -> Self {
        match policy {
            Policy::Fair => Self::Fair(VecDeque::new()),
            Policy::ShortestFirst => Self::Shortest(IndexedHeap::new()),
        }
    }

    fn enter(&mut self, index: u32, rest: u64) {
        match self {
            Self::Fair(queue) => queue.push_back(index),
            Self::Shortest(heap) => heap.set(index, rest),
        }
    }

    fn take(&mut self) -> Option<u32> {
        match self {
            Self::Fair(queue) => queue.pop_front(),
            Self::Shortest(heap) => {
                let (_, index) = heap.first()?;
                heap.remove(index);
                Some(index)
            }
        }
    }

    fn put_back(&mut self, index: u32, rest: u64) {
        match self {
            Self::Fair(queue) => queue.push_front(index),
            Self::Shortest(heap) => heap.set(index, rest),
        }
    }

    /// Does a Transfer wait for its turn here?
    #[cfg(feature = "model")]
    pub(crate) fn contains(&self, index: u32) -> bool {
        match self {
            Self::Fair(queue) => queue.contains(&index),
            Self::Shortest(heap) => heap.key_of(index).is_some(),
        }
    }

    pub(crate) fn forget(&mut self, index: u32) {
        match self {
            Self::Fair(queue) => queue.retain(|other| *other != index),
            Self::Shortest(heap) => {
                heap.remove(index);
            }
        }
    }
}

/// What came of an attempt to grant.
pub(super) enum Outcome {
    /// So much was granted.
    Granted,
    /// The Transfer has as much granted as it may.
    Enough,
    /// None of its links has room.
    NoRoomOnLinks,
    /// There is no place for another Block; those that have one may go on. Or nothing has
    /// come from its sender yet, and others of those have what is meant for them.
    NoBlock,
    /// There is no room for anybody.
    NoRoom,
}

impl Endpoint {
    /// Grants as much as there is room for.
    pub(crate) fn grant_more(&mut self, now: Instant) {
        self.tell_windows(now);
        // Those that wait for what others of them hold must not be in their way.
        let mut without_block = Vec::new();
        while let Some(index) = self.ready.take() {
            let Some(receive) = self.receives.get_mut(index) else { continue };
            if receive.state != State::Open {
                receive.turn = Turn::None;
                continue;
            }
            let outcome = self.grant_next(now, index);
            let is_begun = self.has_begun_block(index);
            let Some(receive) = self.receives.get_mut(index) else { continue };
            let rest = receive.rest;
            match outcome {
                // A Block that was begun is granted to its end before it is another's turn:
                // what is granted in turns comes in turns, and neither a run nor a guess gets
                // farther than to the next.
                Outcome::Granted if is_begun => self.ready.put_back(index, rest),
                Outcome::Granted if rest > 0 => self.ready.enter(index, rest),
                Outcome::Granted | Outcome::Enough => receive.turn = Turn::None,
                Outcome::NoRoomOnLinks => self.wait_for_links(index),
                Outcome::NoBlock => without_block.push((index, rest)),
                Outcome::NoRoom => {
                    self.ready.put_back(index, rest);
                    break;
                }
            }
        }
        for (index, rest) in without_block.into_iter().rev() {
            self.ready.put_back(index, rest);
        }
    }

    /// The Transfer has something to be granted.
    pub(crate) fn make_ready(&mut self, index: u32) {
        let Some(receive) = self.receives.get_mut(index) else { return };
        if receive.state != State::Open || receive.turn != Turn::None || receive.rest == 0 {
            return;
        }
        receive.turn = Turn::Ready;
        let rest = receive.rest;
        self.ready.enter(index, rest);
        self.grants_due = true;
    }

    /// It waits until one of its links has room.
    fn wait_for_links(&mut self, index: u32) {
        let Some(receive) = self.receives.get_mut(index) else { return };
        receive.turn = Turn::Waiting;
        let Some(known) = self.connections.get(receive.connection) else { return };
        for link in known.links() {
            let Some(link) = self.links.get_mut(link) else { continue };
            let path = &mut self.paths[usize::from(link.path)];
            if !path.has_room_for_grants(self.config.queue) && !path.waiting.contains(&index) {
                path.waiting.push(index);
            }
            let waiting = &mut link.traffic().waiting;
            if !waiting.contains(&index) {
                waiting.push(index);
            }
        }
    }

    /// Grants found no room to wait on a path, and there is some again.
    pub(crate) fn wake_path(&mut self, path: usize) {
        for index in core::mem::take(&mut self.paths[path].waiting) {
            self.wake(index);
        }
    }

    /// It may have found room.
    fn wake(&mut self, index: u32) {
        if let Some(receive) = self.receives.get_mut(index)
            && receive.turn == Turn::Waiting
        {
            receive.turn = Turn::None;
            self.make_ready(index);
        }
    }

    /// A link has room again, or is up: what waited for it is ready.
    pub(crate) fn wake_waiting(&mut self, link: u32) {
        let Some(known) = self.links.get_mut(link) else { return };
        for index in known.take_waiting() {
            self.wake(index);
        }
    }

    /// What a connection receives may have found room on another link.
    pub(crate) fn wake_receives(&mut self, connection: u32) {
        for index in self.receives_of(connection) {
            self.wake(index);
        }
    }

    /// Tells the windows of links what arrived, and wakes what waited for room.
    fn tell_windows(&mut self, now: Instant) {
        while let Some(index) = self.fresh_links.pop() {
            let config = self.congestion_on(index);
            let Some(link) = self.links.get_mut(index) else { continue };
            link.is_fresh = false;
            link.tell_window(&config, now);
            self.take_unused(now, index);
            if self.links.get(index).is_some_and(Link::has_waiting) {
                self.wake_waiting(index);
            }
        }
        self.grants_due = false;
    }

    /// How many bytes may be granted over a link now.
    pub(super) fn room_on(&self, link: u32) -> u64 {
        let Some(known) = self.links.get(link) else { return 0 };
        if !self.can_say_over(link) || known.unused() > 0 {
            return 0;
        }
        match &self.config.congestion {
            Some(config) => known.window.room(config, known.granted),
            None => self.config.window.saturating_sub(known.granted),
        }
    }

    /// How many bytes may be granted now over all links.
    pub(super) fn room_for_all(&self) -> u64 {
        self.config.window.saturating_sub(self.granted.bytes)
    }

    /// Is so much granted that others notice what somebody does not use?
    pub(super) const fn is_busy(&self) -> bool {
        self.granted.bytes > self.config.window / 4
    }

    /// How many of them to whom nothing has come from yet: together no more than half of the
    /// window, and little each where there are several.
    pub(super) fn room_for_new(&self, stu: u64) -> u64 {
        let half = (self.config.window / 2).saturating_sub(self.granted.new);
        let most = if self.is_busy() { stu.max(self.config.window / FIRST_PART) } else { half };
        self.room_for_all().min(half).min(most)
    }
}
