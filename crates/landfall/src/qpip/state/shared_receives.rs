//! The adapter's ends of queues of shared room, and sends that were done in silence.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use landfall_placement::Instant;
use qpip::{Operation, QueuePairId, ReceiveWork, SharedReceiveQueueId, SharedReceiveQueueSetup};
use rtrb::Producer;

use super::posts::{Held, WorkQueue, failed_request, status_of};
use super::{AdapterState, enter};
use crate::qpip::doorbell::{Entry, ring};
use crate::qpip::error::Error;

/// The name in completions of requests that no queue pair had taken.
const NO_QUEUE_PAIR: QueuePairId = QueuePairId::new(u32::MAX, u32::MAX);

/// The adapter's end of a queue of shared room.
#[derive(Debug)]
pub(super) struct SharedReceives {
    id: SharedReceiveQueueId,
    requests: WorkQueue,
    /// Requests that the engine was given, ever, and those that it refused.
    posted: u32,
    failed: u32,
    taken: Arc<AtomicU32>,
}

/// The user's ends of a new queue of shared room.
#[derive(Debug)]
pub(crate) struct NewSharedReceives {
    pub(crate) id: SharedReceiveQueueId,
    pub(crate) ring: Producer<Entry>,
    pub(crate) taken: Arc<AtomicU32>,
    /// Which doorbell it has.
    pub(crate) bell: u32,
}

impl AdapterState {
    /// The queue of shared room that has this doorbell: theirs are behind those of all queue
    /// pairs.
    pub(super) fn shared_receives_of(&self, bell: u32) -> Option<usize> {
        (bell as usize).checked_sub(self.engine.config().queue_pairs)
    }

    /// Posts what is in the ring of a queue of shared room.
    pub(super) fn empty_shared_ring(&mut self, now: Instant, nth: usize, bell: u32) -> bool {
        let mut moved = false;
        while let Some(Some(shared)) = self.shared_receives.get_mut(nth) {
            let request = &mut self.request;
            let Some(failed) = shared.requests.take(request) else { break };
            let work = ReceiveWork { id: request.id, into: &request.buffers };
            let result = match failed {
                Some(status) => Err(Some(status)),
                None => self.engine.post_shared_receive(now, shared.id, &work).map_err(status_of),
            };
            match result {
                Ok(()) => shared.posted = shared.posted.wrapping_add(1),
                Err(None) => {
                    shared.requests.held = Some(Held::Crowded(std::mem::take(request)));
                    self.again.push(bell);
                    break;
                }
                Err(Some(status)) => {
                    let completion =
                        failed_request(NO_QUEUE_PAIR, request.id, Operation::Receive, status);
                    let queue = self.queues.get_mut(shared.requests.queue as usize);
                    let Some(queue) = queue.and_then(Option::as_mut).filter(|q| q.has_room())
                    else {
                        shared.requests.held = Some(Held::Failed(request.id, status));
                        self.again.push(bell);
                        break;
                    };
                    shared.failed = shared.failed.wrapping_add(1);
                    queue.put(&completion, &mut self.wake);
                }
            }
            moved = true;
        }
        moved
    }

    /// Makes a queue of shared room whose requests have at most this many buffers.
    pub(crate) fn create_shared_receives(
        &mut self,
        setup: &SharedReceiveQueueSetup,
        buffers: u16,
    ) -> Result<NewSharedReceives, Error> {
        let id = self.engine.create_shared_receive_queue(setup)?;
        let (producer, consumer) = ring(setup.depth, buffers);
        let taken = Arc::<AtomicU32>::default();
        let shared = SharedReceives {
            id,
            requests: WorkQueue::new(consumer, setup.completions.index),
            posted: 0,
            failed: 0,
            taken: Arc::clone(&taken),
        };
        enter(&mut self.shared_receives, id.index, shared);
        let bell = self.engine.config().queue_pairs as u32 + id.index;
        Ok(NewSharedReceives { id, ring: producer, taken, bell })
    }

    /// Says how many requests queue pairs have taken: so much room there is again.
    pub(super) fn count_taken(&self) {
        for shared in self.shared_receives.iter().flatten() {
            let waiting = self.engine.shared_receives(shared.id) as u32;
            let taken = shared.posted.wrapping_sub(waiting).wrapping_add(shared.failed);
            shared.taken.store(taken, Ordering::Release);
        }
    }

    /// Its user is gone: it ends with the last queue pair that takes from it, and what nobody
    /// has taken gives the places of its completions back.
    pub(crate) fn drop_shared_receives(&mut self, id: SharedReceiveQueueId) {
        let waiting = self.engine.shared_receives(id) as u64;
        if let Err(qpip::Error::Busy(_)) = self.engine.destroy_shared_receive_queue(id) {
            self.left_shared.push(id);
            return;
        }
        let known = self.shared_receives.get_mut(id.index as usize);
        let Some(mut shared) = known.and_then(|known| known.take_if(|known| known.id == id)) else {
            return;
        };
        let mut places = waiting;
        while shared.requests.take(&mut self.request).is_some() {
            places += 1;
        }
        if let Some(Some(queue)) = self.queues.get(shared.requests.queue as usize) {
            queue.state.release(places);
        }
    }

    /// Sends of a queue pair are done that do not complete.
    pub(super) fn count_unsignaled(&mut self, id: QueuePairId, count: u32) {
        let Some(Some(pair)) = self.pairs.get_mut(id.index as usize) else { return };
        if pair.id != id {
            return;
        }
        let mut was_held = false;
        for _ in 0..count {
            was_held |= pair.count_done(Operation::Send);
        }
        if let Some(Some(queue)) = self.queues.get(pair.sends.queue as usize) {
            queue.state.release(u64::from(count));
        }
        if was_held {
            self.again.push(id.index);
        }
    }
}
