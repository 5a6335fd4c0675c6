//! What is behind a node's lock: the engine, its drivers, and who waits for what.
//! [`Names`] finds what belongs to the names that the engine gives by a look at one place.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `links` | ways to others: who they are, and what they are called |
//! | `updates` | what the engine tells, and whom it concerns |
//!
//! What belongs to one kind of handle is with the handle: `tripwire`, `back_pressure`
//! (writes), `dma`, `endpoint`.

mod links;
mod updates;

use std::sync::Arc;
use std::task::Waker;

use clan_dsm::{
    BarrierId, DmaId, EndpointId, HostId, LinkId, OperationId, ReadId, TripwireId, WindowId,
    WriteId,
};
use landfall_placement::{Instant, PathId, Peer};

use super::back_pressure::{RoomQueues, WindowState, WriteRecord};
use super::dma::ChainRecord;
use super::endpoint::Record as EndpointRecord;
use super::engines::Hosts;
use super::events::{Attached, PendingResult};
use super::mark::OnceMark;
use super::memory::{Lent, Pool};
use super::names::NameService;
use super::neighbour::Neighbour;
use super::tripwire::Record as TripwireRecord;
use super::window::Source;
use crate::runtime;
use crate::runtime::{Deferred, Protocol};
use crate::security::Security;

/// The engine of a node.
pub(crate) type Engine = landfall_seal::Sealed<clan_dsm::Nic>;

/// The paths of a node.
pub(crate) type Paths = runtime::Paths<Engine>;

/// What is done when the lock is no longer held: wakers may run anything, and
/// memory takes time to go.
#[derive(Debug, Default)]
pub(crate) struct DeferredWork {
    pub(crate) wake: Vec<Waker>,
    pub(crate) forget: Vec<Waker>,
    pub(crate) free: Vec<Source>,
    pub(crate) unlend: Vec<Arc<Lent>>,
}

impl Deferred for DeferredWork {
    fn run(self) {
        self.wake.into_iter().for_each(Waker::wake);
    }
}

/// Requests of handles that need no answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Submission {
    /// What was written before leaves.
    Flush,
    /// An endpoint has DMA requests in its ring.
    ServeQueue(EndpointId),
    CloseLink(LinkId),
}

/// What the node's lock guards: engine, paths, memory, and who waits for what.
#[derive(Debug)]
pub(crate) struct NodeState {
    pub(crate) engine: Engine,
    pub(crate) security: Security,
    pub(crate) paths: Paths,
    pool: Arc<Pool>,
    /// Which of the node's engines this is.
    pub(crate) nth: usize,
    hosts: Arc<Hosts>,
    /// How many bytes the engine's write buffers have.
    pub(crate) write_buffer: usize,
    pub(crate) links: Names<LinkId, Arc<Neighbour>>,
    pub(crate) windows: Names<WindowId, Arc<WindowState>>,
    /// Of each window onto a group, its members.
    pub(crate) groups: Names<WindowId, Vec<(HostId, Arc<WindowState>)>>,
    /// Where what is written to groups leaves once, and over which path.
    pub(crate) multicast: Option<(PathId, Peer)>,
    /// Distinguishes the next group from the others of this host.
    pub(crate) next_group: u16,
    pub(crate) tripwires: Names<TripwireId, TripwireRecord>,
    /// What tripwires whose action it is put into the queue of identifiers.
    pub(crate) identifiers: Names<TripwireId, u64>,
    /// Those whose mark is left once, by one of several engines.
    pub(crate) once: Names<TripwireId, Arc<OnceMark>>,
    pub(crate) endpoints: Names<EndpointId, EndpointRecord>,
    /// Names that are offered here, and who asks for them.
    pub(crate) names: NameService,
    pub(crate) writes: Names<WriteId, WriteRecord>,
    pub(crate) reads: Names<ReadId, (PendingResult<()>, Source)>,
    pub(crate) operations: Names<OperationId, PendingResult<u64>>,
    pub(crate) barriers: Names<BarrierId, (Arc<WindowState>, u64)>,
    pub(crate) chains: Names<DmaId, ChainRecord>,
    /// Windows that found no room.
    pub(crate) room_queues: RoomQueues,
    /// Windows that could not ask for a barrier.
    pub(crate) barriers_wanted: Vec<Arc<WindowState>>,
    /// Something that was under way is over: there may be room for more.
    pub(crate) has_answers: bool,
    /// Endpoints with DMA requests in their rings.
    pub(crate) busy: Vec<EndpointId>,
    /// Tasks that wait for any link to come up.
    pub(crate) link_waiters: Vec<Waker>,
    pub(crate) after: DeferredWork,
    /// While the node closes: barriers behind all that was written.
    pub(crate) closing_barriers: Vec<BarrierId>,
}

impl NodeState {
    pub(crate) fn new(
        (engine, security): (Engine, Security),
        paths: Paths,
        pool: Arc<Pool>,
        (nth, hosts): (usize, Arc<Hosts>),
        write_buffer: usize,
    ) -> Self {
        Self {
            engine,
            security,
            paths,
            pool,
            nth,
            hosts,
            write_buffer,
            links: Names::default(),
            windows: Names::default(),
            groups: Names::default(),
            multicast: None,
            next_group: 0,
            tripwires: Names::default(),
            identifiers: Names::default(),
            once: Names::default(),
            endpoints: Names::default(),
            names: NameService::default(),
            writes: Names::default(),
            reads: Names::default(),
            operations: Names::default(),
            barriers: Names::default(),
            chains: Names::default(),
            room_queues: RoomQueues::default(),
            barriers_wanted: Vec::new(),
            has_answers: false,
            busy: Vec::new(),
            link_waiters: Vec::new(),
            after: DeferredWork::default(),
            closing_barriers: Vec::new(),
        }
    }

    /// Who is reached at that host, if a link to it is up.
    pub(crate) fn neighbour(&mut self, host: HostId) -> Option<Arc<Neighbour>> {
        let link = self.engine.link_to(host)?;
        self.links.get_mut(link).cloned()
    }

    /// Remembers a waker once; at the bound the others are woken.
    pub(crate) fn watch(wakers: &mut Vec<Waker>, waker: &Waker) -> Vec<Waker> {
        /// Handles that are polled by ever new tasks leave wakers behind.
        const MOST: usize = 64;
        if wakers.iter().any(|known| known.will_wake(waker)) {
            return Vec::new();
        }
        let before = if wakers.len() < MOST { Vec::new() } else { std::mem::take(wakers) };
        wakers.push(waker.clone());
        before
    }
}

impl Protocol for NodeState {
    type Engine = Engine;
    type Deferred = DeferredWork;
    type Submission = Submission;
    type Cleanup = Vec<Attached>;

    fn engine(&self) -> &Engine {
        &self.engine
    }

    fn paths(&self) -> &Paths {
        &self.paths
    }

    fn paths_mut(&mut self) -> &mut Paths {
        &mut self.paths
    }

    fn serve(&mut self, now: Instant, submission: Submission) {
        match submission {
            // The turn that follows is all that it takes.
            Submission::Flush => {}
            Submission::ServeQueue(id) => {
                self.schedule_queue(id);
                self.serve_queues(now);
            }
            Submission::CloseLink(link) => {
                // Gone already: there is nothing to close.
                let _ = self.engine.close_link(now, link);
            }
        }
    }

    fn turn(&mut self, now: Instant) -> bool {
        let mut moved = self.serve_queues(now);
        moved |= self.paths.turn(&mut self.engine, now);
        let heard = self.handle_events(now);
        self.make_room();
        if heard && self.serve_queues(now) {
            // Nobody else may come to send it.
            self.paths.turn(&mut self.engine, now);
            self.handle_events(now);
        }
        self.pool.after_turn();
        moved | heard
    }

    /// At once where windows are left to be told of room: also a thread that sleeps hears of it.
    fn next_wake(&self) -> Option<Instant> {
        if self.has_room_to_tell() {
            return Some(Instant::ZERO);
        }
        self.paths.next_wake(&self.engine)
    }

    fn take_deferred(&mut self) -> DeferredWork {
        std::mem::take(&mut self.after)
    }

    /// What was written is still sent, and what was sent acknowledged.
    fn close(&mut self, now: Instant) {
        self.serve_queues(now);
        let links: Vec<LinkId> = self.engine.links().map(|(link, _)| link).collect();
        for link in links {
            // What is not up has nothing to say.
            self.closing_barriers.extend(self.engine.barrier(now, link));
        }
    }

    fn is_closed(&self) -> bool {
        self.closing_barriers.is_empty() || self.paths.up().next().is_none()
    }

    fn abort(&mut self, now: Instant) {
        let links: Vec<LinkId> = self.engine.links().map(|(link, _)| link).collect();
        for link in links {
            // It was there just now.
            let _ = self.engine.close_link(now, link);
        }
        self.handle_events(now);
    }

    fn is_quiet(&self) -> bool {
        self.engine.links().next().is_none()
    }

    fn release(&mut self) -> Self::Cleanup {
        self.lose_all()
    }
}

/// A name of the engine: a slot, and when it was given.
pub(crate) trait Name: Copy + Eq {
    fn slot(self) -> usize;
}

macro_rules! names {
    ($($name:ty),+) => {$(
        impl Name for $name {
            fn slot(self) -> usize {
                self.index() as usize
            }
        }
    )+};
}

names!(BarrierId, DmaId, EndpointId, LinkId, OperationId, ReadId, TripwireId, WindowId, WriteId);

/// A table by slot of the engine's names. It is as long as the largest slot that was used, and slots are
/// bounded by the engine's configuration.
#[derive(Debug)]
pub(crate) struct Names<N, T>(Vec<Option<(N, T)>>);

impl<N, T> Default for Names<N, T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<N: Name, T> Names<N, T> {
    /// The engine gives a slot anew only when it was done with what had it.
    pub(crate) fn insert(&mut self, name: N, item: T) {
        let slot = name.slot();
        if self.0.len() <= slot {
            self.0.resize_with(slot + 1, || None);
        }
        self.0[slot] = Some((name, item));
    }

    pub(crate) fn get_mut(&mut self, name: N) -> Option<&mut T> {
        match self.0.get_mut(name.slot())? {
            Some((known, item)) if *known == name => Some(item),
            _ => None,
        }
    }

    pub(crate) fn remove(&mut self, name: N) -> Option<T> {
        let place = self.0.get_mut(name.slot())?;
        if place.as_ref().is_some_and(|(known, _)| *known == name) {
            place.take().map(|(_, item)| item)
        } else {
            None
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flatten().map(|(_, item)| item)
    }

    /// All of them, which leaves none.
    pub(crate) fn take_all(&mut self) -> Vec<T> {
        std::mem::take(&mut self.0).into_iter().flatten().map(|(_, item)| item).collect()
    }
}
