//! [`QueuePair`]: what its user holds, and how it goes on.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, TryLockError, Weak};
use std::task::{Context, Wake, Waker};

use super::queue::{Progress, Queue};
use super::room::{PostedRoom, Room, SharedReceiveQueue};
use super::{Carrier, CompletionQueue, Posted, Reach};
use crate::runtime::locked;
use crate::verbs::{
    AtomicRequest, CloseReason, Completion, Operation, PartlyPosted, Phase, PhaseChange, PostError,
    QueuePairId, RdmaQueuePair, RdmaRequest, ReceiveRequest, SendRequest, Status,
};

/// What a queue pair is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePairOptions {
    /// How many requests its send queue takes.
    pub sends: u32,
    /// How many its receive queue takes.
    pub receives: u32,
    /// How many bytes a message may have that is copied when it is posted.
    pub inline: usize,
}

impl Default for QueuePairOptions {
    fn default() -> Self {
        Self { sends: 128, receives: 128, inline: 4096 }
    }
}

/// Two queues of work requests over a carrier.
///
/// Dropped, what is under way is cancelled, and the connection is closed.
pub struct QueuePair<C: Carrier> {
    pair: Arc<Pair<C>>,
    options: QueuePairOptions,
}

/// What goes on while its user does something else: where something that it waits for has
/// happened, by the thread that finds out, or by one that looks.
struct Pair<C: Carrier> {
    id: QueuePairId,
    sends: Arc<Queue>,
    receives: Arc<Queue>,
    waker: Waker,
    phase: Mutex<Phase>,
    state: Mutex<State<C>>,
    /// There may be something to go on with.
    is_called: AtomicBool,
    /// A request waits for the other side.
    has_waiting: AtomicBool,
}

/// Something has happened that a queue pair waits for.
struct Call<C: Carrier>(Weak<Pair<C>>);

impl<C: Carrier> Wake for Call<C> {
    fn wake(self: Arc<Self>) {
        // Who has dropped it waits for nothing.
        let Some(pair) = self.0.upgrade() else { return };
        if C::ADVANCES_WHERE_WOKEN {
            return pair.advance();
        }
        let [sends, receives] = [&pair.sends, &pair.receives].map(|queue| queue.wake_sleepers());
        // Those who sleep look when they are awake, which is late where a message waits for
        // room and its sender sleeps for something else.
        if !(sends || receives) || pair.has_waiting.load(Ordering::SeqCst) {
            let sends = Arc::clone(&pair.sends);
            sends.leave_to_background(pair);
        }
    }
}

/// Anyone who has had its lock calls [`Pair::advance`] after that.
struct State<C: Carrier> {
    carrier: C,
    room: Room<C::Part>,
    is_over: bool,
}

/// Where the requests of a queue pair complete, and whose room it has.
pub(in crate::verbs) struct Queues<P> {
    sends: Arc<Queue>,
    receives: Arc<Queue>,
    room: Room<P>,
}

impl<P> Queues<P> {
    pub(in crate::verbs) fn own<N: super::Node>(
        sends: &CompletionQueue<N>,
        receives: &CompletionQueue<N>,
    ) -> Self {
        let [sends, receives] = [sends, receives].map(|queue| Arc::clone(queue.queue()));
        Self { sends, receives, room: Room::Own(VecDeque::new()) }
    }

    /// What it receives completes where that room does.
    pub(in crate::verbs) fn sharing<C: Carrier<Part = P>>(
        sends: &CompletionQueue<C::Node>,
        room: &SharedReceiveQueue<C>,
    ) -> Self {
        let (sends, receives) = (Arc::clone(sends.queue()), Arc::clone(room.completions()));
        Self { sends, receives, room: room.room() }
    }
}

impl<C: Carrier> QueuePair<C> {
    pub(in crate::verbs) fn with(
        carrier: C,
        queues: Queues<C::Part>,
        options: &QueuePairOptions,
    ) -> Self {
        /// Names of queue pairs are the process's.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let Queues { sends, receives, room } = queues;
        let pair = Arc::new_cyclic(|me: &Weak<Pair<C>>| Pair {
            id: QueuePairId::new(NEXT.fetch_add(1, Ordering::Relaxed), 0),
            waker: Waker::from(Arc::new(Call(Weak::clone(me)))),
            sends,
            receives,
            phase: Mutex::new(Phase::Connected),
            state: Mutex::new(State { carrier, room, is_over: false }),
            is_called: AtomicBool::new(false),
            has_waiting: AtomicBool::new(false),
        });
        if !C::ADVANCES_WHERE_WOKEN {
            for queue in [&pair.sends, &pair.receives] {
                let pair: Arc<dyn Progress> = Arc::<Pair<C>>::clone(&pair);
                queue.look_at(Arc::downgrade(&pair));
            }
        }
        pair.advance();
        Self { pair, options: *options }
    }

    /// Something is asked of the carrier, which may then go on.
    pub(in crate::verbs) fn ask<T>(&self, question: impl FnOnce(&mut C) -> T) -> T {
        let answer = question(&mut locked(&self.pair.state).carrier);
        self.pair.advance();
        answer
    }

    /// Posts a request to the send queue.
    fn post(&mut self, posted: Posted, request: C::Request) -> Result<(), PostError> {
        let result = self.post_later(posted, [request]);
        self.pair.advance();
        result
    }

    /// Posts requests of which the last completes for all, and begins none of them yet.
    fn post_later<const N: usize>(
        &mut self,
        posted: Posted,
        requests: [C::Request; N],
    ) -> Result<(), PostError> {
        let mut state = locked(&self.pair.state);
        if state.is_over {
            return Err(PostError::Ended);
        }
        if state.carrier.sends() + N > self.options.sends as usize {
            return Err(PostError::QueueFull);
        }
        if posted.is_signaled && !self.pair.sends.keep_place() {
            return Err(PostError::CompletionQueueFull);
        }
        for (nth, request) in (1..).zip(requests) {
            let is_signaled = posted.is_signaled && nth == N;
            state.carrier.post(Posted { is_signaled, ..posted }, request);
        }
        Ok(())
    }

    fn post_message(&mut self, request: &SendRequest<'_, C::Part>) -> Result<(), PostError> {
        if request.to.is_some() {
            return Err(PostError::NotADatagram);
        }
        let SendRequest { id, from, is_signaled, immediate, .. } = *request;
        let posted = Posted { id, len: length::<C>(from)?, is_signaled };
        self.post_later(posted, [C::message(from, immediate)?])
    }

    fn post_room(&mut self, request: &ReceiveRequest<'_, C::Part>) -> Result<(), PostError> {
        C::check_room(request.into)?;
        let mut state = locked(&self.pair.state);
        if state.is_over {
            return Err(PostError::Ended);
        }
        let taken = state.carrier.rooms_taken();
        let Room::Own(posted) = &mut state.room else {
            return Err(PostError::SharedReceives);
        };
        if posted.len() + taken >= self.options.receives as usize {
            return Err(PostError::QueueFull);
        }
        if !self.pair.receives.keep_place() {
            return Err(PostError::CompletionQueueFull);
        }
        posted.push_back(PostedRoom { id: request.id, into: request.into.to_vec() });
        Ok(())
    }
}

/// Posts all of a list, or as many as can be.
fn post_all<R>(
    list: &[R],
    mut post: impl FnMut(&R) -> Result<(), PostError>,
) -> Result<(), PartlyPosted> {
    for (posted, request) in list.iter().enumerate() {
        post(request).map_err(|error| PartlyPosted { posted, error })?;
    }
    Ok(())
}

fn length<C: Carrier>(parts: &[C::Part]) -> Result<u32, PostError> {
    let len: u64 = parts.iter().map(C::part_len).sum();
    len.try_into().map_err(|_| PostError::TooLong)
}

impl<C: Carrier> crate::verbs::QueuePair for QueuePair<C> {
    type Part = C::Part;

    fn id(&self) -> QueuePairId {
        self.pair.id
    }

    fn post_send(&mut self, request: &SendRequest<'_, C::Part>) -> Result<(), PostError> {
        let posted = self.post_message(request);
        self.pair.advance();
        posted
    }

    fn post_sends(&mut self, list: &[SendRequest<'_, C::Part>]) -> Result<(), PartlyPosted> {
        let posted = post_all(list, |request| self.post_message(request));
        self.pair.advance();
        posted
    }

    fn post_inline(
        &mut self,
        id: u64,
        bytes: &[u8],
        to: Option<SocketAddr>,
    ) -> Result<(), PostError> {
        if to.is_some() {
            return Err(PostError::NotADatagram);
        }
        if bytes.len() > self.options.inline {
            return Err(PostError::TooLong);
        }
        let len = bytes.len().try_into().map_err(|_| PostError::TooLong)?;
        self.post(Posted { id, len, is_signaled: true }, C::inline(bytes, None))
    }

    fn post_receive(&mut self, request: &ReceiveRequest<'_, C::Part>) -> Result<(), PostError> {
        let posted = self.post_room(request);
        self.pair.advance();
        posted
    }

    fn post_receives(&mut self, list: &[ReceiveRequest<'_, C::Part>]) -> Result<(), PartlyPosted> {
        let posted = post_all(list, |request| self.post_room(request));
        self.pair.advance();
        posted
    }

    fn takes_immediates(&self) -> bool {
        true
    }

    fn phase(&self) -> Phase {
        self.pair.phase()
    }
}

impl<C: Carrier> RdmaQueuePair for QueuePair<C> {
    type Key = C::Key;

    fn post_write(&mut self, request: &RdmaRequest<'_, C::Part, C::Key>) -> Result<(), PostError> {
        let posted = check::<C>(request, Reach::Write)?;
        let write = C::write(request);
        let Some(word) = request.immediate else { return self.post(posted, write) };
        // The message that has the word begins when the bytes are in place.
        let result = self.post_later(posted, [write, C::inline(&[], Some(word))]);
        self.pair.advance();
        result
    }

    fn post_read(&mut self, request: &RdmaRequest<'_, C::Part, C::Key>) -> Result<(), PostError> {
        if request.immediate.is_some() {
            return Err(PostError::NoImmediates);
        }
        self.post(check::<C>(request, Reach::Read)?, C::read(request))
    }

    fn post_atomic(&mut self, request: &AtomicRequest<C::Part, C::Key>) -> Result<(), PostError> {
        C::check_key(&request.key, Reach::Change, request.at, 8)?;
        if C::part_len(&request.into) < 8 || !request.at.is_multiple_of(8) {
            return Err(PostError::OutOfBounds);
        }
        let posted = Posted { id: request.id, len: 8, is_signaled: request.is_signaled };
        self.post(posted, C::atomic(request))
    }
}

/// What its completion will say, if its key allows it.
fn check<C: Carrier>(
    request: &RdmaRequest<'_, C::Part, C::Key>,
    reach: Reach,
) -> Result<Posted, PostError> {
    let len = length::<C>(request.local)?;
    C::check_key(&request.key, reach, request.at, len.into())?;
    Ok(Posted { id: request.id, len, is_signaled: request.is_signaled })
}

impl<C: Carrier> Progress for Pair<C> {
    /// Goes on with all that can go on, and completes what is done.
    ///
    /// A call of the carrier under the lock may make a turn, which may call this again: then,
    /// as when another thread has the lock, that one goes on once more.
    fn advance(&self) {
        self.is_called.store(true, Ordering::SeqCst);
        while self.is_called.load(Ordering::SeqCst) {
            let mut state = match self.state.try_lock() {
                Ok(state) => state,
                Err(TryLockError::Poisoned(state)) => state.into_inner(),
                // Who has it goes on for us.
                Err(TryLockError::WouldBlock) => return,
            };
            while self.is_called.swap(false, Ordering::SeqCst) {
                if self.advance_once(&mut state) {
                    self.is_called.store(true, Ordering::SeqCst);
                }
            }
            drop(state);
            self.sends.tell();
            self.receives.tell();
        }
    }
}

impl<C: Carrier> Pair<C> {
    fn phase(&self) -> Phase {
        *locked(&self.phase)
    }

    /// True: there is a reason to look once more.
    fn advance_once(&self, state: &mut State<C>) -> bool {
        if state.is_over {
            return false;
        }
        let cx = &mut Context::from_waker(&self.waker);
        let State { carrier, room, .. } = state;
        let received = carrier.receive(room, cx);
        while let Some(arrived) = carrier.next_received(cx) {
            let completion =
                self.completion(arrived.id, Operation::Receive, arrived.len, arrived.status);
            self.receives.complete(Completion { immediate: arrived.immediate, ..completion }, true);
            if !arrived.status.is_success() {
                return self.abort(state);
            }
        }
        while let Some((posted, status)) = carrier.next_sent(cx) {
            self.complete_send(posted, status);
            if !status.is_success() {
                // What was posted behind it may rely on it.
                return self.abort(state);
            }
        }
        self.has_waiting.store(carrier.sends() > 0, Ordering::SeqCst);
        let is_watched = self.sends.has_sleeper() || self.receives.has_sleeper();
        let settled = received.and_then(|()| carrier.settle(is_watched, cx));
        settled.unwrap_or_else(|reason| self.flush(state, reason))
    }

    fn abort(&self, state: &mut State<C>) -> bool {
        state.carrier.abort();
        self.flush(state, CloseReason::Aborted)
    }

    fn complete_send(&self, posted: Posted, status: Status) {
        if !posted.is_signaled && status.is_success() {
            return;
        }
        let Posted { id, len, is_signaled } = posted;
        self.sends.complete(self.completion(id, Operation::Send, len, status), is_signaled);
    }

    const fn completion(
        &self,
        id: u64,
        operation: Operation,
        len: u32,
        status: Status,
    ) -> Completion {
        Completion {
            id,
            queue_pair: self.id,
            operation,
            status,
            len,
            offset: 0,
            ends_message: true,
            ends_request: true,
            from: None,
            immediate: None,
        }
    }

    /// The connection is over: what is left is flushed. Nothing is left to look for.
    fn flush(&self, state: &mut State<C>, reason: CloseReason) -> bool {
        let (mut rooms, sends) = state.carrier.flush();
        for posted in sends {
            self.complete_send(posted, Status::Flushed);
        }
        if let Room::Own(posted) = &mut state.room {
            rooms.extend(posted.drain(..).map(|room| room.id));
        }
        for id in rooms {
            let completion = self.completion(id, Operation::Receive, 0, Status::Flushed);
            self.receives.complete(completion, true);
        }
        state.is_over = true;
        let phase = Phase::Closed(reason);
        *locked(&self.phase) = phase;
        self.receives.change(PhaseChange { queue_pair: self.id, phase });
        false
    }
}

impl<C: Carrier> fmt::Debug for QueuePair<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair").field("id", &self.pair.id).finish_non_exhaustive()
    }
}
