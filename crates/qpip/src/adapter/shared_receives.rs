//! [`SharedReceives`]: room for what comes that many queue pairs take from.
//!
//! A connection promises its peer what the queue has, and takes a request when bytes come
//! that need one: a thousand connections need the memory of those that are busy. All promise the same memory: where others were sooner, what comes is dropped as
//! without memory, and asked for again as soon as room is posted.

use alloc::vec::Vec;

use landfall_tables::{EntryKey, Table};

use super::config::Config;
use super::error::{Error, Object};
use crate::queue::{Request, SharedReceiveQueue};
use crate::work::{CompletionQueueId, DomainId, QueuePairId, SharedReceiveQueueId};

/// What a queue of shared room is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedReceiveQueueSetup {
    /// The memory is that of this domain, and so are the queue pairs.
    pub domain: DomainId,
    /// Where requests complete: the queue pairs' receives must do so, too.
    pub completions: CompletionQueueId,
    /// How many requests can be posted that nobody has taken.
    pub depth: u32,
    /// The most bytes that one connection promises its peer; and, if it is longer, the next
    /// request.
    pub window: u32,
}

#[derive(Debug)]
pub(super) struct SharedReceives {
    pub(super) domain: DomainId,
    pub(super) completions: CompletionQueueId,
    pub(super) queue: SharedReceiveQueue,
    /// Queue pairs that take from it.
    pub(super) users: u32,
    /// Those of them that need more than there was.
    short: Vec<QueuePairId>,
}

impl SharedReceives {
    /// A queue pair has less room than it needs: it hears of more.
    pub(super) fn wait(&mut self, id: QueuePairId) {
        self.short.push(id);
    }

    /// Takes those that wait.
    pub(super) fn take_short(&mut self) -> Vec<QueuePairId> {
        core::mem::take(&mut self.short)
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct SharedReceiveQueues(Table<SharedReceives>);

impl SharedReceiveQueues {
    /// Each has a completion queue, so there are no more than of those.
    pub(super) const fn new(config: &Config) -> Self {
        Self(Table::new(config.completion_queues))
    }

    pub(super) fn create(
        &mut self,
        setup: &SharedReceiveQueueSetup,
    ) -> Result<SharedReceiveQueueId, Error> {
        let full = Error::Full(Object::SharedReceiveQueue);
        let EntryKey { index, generation } = self.0.next().ok_or(full)?;
        let id = SharedReceiveQueueId::new(index, generation);
        let key = self.0.insert(SharedReceives {
            domain: setup.domain,
            completions: setup.completions,
            queue: SharedReceiveQueue::new(id, setup.depth, setup.window),
            users: 0,
            short: Vec::new(),
        });
        debug_assert_eq!(key, Some(EntryKey { index, generation }), "its name was the next");
        Ok(id)
    }

    pub(super) fn get(&self, id: SharedReceiveQueueId) -> Result<&SharedReceives, Error> {
        let known = self.0.named(id.index, id.generation);
        known.ok_or(Error::Unknown(Object::SharedReceiveQueue))
    }

    pub(super) fn get_mut(
        &mut self,
        id: SharedReceiveQueueId,
    ) -> Result<&mut SharedReceives, Error> {
        let known = self.0.named_mut(id.index, id.generation);
        known.ok_or(Error::Unknown(Object::SharedReceiveQueue))
    }

    /// Takes a queue that nobody uses.
    pub(super) fn remove(&mut self, id: SharedReceiveQueueId) -> Result<SharedReceives, Error> {
        if self.get(id)?.users > 0 {
            return Err(Error::Busy(Object::SharedReceiveQueue));
        }
        self.0.remove(id.index).ok_or(Error::Unknown(Object::SharedReceiveQueue))
    }

    /// The next request, for a queue pair that takes from this queue.
    pub(super) fn take(&mut self, id: SharedReceiveQueueId) -> Option<Request> {
        self.get_mut(id).ok()?.queue.take()
    }
}
