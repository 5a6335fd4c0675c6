//! [`QueuePair`]: what its user holds, and how it goes on.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, TryLockError, Weak};
use std::task::{Context, Wake, Waker};

use bytes::Bytes;
use qpip::CloseReason;

use super::keys::{MemoryKey, SharedMemory};
use super::receives::{PostedRoom, ReceiveQueue, Room, SharedRoom};
use super::sends::{Posted, Request, SendQueue};
use super::{CompletionQueue, status_of};
use crate::runtime::locked;
use crate::stp::{Connection, Error, Memory, Part, Payload, RemoteRights};
use crate::verbs::queue::Queue;
use crate::verbs::{
    AtomicRequest, Completion, Operation, PartlyPosted, Phase, PhaseChange, PostError, QueuePairId,
    RdmaRequest, ReceiveRequest, SendRequest, Status,
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

/// Two queues of work requests over one connection of STP.
///
/// Dropped, what is under way is cancelled, and the connection is closed.
pub struct QueuePair {
    pair: Arc<Pair>,
    options: QueuePairOptions,
}

/// What goes on while its user does something else: where something that it waits for has
/// happened, by the thread that finds out.
struct Pair {
    id: QueuePairId,
    sends: Arc<Queue>,
    receives: Arc<Queue>,
    waker: Waker,
    connection: Connection,
    phase: Mutex<Phase>,
    state: Mutex<State>,
    /// There may be something to go on with.
    is_called: AtomicBool,
}

/// Something has happened that a queue pair waits for.
struct Call(Weak<Pair>);

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        // Who has dropped it waits for nothing.
        let Some(pair) = self.0.upgrade() else { return };
        pair.advance();
    }
}

/// Anyone who has had its lock calls [`Pair::advance`] after that.
struct State {
    sends: SendQueue,
    receives: ReceiveQueue,
    shared: SharedMemory,
    is_over: bool,
}

/// Room for messages that come to any of many queue pairs, which take it when a message needs
/// it.
#[derive(Clone)]
pub struct SharedReceiveQueue {
    room: Arc<SharedRoom>,
    completions: Arc<Queue>,
    depth: u32,
}

impl SharedReceiveQueue {
    /// Of this many requests, which complete there.
    #[must_use]
    pub fn new(completions: &CompletionQueue, depth: u32) -> Self {
        Self { room: Arc::default(), completions: Arc::clone(&completions.queue), depth }
    }

    /// Posts room.
    ///
    /// # Errors
    /// [`PostError::QueueFull`], [`PostError::CompletionQueueFull`]; nothing is posted then.
    pub fn post(&self, request: &ReceiveRequest<'_, Part>) -> Result<(), PostError> {
        if self.room.len() >= self.depth as usize {
            return Err(PostError::QueueFull);
        }
        if !self.completions.keep_place() {
            return Err(PostError::CompletionQueueFull);
        }
        self.room.post(PostedRoom { id: request.id, into: request.into.to_vec() });
        Ok(())
    }
}

impl fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("SharedReceiveQueue");
        shown.field("posted", &self.room.len()).field("depth", &self.depth).finish_non_exhaustive()
    }
}

impl QueuePair {
    /// Of a connection that nobody else uses. The other side makes one of its end.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn new(
        connection: &Connection,
        sends: &CompletionQueue,
        receives: &CompletionQueue,
        options: &QueuePairOptions,
    ) -> Result<Self, Error> {
        let room = Room::Own(std::collections::VecDeque::new());
        Self::with_room(connection, [&sends.queue, &receives.queue], options, room)
    }

    /// The same, with room that it shares. What it receives completes where that room does.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn sharing(
        connection: &Connection,
        sends: &CompletionQueue,
        room: &SharedReceiveQueue,
        options: &QueuePairOptions,
    ) -> Result<Self, Error> {
        let queues = [&sends.queue, &room.completions];
        Self::with_room(connection, queues, options, Room::Shared(Arc::clone(&room.room)))
    }

    fn with_room(
        connection: &Connection,
        queues: [&Arc<Queue>; 2],
        options: &QueuePairOptions,
        room: Room,
    ) -> Result<Self, Error> {
        /// Names of queue pairs are the process's.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let [sends, receives] = queues.map(Arc::clone);
        let state = State {
            sends: SendQueue::default(),
            receives: ReceiveQueue::new(room),
            shared: SharedMemory::default(),
            is_over: false,
        };
        let pair = Arc::new_cyclic(|me: &Weak<Pair>| Pair {
            id: QueuePairId::new(NEXT.fetch_add(1, Ordering::Relaxed), 0),
            waker: Waker::from(Arc::new(Call(Weak::clone(me)))),
            sends,
            receives,
            connection: connection.clone(),
            phase: Mutex::new(Phase::Connected),
            state: Mutex::new(state),
            is_called: AtomicBool::new(false),
        });
        pair.advance();
        if let Phase::Closed(_) = pair.phase() {
            return Err(Error::Closed { why: None });
        }
        Ok(Self { pair, options: *options })
    }

    /// The connection that it has.
    #[must_use]
    pub fn connection(&self) -> Connection {
        self.pair.connection.clone()
    }

    /// Lets the other side's queue pair use memory of this endpoint, until it is
    /// [withdrawn](Self::withdraw) or this queue pair is gone.
    pub fn share(&mut self, part: &Part, rights: RemoteRights) -> MemoryKey {
        let key = locked(&self.pair.state).shared.share(part, rights);
        self.pair.advance();
        key
    }

    /// The other side may not use it any more.
    pub fn withdraw(&mut self, key: &MemoryKey) {
        locked(&self.pair.state).shared.withdraw(key);
        self.pair.advance();
    }

    /// Posts a request to the send queue.
    fn post(&mut self, posted: Posted, request: Request) -> Result<(), PostError> {
        let result = self.post_later(posted, [request]);
        self.pair.advance();
        result
    }

    /// Posts requests of which the last completes for all, and begins none of them yet.
    fn post_later<const N: usize>(
        &mut self,
        posted: Posted,
        requests: [Request; N],
    ) -> Result<(), PostError> {
        let mut state = locked(&self.pair.state);
        if state.is_over {
            return Err(PostError::Ended);
        }
        if state.sends.len() + N > self.options.sends as usize {
            return Err(PostError::QueueFull);
        }
        if posted.is_signaled && !self.pair.sends.keep_place() {
            return Err(PostError::CompletionQueueFull);
        }
        for (nth, request) in (1..).zip(requests) {
            let is_signaled = posted.is_signaled && nth == N;
            state.sends.post(Posted { is_signaled, ..posted }, request);
        }
        Ok(())
    }

    fn post_message(&mut self, request: &SendRequest<'_, Part>) -> Result<(), PostError> {
        if request.to.is_some() {
            return Err(PostError::NotADatagram);
        }
        let SendRequest { id, from, is_signaled, immediate: word, .. } = *request;
        let posted = Posted { id, len: length(from)?, is_signaled };
        let payload = match from {
            [part] => Payload::from(part),
            parts => Payload::Memory(joined(parts)?),
        };
        self.post_later(posted, [Request::Message { payload, word }])
    }

    fn post_room(&mut self, request: &ReceiveRequest<'_, Part>) -> Result<(), PostError> {
        let mut state = locked(&self.pair.state);
        if state.is_over {
            return Err(PostError::Ended);
        }
        let Room::Own(posted) = &mut state.receives.room else {
            return Err(PostError::SharedReceives);
        };
        if posted.len() >= self.options.receives as usize {
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

fn length(parts: &[Part]) -> Result<u32, PostError> {
    let len: u64 = parts.iter().map(Part::len).sum();
    len.try_into().map_err(|_| PostError::TooLong)
}

/// A Transfer has one place: several parts are copied to one.
fn joined(parts: &[Part]) -> Result<Memory, PostError> {
    let mut memory = Memory::zeroed(length(parts)? as usize);
    let mut rest = &mut memory[..];
    for part in parts {
        let (here, behind) = rest.split_at_mut(part.len() as usize);
        part.copy_out(here).map_err(|_| PostError::UnknownKey)?;
        rest = behind;
    }
    Ok(memory)
}

impl crate::verbs::QueuePair for QueuePair {
    type Part = Part;

    fn id(&self) -> QueuePairId {
        self.pair.id
    }

    fn post_send(&mut self, request: &SendRequest<'_, Part>) -> Result<(), PostError> {
        let posted = self.post_message(request);
        self.pair.advance();
        posted
    }

    fn post_sends(&mut self, list: &[SendRequest<'_, Part>]) -> Result<(), PartlyPosted> {
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
        let payload = Payload::Bytes(Bytes::copy_from_slice(bytes));
        let posted = Posted { id, len, is_signaled: true };
        self.post(posted, Request::Message { payload, word: None })
    }

    fn post_receive(&mut self, request: &ReceiveRequest<'_, Part>) -> Result<(), PostError> {
        let posted = self.post_room(request);
        self.pair.advance();
        posted
    }

    fn post_receives(&mut self, list: &[ReceiveRequest<'_, Part>]) -> Result<(), PartlyPosted> {
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

impl crate::verbs::RdmaQueuePair for QueuePair {
    type Key = MemoryKey;

    fn post_write(&mut self, request: &RdmaRequest<'_, Part, MemoryKey>) -> Result<(), PostError> {
        let RdmaRequest { id, local, key, at, is_signaled, immediate } = *request;
        let len = check(request, RemoteRights::PUT)?;
        let from = local.to_vec();
        let (posted, write) = (Posted { id, len, is_signaled }, Request::Write { from, key, at });
        let Some(word) = immediate else { return self.post(posted, write) };
        // The message that has the word begins when the bytes are in place.
        let message = Request::Message { payload: Payload::Bytes(Bytes::new()), word: Some(word) };
        let result = self.post_later(posted, [write, message]);
        self.pair.advance();
        result
    }

    fn post_read(&mut self, request: &RdmaRequest<'_, Part, MemoryKey>) -> Result<(), PostError> {
        let RdmaRequest { id, local, key, at, is_signaled, .. } = *request;
        if request.immediate.is_some() {
            return Err(PostError::NoImmediates);
        }
        let len = check(request, RemoteRights::GET)?;
        let into = local.to_vec();
        self.post(Posted { id, len, is_signaled }, Request::Read { into, key, at })
    }

    fn post_atomic(&mut self, request: &AtomicRequest<Part, MemoryKey>) -> Result<(), PostError> {
        let AtomicRequest { id, ref into, key, at, function, is_signaled } = *request;
        if into.len() < 8 || !at.is_multiple_of(8) || !key.allows(RemoteRights::FETCH, at, 8) {
            return Err(PostError::OutOfBounds);
        }
        let request = Request::Atomic { into: into.clone(), key, at, function };
        self.post(Posted { id, len: 8, is_signaled }, request)
    }
}

/// How many bytes it is about, if the key allows that.
fn check(
    request: &RdmaRequest<'_, Part, MemoryKey>,
    right: RemoteRights,
) -> Result<u32, PostError> {
    let len = length(request.local)?;
    if !request.key.rights().has(right) {
        return Err(PostError::NoRight);
    }
    if !request.key.allows(right, request.at, len.into()) {
        return Err(PostError::OutOfBounds);
    }
    Ok(len)
}

impl Pair {
    /// Goes on with all that can go on, and completes what is done.
    ///
    /// A call of the endpoint under the lock may make a turn, which may call this again: then,
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
                self.advance_once(&mut state);
            }
            drop(state);
            self.sends.tell();
            self.receives.tell();
        }
    }

    fn phase(&self) -> Phase {
        *locked(&self.phase)
    }

    fn advance_once(&self, state: &mut State) {
        if state.is_over {
            return;
        }
        let cx = &mut Context::from_waker(&self.waker);
        state.shared.answer(&self.connection, cx);
        let is_over = state.receives.accept(&self.connection, cx);
        while let Some(arrived) = state.receives.next_done(cx) {
            let (id, len, status) = (arrived.id, arrived.len, arrived.status);
            let completion = self.completion(id, Operation::Receive, len, status);
            self.receives.complete(Completion { immediate: arrived.immediate, ..completion }, true);
            if !status.is_success() {
                self.connection.abort();
                return self.flush(state, CloseReason::Aborted);
            }
        }
        loop {
            state.sends.begin(&self.connection, cx);
            let Some((posted, status)) = state.sends.next_done(cx) else { break };
            self.complete_send(posted, status);
            if !status.is_success() {
                // What was posted behind it may rely on it.
                self.connection.abort();
                return self.flush(state, CloseReason::Aborted);
            }
        }
        if let Err(why) = is_over {
            self.end(state, &why);
        }
    }

    fn complete_send(&self, posted: Posted, status: Status) {
        if !posted.is_signaled && status.is_success() {
            return;
        }
        let Posted { id, len, is_signaled } = posted;
        self.sends.complete(self.completion(id, Operation::Send, len, status), is_signaled);
    }

    fn completion(&self, id: u64, operation: Operation, len: u32, status: Status) -> Completion {
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

    /// The connection is over: what is left is flushed.
    fn end(&self, state: &mut State, why: &Error) {
        let reason = match status_of(why) {
            Status::Success | Status::Flushed => CloseReason::Finished,
            Status::TimedOut => CloseReason::TimedOut,
            Status::Unreachable => CloseReason::Unreachable,
            Status::Reset | Status::RemoteAccess | Status::TooLong => CloseReason::Reset,
            Status::MemoryGone => CloseReason::Aborted,
        };
        self.flush(state, reason);
    }

    fn flush(&self, state: &mut State, reason: CloseReason) {
        for posted in state.sends.flush() {
            self.complete_send(posted, Status::Flushed);
        }
        for id in state.receives.flush() {
            let completion = self.completion(id, Operation::Receive, 0, Status::Flushed);
            self.receives.complete(completion, true);
        }
        state.is_over = true;
        let phase = Phase::Closed(reason);
        *locked(&self.phase) = phase;
        self.receives.change(PhaseChange { queue_pair: self.id, phase });
    }
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair").field("id", &self.pair.id).finish_non_exhaustive()
    }
}
