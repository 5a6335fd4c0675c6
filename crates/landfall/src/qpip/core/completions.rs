//! What is done goes from the engine into the rings that its users poll.

use std::sync::Arc;
use std::task::Waker;

use qpip::{Arm, Completion, CompletionQueueId, Status};
use rtrb::Producer;

use super::Core;
use crate::qpip::completion_queue::QueueState;

/// The adapter's end of a completion queue.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) id: CompletionQueueId,
    pub(super) state: Arc<QueueState>,
    /// Nothing once its user has dropped it.
    pub(super) ring: Option<Producer<Completion>>,
}

impl Queue {
    pub(super) fn has_room(&self) -> bool {
        self.ring.as_ref().is_none_or(|ring| ring.slots() > 0)
    }

    /// Puts a completion in, and tells who waits; there must be room.
    pub(super) fn put(&mut self, completion: &Completion, wake: &mut Vec<Waker>) {
        let is_solicited = self.put_silently(completion);
        self.state.tell(is_solicited, wake);
    }

    /// Gives whether it is solicited.
    #[inline]
    fn put_silently(&mut self, completion: &Completion) -> bool {
        let Some(ring) = &mut self.ring else {
            // Nobody will poll it.
            self.state.release(u64::from(completion.ends_request));
            return false;
        };
        let is_solicited = completion.is_solicited();
        // There is room: it was asked for.
        let _ = ring.push(*completion);
        if is_solicited {
            self.state.count_solicited();
        }
        is_solicited
    }
}

impl Core {
    pub(super) fn queue(&self, id: CompletionQueueId) -> Option<&Queue> {
        self.queues.get(id.index as usize)?.as_ref().filter(|queue| queue.id == id)
    }

    /// Moves what the engine has completed, as far as there is room.
    pub(super) fn move_completions(&mut self, index: u32) -> bool {
        self.tell_of_connections();
        let (mut moved, mut is_solicited) = (false, false);
        loop {
            let Some(Some(queue)) = self.queues.get_mut(index as usize) else { return moved };
            if !queue.has_room() {
                // Its user may have polled in between: looked at once more.
                queue.state.stall();
                if !queue.has_room() {
                    if !self.stalled.contains(&index) {
                        self.stalled.push(index);
                    }
                    break;
                }
            }
            let Some(completion) = self.engine.poll(queue.id) else {
                if self.engine.arm(queue.id, Arm::Next) {
                    break;
                }
                continue;
            };
            moved = true;
            if completion.ends_request {
                self.count_done(&completion);
            }
            // It has not gone: nothing above removes a queue.
            if let Some(Some(queue)) = self.queues.get_mut(index as usize) {
                is_solicited |= queue.put_silently(&completion);
            }
        }
        if moved && let Some(Some(queue)) = self.queues.get(index as usize) {
            queue.state.tell(is_solicited, &mut self.wake);
        }
        moved
    }

    /// There is room in the queue of a queue pair again, before its user hears
    /// of the completion.
    fn count_done(&mut self, completion: &Completion) {
        let id = completion.queue_pair;
        let Some(Some(pair)) = self.pairs.get_mut(id.index as usize) else { return };
        debug_assert!(
            pair.id != id || completion.status != Status::Success || !pair.state.is_opening(),
            "a completion before the news of the connection: {completion:?}"
        );
        if pair.id == id && pair.count_done(completion.operation) {
            self.again.push(id.index);
        }
    }

    /// Goes on where there was no room.
    pub(super) fn move_stalled(&mut self) -> bool {
        let mut moved = false;
        for index in std::mem::take(&mut self.stalled) {
            moved |= self.move_completions(index);
        }
        moved
    }

    /// Was a ring polled that was full?
    pub(super) fn has_room_where_it_stalled(&self) -> bool {
        let queue = |index: &u32| self.queues.get(*index as usize).and_then(Option::as_ref);
        self.stalled.iter().filter_map(queue).any(Queue::has_room)
    }

    /// Its user is gone. What completes there is forgotten, and the queue goes
    /// when no queue pair needs it any more.
    pub(crate) fn forget_queue(&mut self, id: CompletionQueueId) {
        let Some(Some(queue)) = self.queues.get_mut(id.index as usize) else { return };
        queue.ring = None;
        self.move_completions(id.index);
        match self.engine.destroy_completion_queue(id) {
            Err(qpip::Error::Busy(_)) => self.forgotten.push(id),
            _ => self.queues[id.index as usize] = None,
        }
    }
}
