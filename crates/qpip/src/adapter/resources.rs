//! [`Resources`]: what queue pairs are made of and share. Their memory is that of a
//! protection domain, and what is done goes to completion queues.

use super::completion_queue::CompletionQueues;
use super::config::Config;
use super::context::Context;
use super::domain::Domains;
use super::error::{Error, Object};
use super::event::Event;
use super::queue_pair::{QueuePair, QueuePairSetup};
use crate::queue::Done;
use crate::work::{Completion, QueuePairId};

/// All domains and all completion queues.
#[derive(Debug)]
pub(super) struct Resources {
    pub(super) domains: Domains,
    pub(super) completion_queues: CompletionQueues,
}

impl Resources {
    pub(super) const fn new(config: &Config) -> Self {
        Self { domains: Domains::new(config), completion_queues: CompletionQueues::new(config) }
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
        Ok(())
    }

    /// A new queue pair uses these. A byte stream takes a place for the part of a
    /// request that it may report.
    pub(super) fn join(&mut self, pair: &QueuePair) -> Result<(), Error> {
        if pair.completes_parts() && !self.completion_queues.reserve(pair.receive_completions) {
            return Err(Error::Full(Object::CompletionQueue));
        }
        self.domains.join(pair.domain);
        self.completion_queues.join(pair.send_completions);
        self.completion_queues.join(pair.receive_completions);
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
    }

    /// A request is done, or a part of one: its memory is free, and it completes.
    #[inline]
    pub(super) fn complete(&mut self, context: &mut Context, pair: &mut QueuePair, done: &Done) {
        if let Some(gather) = &done.gather {
            self.domains.release(gather);
        }
        let queue = pair.completions(done.operation);
        let completion = completion_of(pair.id, done);
        pair.is_part_out |= !completion.ends_request;
        if self.completion_queues.complete(queue, completion) {
            context.events.push(Event::CompletionsReady { queue });
        }
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
        from: done.from,
    }
}
