//! Completion queues: what is done, in the order in which it was.
//!
//! A queue never overflows: each work request that is posted reserves the place
//! of its completion, and is refused when there is none.

use landfall_placement::assumed;

use alloc::collections::VecDeque;

use landfall_tables::{EntryKey, Table};

use super::config::Config;
use super::error::{Error, Object};
use crate::work::{Completion, CompletionQueueId};

/// What a queue that was armed tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arm {
    /// The next completion.
    Next,
    /// The next one that is [solicited](Completion::is_solicited): the end of a
    /// message that came, or anything that went wrong.
    Solicited,
}

#[derive(Debug)]
struct CompletionQueue {
    completions: VecDeque<Completion>,
    capacity: u32,
    /// Places that requests under way will need.
    reserved: u32,
    /// How many of the completions are solicited.
    solicited: u32,
    armed: Option<Arm>,
    /// The user was told, and has not heard it yet: once is enough.
    is_told: bool,
    /// Queue pairs that complete here, counted for each of their queues.
    users: u32,
}

impl CompletionQueue {
    fn has_room(&self, places: u32) -> bool {
        let used = self.completions.len() as u64 + u64::from(self.reserved);
        used + u64::from(places) <= u64::from(self.capacity)
    }
}

/// All completion queues of an adapter.
#[derive(Debug)]
pub(super) struct CompletionQueues {
    table: Table<CompletionQueue>,
    most: u32,
}

impl CompletionQueues {
    pub(super) const fn new(config: &Config) -> Self {
        Self { table: Table::new(config.completion_queues), most: config.completion_queue_capacity }
    }

    pub(super) fn create(&mut self, capacity: u32) -> Result<CompletionQueueId, Error> {
        if capacity == 0 || capacity > self.most {
            return Err(Error::BadDepth);
        }
        let key = self.table.insert(CompletionQueue {
            completions: VecDeque::new(),
            capacity,
            reserved: 0,
            solicited: 0,
            armed: None,
            is_told: false,
            users: 0,
        });
        let EntryKey { index, generation } = key.ok_or(Error::Full(Object::CompletionQueue))?;
        Ok(CompletionQueueId::new(index, generation))
    }

    /// Ends a queue, and with it what nobody polled. No queue pair may use it.
    pub(super) fn destroy(&mut self, id: CompletionQueueId) -> Result<(), Error> {
        match self.table.named(id.index, id.generation) {
            None => Err(Error::Unknown(Object::CompletionQueue)),
            Some(queue) if queue.users > 0 => Err(Error::Busy(Object::CompletionQueue)),
            Some(_) => {
                self.table.remove(id.index);
                Ok(())
            }
        }
    }

    fn named_mut(&mut self, id: CompletionQueueId) -> Option<&mut CompletionQueue> {
        self.table.named_mut(id.index, id.generation)
    }

    pub(super) fn check(&self, id: CompletionQueueId) -> Result<(), Error> {
        let known = self.table.named(id.index, id.generation);
        known.map(|_| ()).ok_or(Error::Unknown(Object::CompletionQueue))
    }

    /// A queue of a queue pair completes here. It must exist.
    pub(super) fn join(&mut self, id: CompletionQueueId) {
        if let Some(queue) = self.named_mut(id) {
            queue.users += 1;
        }
    }

    /// It is gone.
    pub(super) fn leave(&mut self, id: CompletionQueueId) {
        if let Some(queue) = self.named_mut(id) {
            queue.users = queue.users.saturating_sub(1);
        }
    }

    pub(super) fn has_room(&self, id: CompletionQueueId) -> bool {
        self.table.named(id.index, id.generation).is_some_and(|queue| queue.has_room(1))
    }

    /// Reserves the place of a completion; says whether there is one.
    #[inline]
    pub(super) fn reserve(&mut self, id: CompletionQueueId) -> bool {
        match self.named_mut(id) {
            Some(queue) if queue.has_room(1) => {
                queue.reserved += 1;
                true
            }
            _ => false,
        }
    }

    /// Returns up a place that was reserved.
    pub(super) fn give_up(&mut self, id: CompletionQueueId) {
        if let Some(queue) = self.named_mut(id) {
            queue.reserved = queue.reserved.saturating_sub(1);
        }
    }

    /// Enters a completion into the place that was reserved for it. Says
    /// whether somebody waits to be told.
    #[inline]
    pub(super) fn complete(&mut self, id: CompletionQueueId, completion: Completion) -> bool {
        let Some(queue) =
            assumed(self.named_mut(id), "a queue stays while somebody has a place in it")
        else {
            return false;
        };
        queue.reserved = queue.reserved.saturating_sub(1);
        let is_solicited = completion.is_solicited();
        queue.solicited += u32::from(is_solicited);
        queue.completions.push_back(completion);
        let wakes = match queue.armed {
            None => false,
            Some(Arm::Next) => true,
            Some(Arm::Solicited) => is_solicited,
        };
        if wakes {
            queue.armed = None;
        }
        let tells = wakes && !queue.is_told;
        queue.is_told |= tells;
        tells
    }

    /// The user has heard that there is something.
    pub(super) fn was_heard(&mut self, id: CompletionQueueId) {
        if let Some(queue) = self.named_mut(id) {
            queue.is_told = false;
        }
    }

    /// Takes the next completion. A part of a request that goes on keeps the
    /// place of the next part reserved.
    #[inline]
    pub(super) fn poll(&mut self, id: CompletionQueueId) -> Option<Completion> {
        let queue = self.named_mut(id)?;
        let completion = queue.completions.pop_front()?;
        queue.solicited -= u32::from(completion.is_solicited());
        if !completion.ends_request {
            queue.reserved += 1;
        }
        Some(completion)
    }

    /// Asks to be told once. `false` where what was asked for is there already:
    /// then there is nothing to wait for, and nobody will be told.
    pub(super) fn arm(&mut self, id: CompletionQueueId, arm: Arm) -> bool {
        // One that is gone tells nobody.
        let Some(queue) = self.named_mut(id) else { return false };
        let is_there = match arm {
            Arm::Next => !queue.completions.is_empty(),
            Arm::Solicited => queue.solicited > 0,
        };
        queue.armed = if is_there { None } else { Some(arm) };
        !is_there
    }

    /// How many completions wait to be polled.
    pub(super) fn len(&self, id: CompletionQueueId) -> usize {
        self.table.named(id.index, id.generation).map_or(0, |queue| queue.completions.len())
    }
}
