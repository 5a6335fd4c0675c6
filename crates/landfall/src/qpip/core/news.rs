//! What the engine tells beside completions, and whom it concerns.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use landfall_placement::Engine as _;
use qpip::{Event, ListenerId, QueuePairId};

use super::Core;
use crate::qpip::error::Error;
use crate::qpip::pair_state::{PairState, Phase, watch};
use crate::runtime::locked;

/// The adapter's end of a listener.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) id: ListenerId,
    pub(super) state: Arc<ListenerState>,
}

/// What both sides of a listener know.
#[derive(Debug, Default)]
pub(crate) struct ListenerState(Mutex<Mated>);

#[derive(Debug, Default)]
struct Mated {
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

impl Core {
    /// Hears what the engine has to tell. Gives whether there was anything.
    pub(crate) fn hear(&mut self) -> bool {
        let mut moved = self.move_stalled();
        loop {
            moved |= self.tell_of_connections();
            let Some(event) = self.heard.pop_front() else { return moved };
            moved = true;
            self.tell(event);
        }
    }

    /// Tells of connections before anything else, and keeps the rest in its order. Gives
    /// whether there were any.
    ///
    /// So a listener has a queue pair to hand out before the first completion of it can be
    /// polled. In the engine's order a queue that many share would overtake: it is emptied
    /// whole, with what was completed after the news of it was written.
    pub(super) fn tell_of_connections(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.engine.poll_event() {
            match event {
                Event::Connected { queue_pair, local, remote } => {
                    if let Some(state) = self.state_of(queue_pair) {
                        state.connect(&mut self.wake, local, remote);
                    }
                }
                Event::Accepted { listener, queue_pair, local, remote } => {
                    if let Some(state) = self.state_of(queue_pair) {
                        state.connect(&mut self.wake, local, remote);
                    }
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
            Event::PeerFinished { queue_pair } => self.enter_phase(queue_pair, Phase::PeerFinished),
            Event::Closed { queue_pair, reason } => {
                self.enter_phase(queue_pair, Phase::Closed(reason));
            }
            // Told at once, or nothing that concerns a handle.
            _ => {}
        }
    }

    pub(super) fn enter_phase(&mut self, id: QueuePairId, phase: Phase) {
        if let Some(state) = self.state_of(id) {
            state.enter(&mut self.wake, phase);
        }
    }

    fn state_of(&self, id: QueuePairId) -> Option<Arc<PairState>> {
        let pair = self.pairs.get(id.index as usize)?.as_ref()?;
        (pair.id == id).then(|| Arc::clone(&pair.state))
    }

    /// Nothing moves any more: who waits would wait in vain.
    pub(super) fn lose_all(&mut self) {
        let wake = &mut self.wake;
        self.pairs.iter().flatten().for_each(|pair| pair.state.lose(wake));
        self.queues.iter().flatten().for_each(|queue| queue.state.lose(wake));
        self.listeners.iter().flatten().for_each(|known| known.state.lose(wake));
    }
}
