//! [`Resources`]: what queue pairs are made of and share. Their memory is that of a
//! protection domain, and what is done goes to completion queues.

use super::completion_queue::CompletionQueues;
use super::config::Config;
use super::context::Context;
use super::domain::Access;
use super::domain::Domains;
use super::error::PostError;
use super::error::{Error, Object};
use super::event::Event;
use super::queue_pair::{QueuePair, QueuePairSetup, Role};
use super::shared_receives::{SharedReceiveQueueSetup, SharedReceiveQueues, SharedReceives};
use super::udp::Datagrams;
use crate::queue::Done;
use crate::work::{Completion, QueuePairId, ReceiveWork, SharedReceiveQueueId};

/// All domains, completion queues, and queues of room that is shared.
#[derive(Debug)]
pub(super) struct Resources {
    pub(super) domains: Domains,
    pub(super) completion_queues: CompletionQueues,
    pub(super) shared_receives: SharedReceiveQueues,
}

impl Resources {
    pub(super) const fn new(config: &Config) -> Self {
        Self {
            domains: Domains::new(config),
            completion_queues: CompletionQueues::new(config),
            shared_receives: SharedReceiveQueues::new(config),
        }
    }

    /// Can there be such a queue pair?
    pub(super) fn check(&self, setup: &QueuePairSetup, config: &Config) -> Result<(), Error> {
        self.domains.check(setup.domain)?;
        self.completion_queues.check(setup.send_completions)?;
        self.completion_queues.check(setup.receive_completions)?;
        let depths = 1..=config.queue_depth;
        if !depths.contains(&setup.send_depth) || !depths.contains(&setup.receive_depth) {
            return Err(Error::BadDepth);
        }
        if let Some(id) = setup.shared_receives {
            let shared = self.shared_receives.get(id)?;
            if (shared.domain, shared.completions) != (setup.domain, setup.receive_completions) {
                return Err(Error::ForeignQueue);
            }
        }
        Ok(())
    }

    /// A new queue pair uses these. A byte stream takes a place for the part of a
    /// request that it may report.
    pub(super) fn join(
        &mut self,
        pair: &mut QueuePair,
        shared: Option<SharedReceiveQueueId>,
    ) -> Result<(), Error> {
        if pair.completes_parts() && !self.completion_queues.reserve(pair.receive_completions) {
            return Err(Error::Full(Object::CompletionQueue));
        }
        self.domains.join(pair.domain);
        self.completion_queues.join(pair.send_completions);
        self.completion_queues.join(pair.receive_completions);
        if let Some(id) = shared {
            let shared = self.shared_receives.get_mut(id)?;
            shared.users += 1;
            if let Role::Stream(stream) = &mut pair.role {
                stream.queues.receive.share(shared.queue.credit());
            }
        }
        Ok(())
    }

    /// Nothing of a queue pair is left.
    pub(super) fn leave(&mut self, pair: &QueuePair) {
        if pair.completes_parts() && !pair.is_part_out {
            self.completion_queues.give_up(pair.receive_completions);
        }
        self.domains.leave(pair.domain);
        self.completion_queues.leave(pair.send_completions);
        self.completion_queues.leave(pair.receive_completions);
        if let Some(Ok(shared)) = pair.shared_receives().map(|id| self.shared_receives.get_mut(id))
        {
            shared.users = shared.users.saturating_sub(1);
        }
    }

    /// A request is done, or a part of one: its memory is free, and it completes.
    #[inline]
    pub(super) fn complete(&mut self, context: &mut Context, pair: &mut QueuePair, done: &Done) {
        if let Some(gather) = &done.gather {
            self.domains.release(gather);
        }
        let queue = pair.completions(done.operation);
        // Of a queue pair that its user has given up all complete.
        if !done.is_signaled && done.status.is_success() && !pair.is_destroyed {
            self.completion_queues.give_up(queue);
            context.events.count_unsignaled(pair.id, &mut pair.unsignaled_told);
            return;
        }
        let completion = completion_of(pair.id, done);
        pair.is_part_out |= !completion.ends_request;
        if self.completion_queues.complete(queue, completion) {
            context.events.push(Event::CompletionsReady { queue });
        }
    }
}

// Room that is shared.

impl Resources {
    pub(super) fn create_shared_receives(
        &mut self,
        setup: &SharedReceiveQueueSetup,
        config: &Config,
    ) -> Result<SharedReceiveQueueId, Error> {
        self.domains.check(setup.domain)?;
        self.completion_queues.check(setup.completions)?;
        if !(1..=config.queue_depth).contains(&setup.depth) {
            return Err(Error::BadDepth);
        }
        let id = self.shared_receives.create(setup)?;
        self.domains.join(setup.domain);
        self.completion_queues.join(setup.completions);
        Ok(id)
    }

    /// Ends a queue of shared room, and with it what nobody has taken.
    pub(super) fn destroy_shared_receives(
        &mut self,
        id: SharedReceiveQueueId,
    ) -> Result<(), Error> {
        let mut shared = self.shared_receives.remove(id)?;
        while let Some(request) = shared.queue.take() {
            self.domains.release(&request.gather);
            self.completion_queues.give_up(shared.completions);
        }
        self.domains.leave(shared.domain);
        self.completion_queues.leave(shared.completions);
        Ok(())
    }

    /// The queues of a queue pair for datagrams: where it shares room, with some for the
    /// next datagram.
    #[inline]
    pub(super) fn with_room<'a>(&mut self, pair: &'a mut QueuePair) -> Option<&'a mut Datagrams> {
        let shared = pair.shared_receives();
        let datagrams = pair.datagrams_mut()?;
        if let Some(shared) = shared
            && datagrams.inbound.is_used_up()
            && let Some(request) = self.shared_receives.take(shared)
        {
            datagrams.inbound.push(request.id, request.gather);
        }
        Some(datagrams)
    }

    /// Posts room to be shared, and returns the queue. It is checked here and never again.
    pub(super) fn post_shared_receive(
        &mut self,
        id: SharedReceiveQueueId,
        work: &ReceiveWork<'_>,
    ) -> Result<&mut SharedReceives, PostError> {
        let shared = self.shared_receives.get_mut(id);
        let shared = shared.map_err(|_| PostError::UnknownSharedQueue)?;
        if !shared.queue.has_room() {
            return Err(PostError::QueueFull);
        }
        if !self.completion_queues.has_room(shared.completions) {
            return Err(PostError::CompletionQueueFull);
        }
        let gather = self.domains.claim(shared.domain, work.into, Access::Write, false)?;
        self.completion_queues.reserve(shared.completions);
        shared.queue.push(work.id, gather);
        Ok(shared)
    }
}

fn completion_of(queue_pair: QueuePairId, done: &Done) -> Completion {
    Completion {
        id: done.id,
        queue_pair,
        operation: done.operation,
        status: done.status,
        len: done.len,
        offset: done.offset,
        ends_message: done.ends_message,
        ends_request: done.gather.is_some(),
        from: done.origin.address(),
        immediate: done.origin.word(),
    }
}
