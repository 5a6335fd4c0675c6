//! What is done goes from the engine into the rings that its users poll.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use landfall_placement::Engine as _;
use qpip::{Arm, Completion, CompletionQueueId, Event, ListenerId, QueuePairId, Status};
use rtrb::Producer;

use super::AdapterState;
use crate::qpip::completion_queue::QueueState;
use crate::qpip::error::Error;
use crate::qpip::pair_state::{Phase, watch};
use crate::runtime::locked;

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

    /// Returns whether it is solicited.
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

impl AdapterState {
    pub(super) fn queue(&self, id: CompletionQueueId) -> Option<&Queue> {
        self.queues.get(id.index as usize)?.as_ref().filter(|queue| queue.id == id)
    }

    /// Moves what the engine has completed, as far as there is room.
    pub(super) fn move_completions(&mut self, index: u32) -> bool {
        self.deliver_connection_events();
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

// What the engine tells beside completions, and whom it concerns.

/// The adapter's end of a listener.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) id: ListenerId,
    pub(super) state: Arc<ListenerState>,
}

/// What both sides of a listener know.
#[derive(Debug, Default)]
pub(crate) struct ListenerState(Mutex<AcceptedPairs>);

#[derive(Debug, Default)]
struct AcceptedPairs {
    /// Queue pairs that got a connection and were not handed out yet.
    ready: VecDeque<QueuePairId>,
    is_gone: bool,
    watchers: Vec<Waker>,
}

impl ListenerState {
    fn mate(&self, wake: &mut Vec<Waker>, id: QueuePairId) {
        let mut mated = locked(&self.0);
        mated.ready.push_back(id);
        wake.append(&mut mated.watchers);
    }

    fn lose(&self, wake: &mut Vec<Waker>) {
        let mut mated = locked(&self.0);
        mated.is_gone = true;
        wake.append(&mut mated.watchers);
    }

    /// The next queue pair that was mated.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<Result<QueuePairId, Error>> {
        let mut mated = locked(&self.0);
        if let Some(id) = mated.ready.pop_front() {
            return Poll::Ready(Ok(id));
        }
        if mated.is_gone {
            return Poll::Ready(Err(Error::AdapterGone));
        }
        let oldest = watch(&mut mated.watchers, cx.waker());
        drop(mated);
        oldest.into_iter().for_each(Waker::wake);
        Poll::Pending
    }
}

impl AdapterState {
    /// Hears what the engine has to tell. Returns whether there was anything.
    pub(crate) fn hear(&mut self) -> bool {
        let mut moved = self.move_stalled();
        loop {
            moved |= self.deliver_connection_events();
            let Some(event) = self.heard.pop_front() else { break };
            moved = true;
            self.tell(event);
        }
        self.count_taken();
        moved
    }

    /// Tells of connections before anything else, and keeps the rest in its order. Returns
    /// whether there were any.
    ///
    /// So a listener has a queue pair to hand out before the first completion of it can be
    /// polled. In the engine's order a queue that many share would overtake: it is emptied
    /// whole, with what was completed after the news of it was written.
    pub(super) fn deliver_connection_events(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.engine.poll_event() {
            match event {
                Event::Connected { queue_pair, local, remote } => {
                    self.connect_pair(queue_pair, local, remote);
                }
                Event::Accepted { listener, queue_pair, local, remote } => {
                    self.connect_pair(queue_pair, local, remote);
                    if let Some(Some(known)) = self.listeners.get(listener.index as usize)
                        && known.id == listener
                    {
                        known.state.mate(&mut self.wake, queue_pair);
                    }
                }
                other => {
                    self.heard.push_back(other);
                    continue;
                }
            }
            any = true;
        }
        any
    }

    fn tell(&mut self, event: Event) {
        match event {
            Event::CompletionsReady { queue } => {
                self.move_completions(queue.index);
            }
            Event::UnsignaledDone { queue_pair, count } => self.count_unsignaled(queue_pair, count),
            Event::PeerFinished { queue_pair } => self.enter_phase(queue_pair, Phase::PeerFinished),
            Event::Closed { queue_pair, reason } => {
                self.enter_phase(queue_pair, Phase::Closed(reason));
            }
            // Told at once, or nothing that concerns one handle alone.
            other => self.notices.note(&other),
        }
    }

    /// The connection of a queue pair is open.
    fn connect_pair(&mut self, id: QueuePairId, local: SocketAddr, remote: SocketAddr) {
        if let Some(Some(pair)) = self.pairs.get(id.index as usize)
            && pair.id == id
        {
            pair.state.connect(&mut self.wake, local, remote);
            pair.tell_change(&mut self.wake);
        }
    }

    pub(super) fn enter_phase(&mut self, id: QueuePairId, phase: Phase) {
        if let Some(Some(pair)) = self.pairs.get(id.index as usize)
            && pair.id == id
        {
            pair.state.enter(&mut self.wake, phase);
            if phase != Phase::Opening {
                pair.tell_change(&mut self.wake);
            }
        }
    }

    /// Nothing moves any more: who waits would wait in vain.
    pub(super) fn lose_all(&mut self) {
        let wake = &mut self.wake;
        self.pairs.iter().flatten().for_each(|pair| pair.state.lose(wake));
        self.queues.iter().flatten().for_each(|queue| queue.state.lose(wake));
        self.listeners.iter().flatten().for_each(|known| known.state.lose(wake));
    }
}
