//! Work requests come out of their rings and go to the engine.
//!
//! What its user could check was checked when it was posted. What only the
//! engine sees (memory that was deregistered meanwhile, a connection that has
//! ended) completes with an error, behind what was posted before it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Waker;

use landfall_placement::{Area, Instant, RegionId};
use landfall_transport::memory::Memory;
use qpip::{
    Completion, CompletionQueueId, DomainId, ListenerId, Mapping, MemoryKey, Operation, PostError,
    QueuePairId, QueuePairSetup, ReceiveWork, SendWork, Service, Status,
};
use rtrb::{Consumer, Producer, RingBuffer};

use super::completions::{ListenerState, Listening, Queue};
use super::{AdapterState, enter, has_ended};
use crate::qpip::completion_queue::{PhaseChange, QueueState};
use crate::qpip::doorbell::{Entry, Request, pop, ring};
use crate::qpip::error::Error;
use crate::qpip::pair_state::{PairState, Phase};

/// The adapter's end of a queue pair.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) id: QueuePairId,
    pub(super) state: Arc<PairState>,
    /// Where it is told what happens to its connection, beside its state.
    changes: Option<Arc<QueueState>>,
    /// It keeps a place where its receives complete.
    pub(super) keeps_place: bool,
    /// It takes its room from elsewhere: nothing is in the ring of its receives.
    pub(super) is_sharing: bool,
    pub(super) sends: WorkQueue,
    pub(super) receives: WorkQueue,
}

/// One of its queues.
#[derive(Debug)]
pub(super) struct WorkQueue {
    ring: Consumer<Entry>,
    /// Where its requests complete.
    pub(super) queue: u32,
    /// Requests that the engine has.
    under_way: u32,
    /// The next one, which came out of the ring and could not go on yet.
    pub(super) held: Option<Held>,
}

#[derive(Debug)]
pub(super) enum Held {
    /// It completes so, once all before it have completed.
    Failed(u64, Status),
    /// The engine had no room for it.
    Crowded(Request),
}

/// What became of an attempt to post the next request.
enum Next {
    /// It is posted, or completed with an error.
    Gone,
    /// There is none.
    Nothing,
    /// It waits.
    Waits,
}

impl WorkQueue {
    pub(super) const fn new(ring: Consumer<Entry>, queue: u32) -> Self {
        Self { ring, queue, under_way: 0, held: None }
    }

    /// Takes the next request, or the one that waits.
    pub(super) fn take(&mut self, into: &mut Request) -> Option<Option<Status>> {
        match self.held.take() {
            Some(Held::Failed(id, status)) => {
                into.id = id;
                Some(Some(status))
            }
            Some(Held::Crowded(request)) => {
                *into = request;
                Some(None)
            }
            None => pop(&mut self.ring, into).then_some(None),
        }
    }
}

impl Pair {
    /// Its connection is somewhere else now, which its state says already.
    pub(super) fn tell_change(&self, wake: &mut Vec<Waker>) {
        if let Some(changes) = &self.changes {
            let change = PhaseChange { queue_pair: self.id, phase: self.state.phase() };
            changes.tell_change(change, wake);
        }
    }

    pub(super) const fn side(&mut self, operation: Operation) -> &mut WorkQueue {
        match operation {
            Operation::Send => &mut self.sends,
            Operation::Receive => &mut self.receives,
        }
    }

    /// A request that the engine had is done. True: the next one waited for that.
    #[inline]
    pub(super) fn count_done(&mut self, operation: Operation) -> bool {
        if self.is_sharing && operation == Operation::Receive {
            return false;
        }
        self.state.count_done(operation);
        let side = self.side(operation);
        side.under_way = side.under_way.saturating_sub(1);
        side.held.is_some()
    }
}

impl AdapterState {
    /// Takes everything that was posted. Returns whether there was anything.
    pub(crate) fn take_posts(&mut self, now: Instant) -> bool {
        let mut rung = std::mem::take(&mut self.rung);
        rung.append(&mut self.again);
        self.doorbells.take(|index| rung.push(index));
        let mut moved = false;
        for index in &rung {
            moved |= self.empty_rings(now, *index);
        }
        rung.clear();
        self.rung = rung;
        moved
    }

    /// Posts what is in the rings of one queue pair.
    pub(super) fn empty_rings(&mut self, now: Instant, index: u32) -> bool {
        let mut moved = false;
        if let Some(nth) = self.shared_receives_of(index) {
            return self.empty_shared_ring(now, nth, index);
        }
        for operation in [Operation::Receive, Operation::Send] {
            loop {
                match self.post_next(now, index, operation) {
                    Next::Gone => moved = true,
                    Next::Nothing => break,
                    Next::Waits => {
                        self.again.push(index);
                        break;
                    }
                }
            }
        }
        moved
    }

    fn post_next(&mut self, now: Instant, index: u32, operation: Operation) -> Next {
        let Some(Some(pair)) = self.pairs.get_mut(index as usize) else { return Next::Nothing };
        let (id, request) = (pair.id, &mut self.request);
        let side = pair.side(operation);
        let Some(failed) = side.take(request) else { return Next::Nothing };
        let result = match (failed, operation) {
            (Some(status), _) => Err(Some(status)),
            (None, Operation::Send) => {
                let work = SendWork {
                    id: request.id,
                    from: &request.buffers,
                    to: request.to,
                    is_signaled: request.is_signaled,
                    immediate: request.immediate,
                };
                self.engine.post_send(now, id, &work).map_err(status_of)
            }
            (None, Operation::Receive) => {
                let work = ReceiveWork { id: request.id, into: &request.buffers };
                self.engine.post_receive(now, id, &work).map_err(status_of)
            }
        };
        match result {
            Ok(()) => {
                side.under_way += 1;
                Next::Gone
            }
            Err(Some(status)) => self.fail(index, operation, status),
            Err(None) => {
                side.held = Some(Held::Crowded(std::mem::take(request)));
                Next::Waits
            }
        }
    }

    /// Completes the request that was just taken with an error, or keeps it until
    /// it is its turn.
    fn fail(&mut self, index: u32, operation: Operation, status: Status) -> Next {
        let name = self.request.id;
        let Some(Some(pair)) = self.pairs.get_mut(index as usize) else { return Next::Nothing };
        let queue = pair.side(operation).queue;
        if pair.side(operation).under_way == 0 {
            // Behind everything that the engine has completed there.
            self.move_completions(queue);
            let Some(Some(pair)) = self.pairs.get_mut(index as usize) else { return Next::Nothing };
            let completion = failed_request(pair.id, name, operation, status);
            if let Some(Some(queue)) = self.queues.get_mut(queue as usize)
                && queue.has_room()
            {
                pair.state.count_done(operation);
                queue.put(&completion, &mut self.wake);
                return Next::Gone;
            }
        }
        let Some(Some(pair)) = self.pairs.get_mut(index as usize) else { return Next::Nothing };
        pair.side(operation).held = Some(Held::Failed(name, status));
        Next::Waits
    }

    /// A queue pair is gone: what the engine never had completes as flushed, or
    /// gives its place back where there is no room to say so.
    pub(super) fn flush(&mut self, mut pair: Pair) {
        let id = pair.id;
        for operation in [Operation::Receive, Operation::Send] {
            let side = pair.side(operation);
            while side.take(&mut self.request).is_some() {
                let completion = failed_request(id, self.request.id, operation, Status::Flushed);
                let Some(Some(queue)) = self.queues.get_mut(side.queue as usize) else { break };
                if queue.has_room() {
                    queue.put(&completion, &mut self.wake);
                } else {
                    queue.state.release(1);
                }
            }
        }
        if pair.keeps_place
            && let Some(Some(queue)) = self.queues.get(pair.receives.queue as usize)
        {
            queue.state.release(1);
        }
    }
}

pub(super) fn failed_request(
    queue_pair: QueuePairId,
    id: u64,
    operation: Operation,
    status: Status,
) -> Completion {
    Completion {
        id,
        queue_pair,
        operation,
        status,
        len: 0,
        offset: 0,
        ends_message: false,
        ends_request: true,
        from: None,
        immediate: None,
    }
}

/// How a request completes that the engine refused; or it has to wait.
pub(super) const fn status_of(error: PostError) -> Option<Status> {
    match error {
        PostError::QueueFull | PostError::CompletionQueueFull => None,
        PostError::TooLong => Some(Status::TooLong),
        PostError::NoRoute | PostError::NoDestination => Some(Status::Unreachable),
        PostError::UnknownKey
        | PostError::WrongDomain
        | PostError::NoRight
        | PostError::OutOfBounds => Some(Status::MemoryGone),
        // The queue pair has ended meanwhile. What else the engine could say was
        // checked where it was posted.
        _ => Some(Status::Flushed),
    }
}

// What handles ask of the management.

/// The user's ends of a new queue pair.
#[derive(Debug)]
pub(crate) struct NewPair {
    pub(crate) id: QueuePairId,
    pub(crate) state: Arc<PairState>,
    pub(crate) sends: Producer<Entry>,
    pub(crate) receives: Producer<Entry>,
}

impl AdapterState {
    pub(crate) fn create_queue(
        &mut self,
        capacity: u32,
    ) -> Result<(CompletionQueueId, Arc<QueueState>, Consumer<Completion>), Error> {
        let id = self.engine.create_completion_queue(capacity)?;
        let (producer, consumer) = RingBuffer::new(capacity as usize);
        let state = Arc::new(QueueState::new(capacity));
        let queue = Queue { id, state: Arc::clone(&state), ring: Some(producer) };
        enter(&mut self.queues, id.index, queue);
        // From now on the engine tells when there is something.
        self.move_completions(id.index);
        Ok((id, state, consumer))
    }

    /// Makes a queue pair whose requests have at most this many buffers.
    pub(crate) fn create_pair(
        &mut self,
        setup: &QueuePairSetup,
        buffers: u16,
        tells: bool,
    ) -> Result<NewPair, Error> {
        let id = self.engine.create_queue_pair(setup)?;
        // A datagram's destination is an entry of its own, and so is a message's word.
        let has_aside = setup.service != Service::Tcp(Mapping::Stream);
        let entries = buffers + u16::from(has_aside);
        let (sends, send_ring) = ring(setup.send_depth, entries);
        let (receives, receive_ring) = ring(setup.receive_depth, buffers);
        let state = Arc::new(PairState::default());
        // The engine keeps a place for the part of a request, too.
        let is_stream = setup.service == Service::Tcp(Mapping::Stream);
        let queue = self.queue(setup.receive_completions).filter(|_| is_stream);
        let keeps_place = queue.is_some_and(|queue| queue.state.reserve());
        let queue = self.queue(setup.receive_completions).filter(|_| tells);
        let changes = queue.map(|queue| Arc::clone(&queue.state));
        let pair = Pair {
            id,
            changes,
            state: Arc::clone(&state),
            keeps_place,
            is_sharing: setup.shared_receives.is_some(),
            sends: WorkQueue::new(send_ring, setup.send_completions.index),
            receives: WorkQueue::new(receive_ring, setup.receive_completions.index),
        };
        enter(&mut self.pairs, id.index, pair);
        Ok(NewPair { id, state, sends, receives })
    }

    /// Its user has dropped it.
    pub(crate) fn destroy_pair(&mut self, now: Instant, id: QueuePairId) {
        // What the engine does not know is not there.
        let _ = self.engine.destroy_queue_pair(now, id);
        self.hear();
        let known = self.pairs.get_mut(id.index as usize);
        let Some(pair) = known.and_then(|known| known.take_if(|pair| pair.id == id)) else {
            return;
        };
        self.flush(pair);
    }

    pub(crate) fn connect(
        &mut self,
        now: Instant,
        id: QueuePairId,
        local: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Result<(), Error> {
        self.engine.connect(now, id, local, remote)?;
        self.enter_phase(id, Phase::Opening);
        Ok(())
    }

    pub(crate) fn listen(
        &mut self,
        local: SocketAddr,
    ) -> Result<(ListenerId, Arc<ListenerState>), Error> {
        let id = self.engine.listen(local)?;
        let state = Arc::<ListenerState>::default();
        enter(&mut self.listeners, id.index, Listening { id, state: Arc::clone(&state) });
        Ok((id, state))
    }

    pub(crate) fn stop_listening(&mut self, id: ListenerId) {
        // What the engine does not know is not there.
        let _ = self.engine.stop_listening(id);
        if let Some(known) = self.listeners.get_mut(id.index as usize) {
            known.take_if(|listening| listening.id == id);
        }
    }

    pub(crate) fn offer(&mut self, listener: ListenerId, id: QueuePairId) -> Result<(), Error> {
        self.engine.offer(listener, id)?;
        self.enter_phase(id, Phase::Opening);
        Ok(())
    }

    /// Registers lent memory.
    pub(crate) fn register(
        &mut self,
        domain: DomainId,
        region: RegionId,
        (len, access): (u64, qpip::Access),
    ) -> Result<MemoryKey, Error> {
        Ok(self.engine.register(domain, Area::new(region, 0, len), access)?)
    }

    /// Takes registered memory back, if nothing uses it.
    pub(crate) fn deregister(&mut self, key: MemoryKey, region: RegionId) -> Result<Memory, Error> {
        match self.engine.deregister(key) {
            // Taken back half before, while a driver held it.
            Ok(_) | Err(qpip::Error::Unknown(_)) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(self.regions.try_take_back(region)?)
    }

    /// Nobody wants this memory any more: it is freed once nothing uses it.
    pub(crate) fn drop_memory(&mut self, key: MemoryKey, region: RegionId) {
        match self.deregister(key, region) {
            Err(Error::TakeBack(_)) if !has_ended(&self.regions, region) => {
                self.orphans.push(region);
            }
            Err(error) if error.is_busy() => self.dropped.push((key, region)),
            _ => {}
        }
    }

    /// Its user is gone: it ends with the last that belongs to it.
    pub(crate) fn drop_domain(&mut self, id: DomainId) {
        if let Err(qpip::Error::Busy(_)) = self.engine.destroy_domain(id) {
            self.left.push(id);
        }
    }
}
