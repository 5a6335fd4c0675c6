//! A queue pair with what a socket needs of it, from the wait for a connection to its end.
//!
//! Bytes that go over a queue pair lie in a [`Ring`] until they are acknowledged, or in
//! [`SendMemory`](super::SendMemory).
//!
//! Bytes that come over a queue pair: memory is posted in slots, and read where it was
//! filled.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::io;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use landfall::qpip::{
    Access, Adapter, CloseReason, Completion, CompletionQueue, Error, Listener, Mapping, Memory,
    MemoryRegion, Phase, PostError, QueuePair, QueuePairId, QueuePairOptions, Status,
};

use super::landed::Landed;
use super::ring::{DEPTH, LentBytes, Ring};
use super::{QpHost, QpOptions, broken, ended, failed};
use crate::address::Address;
use crate::duplex::{Duplex, Sink, Source};
use crate::errors;
use crate::linger::see_off;
use crate::listener::Accept;
use crate::waiting::{locked, poll_once};

/// The registered memory of a connection, both ways. It is dear to come by: the next
/// connection takes that of one that is over.
#[derive(Clone)]
struct Buffers {
    slots: Arc<Slots>,
    ring: Arc<MemoryRegion>,
}

impl Buffers {
    fn new(host: &QpHost) -> io::Result<Self> {
        let ring = Ring::register(host, host.options.send_buffer.max(4096))?;
        Ok(Self { slots: Arc::new(Slots::new(host)?), ring })
    }
}

/// [`Buffers`] that no connection of a listener has, while that or one of those is there.
#[derive(Default)]
pub(super) struct SpareBuffers(Mutex<Vec<Buffers>>);

impl SpareBuffers {
    fn take(&self) -> Option<Buffers> {
        locked(&self.0).pop()
    }

    /// Keeps these, unless `most` are kept already.
    fn keep(&self, buffers: Buffers, most: usize) {
        let mut spare = locked(&self.0);
        if spare.len() < most {
            spare.push(buffers);
        }
    }
}

/// Memory and queues of a connection to be.
pub(super) struct Ends {
    slots: Arc<Slots>,
    received: CompletionQueue,
    ring: Ring,
    spare: Arc<SpareBuffers>,
}

impl Ends {
    /// An idle queue pair, with room for what comes.
    pub(super) fn new(host: &QpHost, spare: &Arc<SpareBuffers>) -> io::Result<(Self, QueuePair)> {
        let Buffers { slots, ring } = spare.take().map_or_else(|| Buffers::new(host), Ok)?;
        let ring = Ring::over(host, ring)?;
        // A byte stream needs one place more.
        let received = host.adapter.completion_queue(Slots::COUNT + 1).map_err(failed)?;
        let options = QueuePairOptions {
            send_depth: DEPTH,
            receive_depth: Slots::COUNT,
            ..QueuePairOptions::tcp(Mapping::Stream)
        };
        let pair = host.domain.queue_pair(&options, &ring.done, &received);
        let mut pair = pair.map_err(failed)?;
        slots.post_all(&mut pair)?;
        Ok((Self { slots, received, ring, spare: Arc::clone(spare) }, pair))
    }

    /// The socket, once the queue pair is connected.
    pub(super) fn duplex(self, pair: QueuePair, host: &QpHost) -> io::Result<Arc<Duplex>> {
        let ends = (pair.local_address(), pair.remote_address());
        let (Some(local), Some(peer)) = ends else { return Err(errors::reset()) };
        let buffers =
            Buffers { slots: Arc::clone(&self.slots), ring: Arc::clone(self.ring.memory()) };
        let (received, spare) = (self.received, self.spare);
        let live = Live { pair, received, buffers, spare, lent: Vec::new() };
        let wire = Arc::new(Wire {
            live: Mutex::new(Some(live)),
            is_reset: AtomicBool::new(false),
            options: Arc::clone(&host.options),
        });
        let source = Box::new(Receives::new(self.slots, Arc::clone(&wire), host.adapter.clone()));
        let sink = Box::new(Sends::new(self.ring, wire, host.clone()));
        Ok(Duplex::new((source, sink), Address::Qp(local), Address::Qp(peer)))
    }
}

/// The queue pair of a connection, which both directions use. When both are gone it is
/// closed in the background, for what was written still has to arrive; where something
/// was not read, or still comes, it is reset, as of a kernel's socket.
pub(super) struct Wire {
    /// There until the end.
    live: Mutex<Option<Live>>,
    /// Dropped, it resets its connection: something was not read, or somebody wants it so.
    is_reset: AtomicBool,
    options: Arc<QpOptions>,
}

/// What both directions use.
pub(super) struct Live {
    pub(super) pair: QueuePair,
    /// Where its receives complete.
    pub(super) received: CompletionQueue,
    buffers: Buffers,
    spare: Arc<SpareBuffers>,
    /// Other memory that is sent from.
    lent: Vec<Arc<MemoryRegion>>,
}

impl Wire {
    /// Does something with the queue pair; nothing when it is gone.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Live) -> T) -> Option<T> {
        locked(&self.live).as_mut().map(work)
    }

    /// Something was not read and never will be, or the other side shall hear a reset.
    pub(super) fn reset_on_drop(&self) {
        self.is_reset.store(true, Ordering::Relaxed);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let live = locked(&self.live).take();
        // Dropped, a queue pair resets its connection.
        if let Some(live) = live.filter(|_| !*self.is_reset.get_mut()) {
            see_off(self.options.linger, live.last_words(self.options.backlog.max(1)));
        }
    }
}

impl Live {
    /// Closes a connection. Where bytes come that nobody will read, it is given up.
    /// Of its memory this much is kept.
    async fn last_words(self, most_spare: usize) {
        let Self { pair, mut received, buffers, spare, lent } = self;
        let is_closed = {
            let mut closing = pin!(pair.close());
            poll_fn(|cx| match comes(&mut received, cx) {
                true => Poll::Ready(false),
                false => closing.as_mut().poll(cx).map(|closed| closed.is_ok()),
            })
            .await
        };
        // All of it is acknowledged, nothing more comes, and the queue pair is gone: nobody
        // else reads or writes this memory.
        if is_closed {
            spare.keep(buffers, most_spare);
        }
        drop(lent);
    }
}

/// Have bytes come?
fn comes(received: &mut CompletionQueue, cx: &mut Context<'_>) -> bool {
    loop {
        while let Some(completion) = received.poll() {
            if completion.status.is_success() && completion.len > 0 {
                return true;
            }
        }
        // Dropped, this future loses nothing: it only waits.
        if !matches!(poll_once(cx, received.ready()), Poll::Ready(Ok(()))) {
            return false;
        }
    }
}

/// Queue pairs that listen, until somebody connects to them.
pub(super) struct Idle {
    listener: Listener,
    host: QpHost,
    waiting: HashMap<QueuePairId, Ends>,
    spare: Arc<SpareBuffers>,
}

impl Idle {
    pub(super) fn open(host: &QpHost, local: SocketAddr) -> io::Result<Self> {
        let listener = host.adapter.listen(local).map_err(failed)?;
        let (waiting, spare) = (HashMap::new(), Arc::default());
        let mut idle = Self { listener, host: host.clone(), waiting, spare };
        idle.fill()?;
        Ok(idle)
    }

    pub(super) const fn local(&self) -> SocketAddr {
        self.listener.local_address()
    }

    /// This many wait as may.
    fn fill(&mut self) -> io::Result<()> {
        while self.waiting.len() < self.host.options.backlog.max(1) {
            let (ends, pair) = Ends::new(&self.host, &self.spare)?;
            self.waiting.insert(pair.id(), ends);
            let id = pair.id();
            if let Err(refused) = self.listener.offer(pair) {
                self.waiting.remove(&id);
                return Err(failed(refused.into()));
            }
        }
        Ok(())
    }
}

impl Accept<Duplex> for Idle {
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Arc<Duplex>>> {
        loop {
            // Dropped, this future loses nothing: a queue pair leaves when it is ready.
            let accepted = match poll_once(cx, self.listener.accept()) {
                Poll::Ready(accepted) => accepted,
                Poll::Pending => return Poll::Pending,
            };
            let pair = accepted.map_err(failed)?;
            let ends = self.waiting.remove(&pair.id());
            // Where there is no room for another one, those that are left have to do.
            if let Err(error) = self.fill()
                && self.waiting.is_empty()
            {
                return Poll::Ready(Err(error));
            }
            if let Some(ends) = ends {
                return Poll::Ready(ends.duplex(pair, &self.host));
            }
        }
    }
}

/// The writing direction of a connection.
pub(super) struct Sends {
    ring: Ring,
    wire: Arc<Wire>,
    host: QpHost,
    broken: Option<Status>,
    is_finished: bool,
}

impl Sends {
    pub(super) const fn new(ring: Ring, wire: Arc<Wire>, host: QpHost) -> Self {
        Self { ring, wire, host, broken: None, is_finished: false }
    }

    fn refused(&mut self, refused: PostError) -> io::Error {
        match refused {
            PostError::Ended => self.check().err().unwrap_or_else(errors::broken_pipe),
            other => io::Error::other(other),
        }
    }

    fn check(&mut self) -> io::Result<()> {
        if let Err(status) = self.ring.reap() {
            self.broken = self.broken.or(Some(status));
        }
        match (self.broken, self.wire.with(|live| live.pair.phase())) {
            (_, Some(Phase::Closed(why))) => Err(ended(why)),
            (Some(status), _) => Err(broken(status)),
            _ => Ok(()),
        }
    }
}

impl Sink for Sends {
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        match self.ring.poll_room(cx, 1) {
            Poll::Ready(Ok(_)) => {}
            other => return other,
        }
        let Self { ring, wire, .. } = self;
        let posted = ring.post(from, |parts| {
            wire.with(|live| live.pair.post_send(0, parts)).unwrap_or(Err(PostError::Ended))
        });
        let posted = posted?;
        Poll::Ready(posted.map_err(|refused| self.refused(refused)))
    }

    fn register(&mut self, len: usize) -> io::Result<Arc<MemoryRegion>> {
        self.check()?;
        let memory = Ring::register(&self.host, len)?;
        // It stays registered until the last byte is acknowledged, also behind the socket's end.
        self.wire.with(|live| live.lent.push(Arc::clone(&memory)));
        Ok(memory)
    }

    fn poll_write_lent(
        &mut self,
        cx: &mut Context<'_>,
        head: &[u8],
        bytes: &mut Option<LentBytes>,
    ) -> Poll<io::Result<()>> {
        self.check()?;
        if head.len() > self.ring.len() {
            return Poll::Ready(Err(errors::invalid("the head is longer than the send buffer")));
        }
        match self.ring.poll_room(cx, head.len()) {
            Poll::Ready(Ok(_)) => {}
            other => return other.map_ok(|_| ()),
        }
        let Self { ring, wire, .. } = self;
        let posted = ring.post_lent(head, bytes, |parts| {
            wire.with(|live| live.pair.post_send(0, parts)).unwrap_or(Err(PostError::Ended))
        });
        let posted = posted?;
        self.ring.watch(cx);
        Poll::Ready(posted.map_err(|refused| self.refused(refused)))
    }

    fn make_progress(&mut self, cx: &mut Context<'_>) {
        self.ring.watch(cx);
    }

    /// What is posted is on its way.
    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn reset_on_drop(&mut self) {
        self.wire.reset_on_drop();
    }

    fn poll_finish(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_finished {
            return Poll::Ready(Ok(()));
        }
        self.is_finished = true;
        self.ring.forget_waiting();
        match self.wire.with(|live| live.pair.shutdown()) {
            Some(Err(_)) => Poll::Ready(Err(io::Error::from_raw_os_error(libc::ENOTCONN))),
            _ => Poll::Ready(Ok(())),
        }
    }
}

/// Memory for what comes, in slots that are posted one by one.
pub(super) struct Slots {
    memory: MemoryRegion,
    slot: u64,
}

impl Slots {
    /// This many, that some are posted while others are read.
    pub(super) const COUNT: u32 = 8;

    pub(super) fn new(host: &QpHost) -> io::Result<Self> {
        let slot = host.options.receive_buffer.div_ceil(Self::COUNT as usize).max(2048);
        let memory = Memory::zeroed(slot * Self::COUNT as usize);
        let memory =
            host.domain.register(memory, Access::Write).map_err(|error| failed(error.into()))?;
        Ok(Self { memory, slot: slot as u64 })
    }

    pub(super) fn post_all(&self, pair: &mut QueuePair) -> io::Result<()> {
        (0..u64::from(Self::COUNT)).try_for_each(|slot| self.post(pair, slot))
    }

    fn post(&self, pair: &mut QueuePair, slot: u64) -> io::Result<()> {
        let part = self.memory.part(slot * self.slot..(slot + 1) * self.slot).map_err(failed)?;
        pair.post_receive(slot, &[part]).map_err(io::Error::other)
    }
}

/// The reading direction of a connection.
pub(super) struct Receives {
    slots: Arc<Slots>,
    wire: Arc<Wire>,
    adapter: Adapter,
    ready: VecDeque<Filled>,
    /// Nothing more comes.
    over: Option<Status>,
}

/// Bytes that are there.
struct Filled {
    slot: u64,
    at: u64,
    len: usize,
    /// The slot is used up with them.
    is_last: bool,
}

impl Receives {
    const fn new(slots: Arc<Slots>, wire: Arc<Wire>, adapter: Adapter) -> Self {
        Self { slots, wire, adapter, ready: VecDeque::new(), over: None }
    }

    fn hear_all(&mut self) {
        while let Some(Some(completion)) = self.wire.with(|live| live.received.poll()) {
            self.hear(&completion);
        }
    }

    fn hear(&mut self, completion: &Completion) {
        if !completion.status.is_success() {
            self.over = self.over.or(Some(completion.status));
            return;
        }
        let (at, len) = (u64::from(completion.offset), completion.len as usize);
        let (slot, is_last) = (completion.id, completion.ends_request);
        // What lies behind other bytes is one piece with them.
        let is_behind = |back: &&mut Filled| {
            back.slot == slot && !back.is_last && back.at + back.len as u64 == at
        };
        if let Some(back) = self.ready.back_mut().filter(is_behind) {
            back.len += len;
            back.is_last = is_last;
        } else {
            self.ready.push_back(Filled { slot, at, len, is_last });
        }
    }

    /// The next bytes go into this buffer, as many as there are of one piece.
    fn take(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(front) = self.ready.front_mut() else { return Ok(0) };
        let len = front.len.min(into.len());
        let at = front.slot * self.slots.slot + front.at;
        self.slots.memory.copy_out(at, &mut into[..len]).map_err(failed)?;
        front.at += len as u64;
        front.len -= len;
        self.release();
        Ok(len)
    }

    /// A slot that was read goes back to where it is filled.
    fn release(&mut self) {
        while self.ready.front().is_some_and(|front| front.len == 0) {
            let Some(front) = self.ready.pop_front() else { return };
            if front.is_last && self.over.is_none() {
                // Refused only when the connection is over: then nothing is to come.
                let slots = &self.slots;
                let _ = self.wire.with(|live| slots.post(&mut live.pair, front.slot));
            }
        }
    }

    /// Nothing is there, and nothing comes: is that the end, or worse?
    fn how_it_ended(&self, status: Status) -> io::Result<usize> {
        let phase = self.wire.with(|live| live.pair.phase());
        match (status, phase) {
            (Status::Flushed, Some(Phase::Closed(why))) => match why {
                CloseReason::Finished | CloseReason::Aborted => Ok(0),
                why => Err(ended(why)),
            },
            (Status::Flushed, _) => Ok(0),
            (status, _) => Err(broken(status)),
        }
    }
}

impl Receives {
    /// Waits until there are bytes, or the end: 0.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        loop {
            self.hear_all();
            self.release();
            if !self.ready.is_empty() {
                return Poll::Ready(Ok(self.ready.len()));
            }
            if let Some(status) = self.over {
                return Poll::Ready(self.how_it_ended(status));
            }
            // Where nothing was posted when it came, no completion tells of the end.
            if let Some(Poll::Ready(finished)) =
                self.wire.with(|live| poll_once(cx, live.pair.peer_finished()))
            {
                self.hear_all();
                if self.ready.is_empty() {
                    // It may have found no room for what came before the end: any command
                    // lets it hand that over.
                    let _ = self.adapter.domain();
                    self.hear_all();
                }
                if self.ready.iter().all(|filled| filled.len == 0) {
                    return Poll::Ready(match finished {
                        Ok(()) | Err(Error::Ended(CloseReason::Aborted)) => Ok(0),
                        Err(error) => Err(failed(error)),
                    });
                }
                return Poll::Ready(Ok(self.ready.len()));
            }
            // Dropped, these futures lose nothing: they only wait.
            match self.wire.with(|live| poll_once(cx, live.received.ready())) {
                Some(Poll::Ready(Ok(()))) => {}
                Some(Poll::Pending) => return Poll::Pending,
                _ => return Poll::Ready(Err(errors::reset())),
            }
        }
    }
}

impl Source for Receives {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.poll_ready(cx) {
            Poll::Ready(Ok(1..)) => {}
            other => return other,
        }
        let mut filled = 0;
        for buffer in into {
            let mut at = 0;
            while at < buffer.len() && !self.ready.is_empty() {
                at += self.take(&mut buffer[at..])?;
            }
            filled += at;
        }
        Poll::Ready(Ok(filled))
    }

    fn poll_read_landed(
        &mut self,
        cx: &mut Context<'_>,
        most: usize,
        take: &mut dyn FnMut(Landed<'_>),
    ) -> Poll<io::Result<usize>> {
        match self.poll_ready(cx) {
            Poll::Ready(Ok(1..)) => {}
            other => return other,
        }
        self.release();
        let Some(front) = self.ready.front_mut() else { return Poll::Ready(Ok(0)) };
        let len = front.len.min(most);
        let at = front.slot * self.slots.slot + front.at;
        take(Landed::new(&self.slots.memory, at..at + len as u64));
        front.at += len as u64;
        front.len -= len;
        self.release();
        Poll::Ready(Ok(len))
    }
}

impl Drop for Receives {
    fn drop(&mut self) {
        self.hear_all();
        if self.ready.iter().any(|filled| filled.len > 0) {
            self.wire.reset_on_drop();
        }
    }
}
