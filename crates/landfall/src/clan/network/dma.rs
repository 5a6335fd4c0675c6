//! [`DmaQueue`]: requests to the DMA engine, filled without a lock and without a
//! call while the engine is busy with it (section 3.4 of the paper).
//!
//! The queue is a ring between the application and anyone who drives the node. The
//! application puts a chain in; only if the driving side had found the ring empty
//! does it have to be called. After that it takes chains out by itself, as the
//! engine gets done with those before, until the ring is empty again. What is done
//! comes back through a second ring.

use std::fmt;
use std::future::poll_fn;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use clan_dsm::{DmaId, DmaRequest, Ended, EndpointId};
use rtrb::{Consumer, Producer, RingBuffer};

use super::builder::{ended, refused};
use super::endpoint::Endpoint;
use super::engines::{EngineHandle, NodeHandle};
use super::events::{Attached, Kind, sealed};
use super::memory::{Aperture, Lent};
use super::node::Node;
use super::state::{NodeState, Submission};
use super::window::Window;
pub use crate::clan::dma::Done;
use crate::clan::{self, DmaEngine, Error};
use crate::runtime::locked;

/// One request of a chain.
pub type Request<'a> = clan::dma::Request<'a, Aperture, Window>;

impl Request<'_> {
    /// The engine that is to do it.
    const fn engine(&self) -> &EngineHandle {
        match self {
            Self::Write { to, .. } | Self::Word { to, .. } => to.handle(),
            Self::Read { from, .. } => from.handle(),
        }
    }

    /// As the engine takes it, with the memory that it needs.
    fn check(&self, handle: &NodeHandle) -> Result<(DmaRequest, Option<Arc<Lent>>), Error> {
        self.check_places()?;
        if !self.engine().node().is_same(handle) {
            return Err(Error::BadConfig("memory and windows belong to the queue's node"));
        }
        let area = |memory: &Aperture, range: &Range<u64>| {
            if !memory.is_of(handle) {
                return Err(Error::BadConfig("memory and windows belong to the queue's node"));
            }
            let area = memory.lent().area(range.start, range.end - range.start);
            Ok((area, Some(Arc::clone(memory.lent()))))
        };
        match self {
            Self::Write { from, range, to, offset } => {
                let (from, lent) = area(from, range)?;
                Ok((DmaRequest::Write { from, window: to.id(), offset: *offset }, lent))
            }
            Self::Read { from, offset, into, range } => {
                let (into, lent) = area(into, range)?;
                Ok((DmaRequest::Read { window: from.id(), offset: *offset, into }, lent))
            }
            Self::Word { to, offset, word } => {
                let window = to.id();
                Ok((DmaRequest::Word { window, offset: *offset, value: *word }, None))
            }
        }
    }
}

/// A request on its way to the engine.
#[derive(Debug)]
struct Entry {
    request: DmaRequest,
    lent: Option<Arc<Lent>>,
    /// Of the last of its chain, the number of that.
    ends: Option<u64>,
}

/// What all ends of a queue share.
#[derive(Debug)]
struct State {
    /// The driving side of these engines found its ring empty: who puts something in calls it.
    /// Bit n is that of engine n.
    idle: AtomicU64,
    waker: Mutex<Option<Waker>>,
}

impl State {
    /// From now on the engine is called, or not. Says whether it was before.
    fn set_idle(&self, nth: usize, is_idle: bool) -> bool {
        let own = 1 << nth;
        let before = match is_idle {
            true => self.idle.fetch_or(own, Ordering::SeqCst),
            false => self.idle.fetch_and(!own, Ordering::SeqCst),
        };
        before & own != 0
    }

    fn is_idle(&self, nth: usize) -> bool {
        self.idle.load(Ordering::SeqCst) & 1 << nth != 0
    }
}

/// The node's side of a queue, under its lock.
#[derive(Debug)]
pub(crate) struct QueueRecord {
    ring: Consumer<Entry>,
    done: Producer<Done>,
    state: Arc<State>,
    /// The chain that the engine had no room for, and its memory.
    requests: Vec<DmaRequest>,
    memory: Vec<Arc<Lent>>,
    /// The number of the chain that was taken out last.
    chain: u64,
    /// Which engine's side it is.
    nth: usize,
    events: Option<Attached>,
}

/// A chain that the engine has.
#[derive(Debug)]
pub(crate) struct ChainRecord {
    chain: u64,
    /// Kept until it is done.
    memory: Vec<Arc<Lent>>,
}

impl QueueRecord {
    pub(super) fn notify(&self) -> Option<Waker> {
        fence(Ordering::SeqCst);
        locked(&self.state.waker).take()
    }

    /// Takes the next chain out of the ring, if none waits. Returns whether one waits.
    fn take(&mut self) -> bool {
        while self.requests.is_empty() {
            // All of a chain is put into the ring at once.
            while let Ok(Entry { request, lent, ends }) = self.ring.pop() {
                self.requests.push(request);
                self.memory.extend(lent);
                if let Some(chain) = ends {
                    self.chain = chain;
                    return true;
                }
            }
            self.state.set_idle(self.nth, true);
            fence(Ordering::SeqCst);
            // Put in while nobody was told to call?
            let is_empty = self.ring.is_empty();
            if is_empty || !self.state.set_idle(self.nth, false) {
                return false;
            }
        }
        true
    }

    /// Reports a chain to the user. There is room: no more are under way than the
    /// ring holds.
    fn finish(&mut self, chain: u64, result: Result<(), Error>) -> [Option<Waker>; 2] {
        let _ = self.done.push(Done { chain, result });
        let event = self.events.as_ref().and_then(|(event_sender, _)| event_sender.notify());
        [event, self.notify()]
    }
}

impl NodeState {
    /// The user put a chain into a ring that was empty.
    pub(super) fn schedule_queue(&mut self, id: EndpointId) {
        if !self.busy.contains(&id) {
            self.busy.push(id);
        }
    }

    /// Moves chains from the rings into the engine, as far as it has room. Returns
    /// whether any moved.
    pub(super) fn serve_queues(&mut self, now: landfall_placement::Instant) -> bool {
        if self.busy.is_empty() {
            return false;
        }
        let mut moved = false;
        let mut busy = std::mem::take(&mut self.busy);
        busy.retain(|id| {
            while let Some(queue) = self.endpoints.get_mut(*id).and_then(|end| end.queue.as_mut()) {
                if !queue.take() {
                    return false;
                }
                match self.engine.dma(now, *id, &queue.requests) {
                    Err(clan_dsm::Error::Busy) => return true,
                    Ok(dma) => {
                        queue.requests.clear();
                        let memory = std::mem::take(&mut queue.memory);
                        self.chains.insert(dma, ChainRecord { chain: queue.chain, memory });
                    }
                    Err(error) => {
                        queue.requests.clear();
                        self.after.unlend.append(&mut queue.memory);
                        let why = refused(error, "DMA request");
                        let wakers = queue.finish(queue.chain, Err(why));
                        self.after.wake.extend(wakers.into_iter().flatten());
                    }
                }
                moved = true;
            }
            false
        });
        self.busy.append(&mut busy);
        moved
    }

    pub(super) fn chain_done(
        &mut self,
        endpoint: EndpointId,
        dma: DmaId,
        result: Result<(), Ended>,
    ) {
        let Some(ChainRecord { chain, mut memory }) = self.chains.remove(dma) else { return };
        self.after.unlend.append(&mut memory);
        self.has_answers = true;
        let queue = self.endpoints.get_mut(endpoint).and_then(|end| end.queue.as_mut());
        if let Some(queue) = queue {
            let wakers = queue.finish(chain, result.map_err(ended));
            self.after.wake.extend(wakers.into_iter().flatten());
        }
    }

    /// Nothing moves any more.
    pub(super) fn lose_chains(&mut self) {
        for ChainRecord { mut memory, .. } in self.chains.take_all() {
            self.after.unlend.append(&mut memory);
        }
        self.busy.clear();
    }
}

/// The queue of one endpoint at the DMA engine. The engine serves all endpoints in
/// turn. Chains of one queue are sent in order; what handles write meanwhile is not
/// ordered with them, so a flag goes into the chain, behind its data.
pub struct DmaQueue {
    endpoint: Endpoint,
    /// One for each engine.
    rings: Vec<EngineRings>,
    state: Arc<State>,
    depth: usize,
    /// Chains that were put in, and those that came back.
    put: u64,
    back: u64,
    scratch: Vec<(DmaRequest, Option<Arc<Lent>>)>,
}

/// The way to one engine, and back.
struct EngineRings {
    ring: Producer<Entry>,
    done: Consumer<Done>,
}

impl DmaQueue {
    pub(crate) fn open(endpoint: &Endpoint, depth: usize) -> Result<Self, Error> {
        let depth = depth.max(1);
        let state = Arc::new(State { idle: AtomicU64::new(u64::MAX), waker: Mutex::default() });
        let mut rings = Vec::with_capacity(1);
        let engines = endpoint.handle().engines().iter().zip(endpoint.ids());
        for (nth, (engine, id)) in engines.enumerate() {
            let (ring, requests) = RingBuffer::new(depth);
            let (results, done) = RingBuffer::new(depth);
            engine.look(|core| {
                let record = core.endpoints.get_mut(*id).ok_or(Error::NodeGone)?;
                // Only one has the first engine's, and so nobody has another's.
                if record.queue.is_some() {
                    return Err(Error::NoRoom("DMA queue of one endpoint"));
                }
                record.queue = Some(QueueRecord {
                    ring: requests,
                    done: results,
                    state: Arc::clone(&state),
                    requests: Vec::new(),
                    memory: Vec::new(),
                    chain: 0,
                    nth,
                    events: None,
                });
                Ok(())
            })?;
            rings.push(EngineRings { ring, done });
        }
        let endpoint = endpoint.clone();
        Ok(Self { endpoint, rings, state, depth, put: 0, back: 0, scratch: Vec::new() })
    }

    /// Puts a chain in, or nothing of it; gives its number, from 0 on. All its
    /// requests are for one host.
    ///
    /// # Errors
    /// [`Error::Busy`]: the queue is full; take out what is [done](Self::try_done).
    /// A request that cannot be.
    pub fn push(&mut self, chain: &[Request<'_>]) -> Result<u64, Error> {
        let handle = self.endpoint.handle();
        handle.check()?;
        let [first, ..] = chain else {
            return Err(Error::BadConfig("a chain has at least one request"));
        };
        if chain.len() > self.depth {
            return Err(Error::TooLong { len: chain.len() as u64, most: self.depth as u64 });
        }
        let nth = first.engine().nth();
        self.scratch.clear();
        for request in chain {
            self.scratch.push(request.check(handle)?);
            if request.engine().nth() != nth {
                return Err(Error::BadConfig("all requests of a chain are for one host"));
            }
        }
        if self.put - self.back >= self.depth as u64 {
            return Err(Error::Busy);
        }
        let rings = &mut self.rings[nth];
        let chunk = rings.ring.write_chunk_uninit(chain.len()).map_err(|_| Error::Busy)?;
        let (last, number) = (chain.len() - 1, self.put);
        let entries = (0..).zip(self.scratch.drain(..));
        chunk.fill_from_iter(entries.map(|(at, (request, lent))| Entry {
            request,
            lent,
            ends: (at == last).then_some(number),
        }));
        self.put += 1;
        fence(Ordering::SeqCst);
        if self.state.is_idle(nth) && self.state.set_idle(nth, false) {
            handle.at(nth).submit(Submission::ServeQueue(self.endpoint.ids()[nth]));
        }
        Ok(number)
    }

    /// Chains that were put in and did not come back yet.
    #[must_use]
    pub fn under_way(&self) -> u64 {
        self.put - self.back
    }

    /// Takes out a chain that is done, if there is one. No system call.
    pub fn try_done(&mut self) -> Option<Done> {
        let done = self.rings.iter_mut().find_map(|rings| rings.done.pop().ok())?;
        self.back += 1;
        Some(done)
    }

    /// Waits for the next chain that is done, on any executor. Nothing: none is
    /// under way.
    ///
    /// # Errors
    /// The node does not run any more.
    pub async fn done(&mut self) -> Result<Option<Done>, Error> {
        poll_fn(|context| self.poll_done(context)).await
    }

    /// The same, polled.
    ///
    /// # Errors
    /// The node does not run any more.
    pub fn poll_done(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Done>, Error>> {
        if let Some(done) = self.try_done() {
            return Poll::Ready(Ok(Some(done)));
        }
        if self.under_way() == 0 {
            return Poll::Ready(Ok(None));
        }
        let before = locked(&self.state.waker).replace(context.waker().clone());
        drop(before);
        fence(Ordering::SeqCst);
        match self.try_done() {
            Some(done) => Poll::Ready(Ok(Some(done))),
            None if self.endpoint.handle().has_ended() => Poll::Ready(Err(Error::NodeGone)),
            None => Poll::Pending,
        }
    }

    /// The same on this thread, which drives the node meanwhile.
    ///
    /// # Errors
    /// The node does not run any more; [`Error::TimedOut`].
    pub fn wait_done(&mut self, deadline: Option<Instant>) -> Result<Option<Done>, Error> {
        let handle = self.endpoint.handle().clone();
        handle.block_on(self.done(), deadline)?.ok_or(Error::TimedOut)?
    }
}

impl sealed::Source for DmaQueue {
    #[allow(private_interfaces, reason = "nobody else can implement it")]
    fn kind(&self) -> Kind {
        Kind::Dma
    }

    #[allow(private_interfaces, reason = "nobody else can implement it")]
    fn handle(&self) -> &NodeHandle {
        self.endpoint.handle()
    }

    #[allow(private_interfaces, reason = "nobody else can implement it")]
    fn attach(&self, to: Option<Attached>) -> Result<(), Error> {
        let engines = self.endpoint.handle().engines().iter().zip(self.endpoint.ids());
        for ((engine, id), rings) in engines.zip(&self.rings) {
            let before = engine.look(|core| {
                let record = core.endpoints.get_mut(*id);
                let queue =
                    record.and_then(|record| record.queue.as_mut()).ok_or(Error::NodeGone)?;
                let before = std::mem::replace(&mut queue.events, to.clone());
                if let (Some((event_sender, _)), false) = (&queue.events, rings.done.is_empty()) {
                    core.after.wake.extend(event_sender.notify());
                }
                Ok::<_, Error>(before)
            })?;
            drop(before);
        }
        Ok(())
    }
}

/// What was put in and not sent is given up.
impl Drop for DmaQueue {
    fn drop(&mut self) {
        // The first engine's last: until it is gone nobody opens another.
        let engines = self.endpoint.handle().engines().iter().zip(self.endpoint.ids());
        for (engine, id) in engines.rev() {
            let queue = engine.ask(|core, now| {
                let queue = core.endpoints.get_mut(*id).and_then(|record| record.queue.take());
                let _ = core.engine.cancel_dma(now, *id);
                queue
            });
            // Without the lock: it holds memory.
            drop(queue);
        }
    }
}

impl fmt::Debug for DmaQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DmaQueue")
            .field("depth", &self.depth)
            .field("under_way", &self.under_way())
            .finish_non_exhaustive()
    }
}

impl clan::DmaQueue for DmaQueue {
    type Local = Aperture;
    type Remote = Window;

    fn push(&mut self, chain: &[Request<'_>]) -> Result<u64, Error> {
        Self::push(self, chain)
    }

    fn under_way(&self) -> u64 {
        Self::under_way(self)
    }

    fn try_done(&mut self) -> Option<Done> {
        Self::try_done(self)
    }

    fn poll_done(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Done>, Error>> {
        Self::poll_done(self, context)
    }

    fn wait_done(&mut self, deadline: Option<Instant>) -> Result<Option<Done>, Error> {
        Self::wait_done(self, deadline)
    }
}

impl DmaEngine for Node {
    type DmaQueue = DmaQueue;

    /// With an endpoint of its own.
    fn dma_queue(&self, depth: usize) -> Result<DmaQueue, Error> {
        self.endpoint(None)?.dma_queue(depth)
    }
}
