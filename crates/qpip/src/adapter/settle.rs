//! What the state machines leave behind goes to completion queues and events.

use super::Adapter;
use super::event::Event;
use super::queue_pair::{Phase, QueuePair, Role};
use crate::ids::{CompletionQueueId, QueuePairId};
use crate::queue::Done;
use crate::tcp::News;
use crate::work::Completion;

impl Adapter {
    /// Takes everything out that a queue pair has to tell, sets its timer, and
    /// lets it go where it was destroyed and nothing of it is left.
    #[inline]
    pub(super) fn settle(&mut self, id: QueuePairId) {
        if self.is_held_by_card(id) {
            return;
        }
        let Some(pair) = self.pairs.named_mut(id.index, id.generation) else { return };
        while let Some(done) = pair.poll_done() {
            if let Some(gather) = &done.gather {
                self.domains.release(gather);
            }
            let queue = pair.completions(done.operation);
            let completion = completion_of(id, &done);
            pair.is_part_out |= !completion.ends_request;
            if self.completion_queues.complete(queue, completion) {
                self.events.push_back(Event::CompletionsReady { queue });
            }
        }
        self.take_news(id);
        self.set_timer(id);
        self.predict(id);
        let Some(pair) = self.pairs.named(id.index, id.generation) else { return };
        if pair.is_destroyed && pair.is_empty() {
            self.remove_pair(id);
        }
    }

    fn take_news(&mut self, id: QueuePairId) {
        loop {
            let Some(pair) = self.pairs.named_mut(id.index, id.generation) else { return };
            let is_told = !pair.is_destroyed;
            let Some((connection, _)) = pair.connection_mut() else { return };
            let Some(news) = connection.tcb.poll_news() else { return };
            let ends @ (local, remote) = (connection.tcb.local, connection.tcb.remote);
            let event = match (news, connection.listener) {
                (News::Connected, None) => Event::Connected { queue_pair: id, local, remote },
                (News::Connected, Some(listener)) => {
                    Event::Accepted { listener, queue_pair: id, local, remote }
                }
                (News::PeerFinished, _) => Event::PeerFinished { queue_pair: id },
                (News::Closed(reason, rest), _) => {
                    self.demux.connections.remove(ends, id.index);
                    self.pair_timers.remove(id.index);
                    if let Some(rest) = rest {
                        self.time_waits.insert(rest);
                    }
                    Event::Closed { queue_pair: id, reason }
                }
            };
            if is_told {
                self.events.push_back(event);
            }
        }
    }

    /// Sees to it that the timer of a queue pair is not later than it wants. It
    /// may be earlier: then nothing is found to do, once.
    #[inline]
    pub(super) fn set_timer(&mut self, id: QueuePairId) {
        let Some(pair) = self.pairs.named(id.index, id.generation) else { return };
        let Some(connection) = pair.connection() else { return };
        let Some(wanted) = connection.tcb.poll_timeout(&self.config.tcp) else { return };
        let is_early = self.pair_timers.key_of(id.index).is_some_and(|at| at <= wanted.at);
        if !is_early {
            self.pair_timers.set(id.index, wanted.at);
        }
    }

    /// A part of a request was polled: the next part may be reported.
    pub(super) fn part_was_polled(&mut self, queue: CompletionQueueId, id: QueuePairId) {
        let Some(pair) = self.pairs.named_mut(id.index, id.generation) else {
            // Nobody will need the place that was kept for it.
            return self.completion_queues.give_up(queue);
        };
        pair.is_part_out = false;
        if let Role::Stream(stream) = &mut pair.role {
            stream.queues.receive.part_was_polled();
        }
        if let Some((connection, queues)) = pair.connection_mut() {
            connection.tcb.handle_polled_part(queues);
        }
        self.settle(id);
    }

    /// Nothing of a queue pair is left.
    fn remove_pair(&mut self, id: QueuePairId) {
        self.pair_timers.remove(id.index);
        let Some(pair) = self.pairs.remove(id.index) else { return };
        if pair.completes_parts() && !pair.is_part_out {
            self.completion_queues.give_up(pair.receive_completions);
        }
        if let Role::Stream(stream) = &pair.role
            && let Phase::Open(connection) = &stream.phase
            && !connection.tcb.is_closed()
        {
            let ends = (connection.tcb.local, connection.tcb.remote);
            self.demux.connections.remove(ends, id.index);
        }
        let QueuePair { domain, send_completions, receive_completions, .. } = pair;
        self.domains.leave(domain);
        self.completion_queues.leave(send_completions);
        self.completion_queues.leave(receive_completions);
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
