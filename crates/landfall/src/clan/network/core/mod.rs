//! What is behind a node's lock: the engine, its drivers, and who waits for what.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `table` | what belongs to the engine's names |
//! | `news` | what the engine tells, and whom it concerns |
//! | `handle` | what every handle of the node holds |
//!
//! What belongs to one kind of handle is with the handle: `tripwire`, `crowd`
//! (writes), `dma`, `endpoint`.

mod handle;
mod news;
mod table;

use std::sync::Arc;
use std::task::Waker;

use clan_dsm::{
    BarrierId, DmaId, EndpointId, HostId, LinkId, Nic, OperationId, ReadId, TripwireId, WindowId,
    WriteId,
};
use landfall_placement::{Engine as _, Instant, PathId, Peer};
use landfall_transport::Clock;
use landfall_transport::driver::Interest;

pub(crate) use handle::NodeHandle;
use table::Names;

use super::answer::Answer;
use super::crowd::{Cause, WindowState, WriteRecord};
use super::dma::ChainRecord;
use super::endpoint::Record as EndpointRecord;
use super::events::{Outlet, Registration};
use super::memory::{Lent, Pool};
use super::neighbour::Neighbour;
use super::staging::Source;
use super::tripwire::Record as TripwireRecord;
use crate::drive;

/// A path of a node.
pub(crate) type Lane = drive::Lane<Nic>;

/// What is done when the lock is no longer held: wakers may run anything, and
/// memory takes time to go.
#[derive(Debug, Default)]
pub(crate) struct After {
    pub(crate) wake: Vec<Waker>,
    pub(crate) forget: Vec<Waker>,
    pub(crate) free: Vec<Source>,
    pub(crate) unlend: Vec<Arc<Lent>>,
}

impl drive::After for After {
    fn run(self) {
        self.wake.into_iter().for_each(Waker::wake);
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) engine: Nic,
    pub(crate) lanes: Vec<Lane>,
    pool: Arc<Pool>,
    /// How many bytes the engine's write buffers have.
    pub(crate) write_buffer: usize,
    pub(crate) links: Names<LinkId, Arc<Neighbour>>,
    pub(crate) windows: Names<WindowId, Arc<WindowState>>,
    /// Of each window onto a group, its members.
    pub(crate) groups: Names<WindowId, Vec<(HostId, Arc<WindowState>)>>,
    /// What the next group is told by from the others of this host.
    pub(crate) next_group: u16,
    pub(crate) tripwires: Names<TripwireId, TripwireRecord>,
    pub(crate) endpoints: Names<EndpointId, EndpointRecord>,
    pub(crate) writes: Names<WriteId, WriteRecord>,
    pub(crate) reads: Names<ReadId, (Answer<()>, Source)>,
    pub(crate) operations: Names<OperationId, Answer<u64>>,
    pub(crate) barriers: Names<BarrierId, (Arc<WindowState>, u64)>,
    pub(crate) chains: Names<DmaId, ChainRecord>,
    /// Windows that found no room.
    pub(crate) crowded: Vec<(WindowId, Cause)>,
    /// Windows that could not ask for a barrier.
    pub(crate) asking: Vec<Arc<WindowState>>,
    /// Something that was under way is over: there may be room for more.
    pub(crate) has_answers: bool,
    /// Endpoints with DMA requests in their rings.
    pub(crate) busy: Vec<EndpointId>,
    /// Who waits for any link to come up.
    pub(crate) arrivals: Vec<Waker>,
    /// What a sleeping thread waits for, and until when.
    asleep: Option<Asleep>,
    pub(crate) after: After,
    is_closing: bool,
    /// Of a node that closes: when all that was written has arrived.
    pub(crate) parting: Vec<BarrierId>,
}

/// A thread that sleeps at the descriptors.
#[derive(Debug)]
struct Asleep {
    until: Option<Instant>,
    interests: Vec<Interest>,
}

impl Core {
    pub(crate) fn new(
        engine: Nic,
        lanes: Vec<Lane>,
        clock: Clock,
        pool: Arc<Pool>,
        write_buffer: usize,
    ) -> Self {
        let mut core = Self {
            engine,
            lanes,
            pool,
            write_buffer,
            links: Names::default(),
            windows: Names::default(),
            groups: Names::default(),
            next_group: 0,
            tripwires: Names::default(),
            endpoints: Names::default(),
            writes: Names::default(),
            reads: Names::default(),
            operations: Names::default(),
            barriers: Names::default(),
            chains: Names::default(),
            crowded: Vec::new(),
            asking: Vec::new(),
            has_answers: false,
            busy: Vec::new(),
            arrivals: Vec::new(),
            asleep: None,
            after: After::default(),
            is_closing: false,
            parting: Vec::new(),
        };
        let now = clock.now();
        for lane in &mut core.lanes {
            lane.set_up(&mut core.engine, now, true);
        }
        core
    }

    /// Who is reached at that host, if a link to it is up.
    pub(crate) fn neighbour(&mut self, host: HostId) -> Option<Arc<Neighbour>> {
        let link = self.engine.link_to(host)?;
        self.links.get_mut(link).cloned()
    }

    /// The link with a peer, if there is one.
    pub(crate) fn link_with(&mut self, peer: Peer) -> Option<Arc<Neighbour>> {
        let path = Lane::to(&self.lanes, peer)?.driver.path();
        let link = self.engine.link_with(path, peer)?;
        self.links.get_mut(link).cloned()
    }

    /// Opens the way to a peer, over a path or the first that leads to such peers.
    pub(crate) fn open_link(
        &mut self,
        now: Instant,
        path: Option<PathId>,
        peer: Peer,
    ) -> Result<Arc<Neighbour>, clan_dsm::Error> {
        let found = || Lane::to(&self.lanes, peer).map(|lane| lane.driver.path());
        let path = path.or_else(found).ok_or(clan_dsm::Error::PathDown)?;
        let link = self.engine.open_link(now, path, peer)?;
        let neighbour = Neighbour::opening(link);
        self.links.insert(link, Arc::clone(&neighbour));
        Ok(neighbour)
    }

    /// Remembers a waker once; those that it finds no room beside are woken.
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

    fn turn_lanes(&mut self, now: Instant) -> bool {
        let mut moved = false;
        for lane in &mut self.lanes {
            moved |= lane.turn(&mut self.engine, now);
        }
        moved
    }

    /// When a turn makes sense, even if nothing comes.
    fn next_wake(&self) -> Option<Instant> {
        let lanes = self.lanes.iter().filter(|lane| lane.is_up);
        let drivers = lanes.filter_map(|lane| lane.driver.poll_timeout());
        drivers.chain(self.engine.poll_timeout().map(|timeout| timeout.at)).min()
    }

    fn interests(&self, into: &mut Vec<Interest>) {
        into.clear();
        for lane in self.lanes.iter().filter(|lane| lane.is_up) {
            into.extend(lane.driver.interests());
        }
    }
}

impl drive::Core for Core {
    type After = After;
    type Left = (Vec<Lane>, Vec<(Outlet, Registration)>);

    fn turn(&mut self, now: Instant) -> bool {
        let mut moved = self.serve_queues(now);
        moved |= self.turn_lanes(now);
        if self.engine.poll_timeout().is_some_and(|timeout| timeout.at <= now) {
            // No path is up that would have let it fire.
            self.engine.handle_timeout(now);
        }
        let heard = self.hear();
        self.make_room();
        if heard && self.serve_queues(now) {
            // Nobody else may come to send it.
            self.turn_lanes(now);
            self.hear();
        }
        self.pool.after_turn();
        moved | heard
    }

    fn fall_asleep(&mut self, into: &mut Vec<Interest>) -> Option<Instant> {
        self.interests(into);
        let until = self.next_wake();
        self.asleep = Some(Asleep { until, interests: into.clone() });
        until
    }

    fn wake_up(&mut self, is_ready: bool) {
        self.asleep = None;
        // Which path it was nobody asked: the first one counts.
        if let (true, Some(lane)) = (is_ready, self.lanes.first_mut()) {
            lane.driver.counters_mut().wakeups += 1;
        }
    }

    fn must_wake_sleeper(&mut self) -> bool {
        let Some(asleep) = &self.asleep else { return false };
        let is_sooner = match (self.next_wake(), asleep.until) {
            (Some(wake), Some(until)) => wake < until,
            (wake, None) => wake.is_some(),
            (None, Some(_)) => false,
        };
        let mut interests = Vec::with_capacity(asleep.interests.len());
        // This also arms anew what a turn has disarmed.
        self.interests(&mut interests);
        is_sooner || interests != asleep.interests || self.is_closing
    }

    fn take_after(&mut self) -> After {
        std::mem::take(&mut self.after)
    }

    /// What was written is still sent, and what was sent acknowledged.
    fn close(&mut self, now: Instant) {
        self.is_closing = true;
        self.serve_queues(now);
        let links: Vec<LinkId> = self.engine.links().map(|(link, _)| link).collect();
        for link in links {
            // What is not up has nothing to say.
            self.parting.extend(self.engine.barrier(now, link));
        }
    }

    fn is_closed(&self) -> bool {
        self.parting.is_empty() || !self.lanes.iter().any(|lane| lane.is_up)
    }

    fn part(&mut self, now: Instant) {
        let links: Vec<LinkId> = self.engine.links().map(|(link, _)| link).collect();
        for link in links {
            // It was there just now.
            let _ = self.engine.close_link(now, link);
        }
        self.hear();
    }

    fn is_quiet(&self) -> bool {
        self.engine.links().next().is_none()
    }

    fn let_go(&mut self) -> Self::Left {
        self.is_closing = true;
        let events = self.lose_all();
        (std::mem::take(&mut self.lanes), events)
    }
}
