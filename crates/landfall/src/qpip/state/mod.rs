//! What is behind an adapter's lock: the engine, its drivers, and the other ends
//! of what its users hold. Every handle of an adapter holds a [`Handle`], and asks for what
//! needs no answer with a [`Submission`].
//!
//! | file | what happens there |
//! | --- | --- |
//! | `posts` | work requests come out of their rings |
//! | `completions` | what is done goes into completion queues, and what else is told to those whom it concerns |
//! | `shared_receives` | room that queue pairs share |

mod completions;
mod posts;
mod shared_receives;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Waker;

use landfall_placement::{Duration, Instant, RegionId};
use landfall_transport::Clock;
use landfall_transport::memory::{Regions, TakeBackError};
use qpip::{
    Adapter, CompletionQueueId, DomainId, Event, ListenerId, MemoryKey, QueuePairId,
    SharedReceiveQueueId,
};

use super::doorbell::{Doorbells, Request};
use super::link::LinkInfo;
use super::notice::Notices;
use crate::qpip::error::Error;
use crate::runtime;
use crate::runtime::{Deferred, Protocol, Runtime};
use completions::{Listening, Queue};
use posts::Pair;
use shared_receives::SharedReceives;

pub(crate) use completions::ListenerState;

/// The paths of an adapter.
pub(crate) type Paths = runtime::Paths<Adapter>;

/// This many turns let the last words leave.
const LAST_TURNS: u32 = 256;

/// How long the adapter sleeps at most while something waits for a moment that
/// nobody will tell of.
const SHORT_SLEEP: Duration = Duration::from_millis(1);

/// What the adapter's lock guards: engine, paths, and queue pairs.
#[derive(Debug)]
pub(crate) struct AdapterState {
    pub(crate) engine: Adapter,
    pub(crate) paths: Paths,
    /// What else is known of each path.
    pub(crate) links: Vec<LinkInfo>,
    clock: Clock,
    pub(crate) doorbells: Arc<Doorbells>,
    regions: Regions,
    /// By the index of their names.
    pairs: Vec<Option<Pair>>,
    queues: Vec<Option<Queue>>,
    listeners: Vec<Option<Listening>>,
    /// Queue pairs whose rings have to be looked at again, without a doorbell.
    again: Vec<u32>,
    /// Completion queues whose rings were full.
    stalled: Vec<u32>,
    /// Completion queues that have no user any more.
    forgotten: Vec<CompletionQueueId>,
    shared_receives: Vec<Option<SharedReceives>>,
    /// Queues of shared room that have no user any more.
    left_shared: Vec<SharedReceiveQueueId>,
    /// Protection domains that have no user any more.
    left: Vec<DomainId>,
    /// Registered memory that has no user any more.
    dropped: Vec<(MemoryKey, RegionId)>,
    /// Lent memory that a driver held when it was to be freed.
    orphans: Vec<RegionId>,
    wake: Vec<Waker>,
    /// What the engine told, and nobody was told of yet.
    heard: VecDeque<Event>,
    /// What happened, and nobody was told of yet.
    pub(crate) notices: Notices,
    /// Used again and again.
    rung: Vec<u32>,
    request: Request,
    /// Of an adapter that ends, how many turns are left.
    last_turns: Option<u32>,
}

impl AdapterState {
    pub(crate) fn new(
        engine: Adapter,
        (paths, links): (Paths, Vec<LinkInfo>),
        clock: Clock,
        regions: Regions,
    ) -> Self {
        // As many queues of shared room as completion queues.
        let queues = engine.config().queue_pairs + engine.config().completion_queues;
        let doorbells = Arc::new(Doorbells::new(queues));
        Self {
            engine,
            paths,
            links,
            clock,
            doorbells,
            regions,
            pairs: Vec::new(),
            queues: Vec::new(),
            listeners: Vec::new(),
            again: Vec::new(),
            stalled: Vec::new(),
            forgotten: Vec::new(),
            shared_receives: Vec::new(),
            left_shared: Vec::new(),
            left: Vec::new(),
            dropped: Vec::new(),
            orphans: Vec::new(),
            wake: Vec::new(),
            heard: VecDeque::new(),
            notices: Notices::default(),
            rung: Vec::new(),
            request: Request::default(),
            last_turns: None,
        }
    }

    /// What was dropped while it was in use goes when it is not any more: with
    /// what a turn completes, or a command ends.
    fn clean_up(&mut self) {
        if !self.dropped.is_empty() {
            let dropped = std::mem::take(&mut self.dropped);
            for (key, region) in dropped {
                self.drop_memory(key, region);
            }
        }
        if !self.left_shared.is_empty() {
            let left = std::mem::take(&mut self.left_shared);
            for id in left {
                self.drop_shared_receives(id);
            }
        }
        if !self.forgotten.is_empty() {
            let forgotten = std::mem::take(&mut self.forgotten);
            for id in forgotten {
                self.forget_queue(id);
            }
        }
        if !self.left.is_empty() {
            let left = std::mem::take(&mut self.left);
            for id in left {
                self.drop_domain(id);
            }
        }
        let regions = &self.regions;
        self.orphans.retain(|region| !has_ended(regions, *region));
    }
}

impl Protocol for AdapterState {
    type Engine = Adapter;
    type Deferred = Wakers;
    type Submission = Submission;
    type Cleanup = ();

    fn engine(&self) -> &Adapter {
        &self.engine
    }

    fn paths(&self) -> &Paths {
        &self.paths
    }

    fn paths_mut(&mut self) -> &mut Paths {
        &mut self.paths
    }

    fn serve(&mut self, now: Instant, submission: Submission) {
        self.submitted(now, submission);
    }

    /// What was posted, what the links carry, and what came of it.
    fn turn(&mut self, now: Instant) -> bool {
        let mut moved = self.take_posts(now);
        moved |= self.paths.turn(&mut self.engine, now);
        moved |= self.hear();
        self.clean_up();
        if let Some(left) = &mut self.last_turns {
            *left = if moved { left.saturating_sub(1) } else { 0 };
        }
        moved
    }

    fn take_deferred(&mut self) -> Wakers {
        Wakers(std::mem::take(&mut self.wake))
    }

    fn has_work(&self) -> bool {
        self.doorbells.any() || self.has_room_where_it_stalled()
    }

    fn next_wake(&self) -> Option<Instant> {
        let soon = (!self.again.is_empty()).then(|| self.clock.now() + SHORT_SLEEP);
        self.paths.next_wake(&self.engine).into_iter().chain(soon).min()
    }

    /// What was to be sent when the last handle went still leaves.
    fn close(&mut self, _: Instant) {
        self.last_turns = Some(LAST_TURNS);
    }

    fn is_closed(&self) -> bool {
        self.last_turns == Some(0)
    }

    /// Queue pairs went with their handles.
    fn abort(&mut self, _: Instant) {}

    fn is_quiet(&self) -> bool {
        true
    }

    fn release(&mut self) {
        self.lose_all();
    }
}

/// Ends a grant; false where somebody still uses the memory.
fn has_ended(regions: &Regions, region: RegionId) -> bool {
    let ended = match regions.try_take_back(region) {
        // Lent in parts.
        Err(TakeBackError::Shared(_)) => {
            regions.take_back_shared(region, std::time::Duration::ZERO)
        }
        other => other.map(drop),
    };
    !matches!(ended, Err(TakeBackError::StillInUse { .. }))
}

/// Who is to be woken.
#[derive(Debug)]
pub(crate) struct Wakers(Vec<Waker>);

impl Deferred for Wakers {
    fn run(self) {
        self.0.into_iter().for_each(Waker::wake);
    }
}

/// Puts something at its index.
fn enter<T>(table: &mut Vec<Option<T>>, index: u32, item: T) {
    let index = index as usize;
    if table.len() <= index {
        table.resize_with(index + 1, || None);
    }
    table[index] = Some(item);
}

/// When the last is gone, the adapter ends.
///
/// Commands of the management take the runtime's lock. Posting and polling do not: see
/// [`doorbell`](crate::qpip::doorbell) and [`completion_queue`](crate::qpip::completion_queue).
#[derive(Debug)]
pub(crate) struct Handle {
    handle: runtime::Handle<AdapterState>,
    pub(crate) doorbells: Arc<Doorbells>,
    pub(crate) regions: Regions,
    /// Tells handles of this adapter from those of others.
    pub(crate) serial: u32,
}

impl std::ops::Deref for Handle {
    type Target = Runtime<AdapterState>;

    #[inline]
    fn deref(&self) -> &Runtime<AdapterState> {
        &self.handle
    }
}

impl Handle {
    pub(crate) fn new(
        runtime: Arc<Runtime<AdapterState>>,
        doorbells: Arc<Doorbells>,
        regions: Regions,
    ) -> Self {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        Self { handle: runtime::Handle(runtime), doorbells, regions, serial }
    }

    /// Carries out a command of the management. What was posted before, by any
    /// thread that this one has heard from, comes first.
    pub(crate) fn command<T>(&self, command: impl FnOnce(&mut AdapterState, Instant) -> T) -> T {
        self.ask(|core, now| {
            core.take_posts(now);
            let result = command(core, now);
            core.hear();
            result
        })
    }

    /// The adapter runs, or will when its user lets it.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.has_ended() { Err(Error::AdapterGone) } else { Ok(()) }
    }
}

/// Something that its user has dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Submission {
    DestroyPair(QueuePairId),
    ForgetQueue(CompletionQueueId),
    DropMemory(MemoryKey, RegionId),
    DropDomain(DomainId),
    DropSharedReceives(SharedReceiveQueueId),
    StopListening(ListenerId),
}

impl AdapterState {
    /// What was posted before, by any thread that the submitting one has heard from, comes
    /// first.
    fn submitted(&mut self, now: Instant, submission: Submission) {
        self.take_posts(now);
        match submission {
            Submission::DestroyPair(id) => self.destroy_pair(now, id),
            Submission::ForgetQueue(id) => self.forget_queue(id),
            Submission::DropMemory(key, region) => self.drop_memory(key, region),
            Submission::DropDomain(id) => self.drop_domain(id),
            Submission::DropSharedReceives(id) => self.drop_shared_receives(id),
            Submission::StopListening(id) => self.stop_listening(id),
        }
        self.hear();
    }
}
