//! What is behind an adapter's lock: the engine, its drivers, and the other ends
//! of what its users hold.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `lane` | a driver of any kind |
//! | `posts` | work requests come out of their rings |
//! | `completions` | what is done goes into completion queues |
//! | `news` | what else the engine tells, and whom it concerns |
//! | `commands` | what handles ask of the management |

mod commands;
mod completions;
mod lane;
mod news;
mod posts;

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use landfall_placement::{Duration, Engine as _, Instant, RegionId};
use landfall_transport::Clock;
use landfall_transport::driver::Interest;
use landfall_transport::memory::{Regions, TakeBackError};
use qpip::{Adapter, CompletionQueueId, DomainId, Event, MemoryKey};

use completions::Queue;
pub(crate) use lane::Lane;
pub(crate) use news::ListenerState;
use news::Listening;
use posts::Pair;

use super::doorbell::{Doorbells, Request};

/// How long the adapter sleeps at most while something waits for a moment that
/// nobody will tell of.
const SHORT_SLEEP: Duration = Duration::from_millis(1);

/// See the module.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) engine: Adapter,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) clock: Clock,
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
    /// Protection domains that have no user any more.
    left: Vec<DomainId>,
    /// Registered memory that has no user any more.
    dropped: Vec<(MemoryKey, RegionId)>,
    /// Lent memory that a driver held when it was to be freed.
    orphans: Vec<RegionId>,
    wake: Vec<Waker>,
    /// What the engine told, and nobody was told of yet.
    heard: VecDeque<Event>,
    /// Used again and again.
    rung: Vec<u32>,
    request: Request,
}

impl Core {
    pub(crate) fn new(engine: Adapter, lanes: Vec<Lane>, regions: Regions) -> Self {
        let doorbells = Arc::new(Doorbells::new(engine.config().queue_pairs));
        let mut core = Self {
            engine,
            lanes,
            clock: Clock::start(),
            doorbells,
            regions,
            pairs: Vec::new(),
            queues: Vec::new(),
            listeners: Vec::new(),
            again: Vec::new(),
            stalled: Vec::new(),
            forgotten: Vec::new(),
            left: Vec::new(),
            dropped: Vec::new(),
            orphans: Vec::new(),
            wake: Vec::new(),
            heard: VecDeque::new(),
            rung: Vec::new(),
            request: Request::default(),
        };
        let now = core.clock.now();
        for lane in &mut core.lanes {
            lane.set_up(&mut core.engine, now, true);
        }
        core
    }

    /// One turn: what was posted, what the links carry, and what came of it.
    /// Gives whether anything moved.
    pub(crate) fn turn(&mut self) -> bool {
        let mut moved = self.take_posts(self.clock.now());
        for lane in &mut self.lanes {
            moved |= lane.turn(&mut self.engine, self.clock.now());
        }
        let now = self.clock.now();
        if self.engine.poll_timeout().is_some_and(|timeout| timeout.at <= now) {
            // No link is up that would have let it fire.
            self.engine.handle_timeout(now);
        }
        moved |= self.hear();
        self.clean_up();
        moved
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
        self.orphans.retain(|region| {
            matches!(regions.try_take_back(*region), Err(TakeBackError::StillInUse { .. }))
        });
    }

    /// When a turn makes sense, even if nothing comes.
    fn next_wake(&self) -> Option<Instant> {
        let lanes = self.lanes.iter().filter(|lane| lane.is_up);
        let drivers = lanes.filter_map(|lane| lane.driver.poll_timeout());
        let soon = (!self.again.is_empty()).then(|| self.clock.now() + SHORT_SLEEP);
        drivers.chain(self.engine.poll_timeout().map(|timeout| timeout.at)).chain(soon).min()
    }

    /// A thread is about to sleep: what it waits for, and until when.
    pub(crate) fn fall_asleep(&mut self, into: &mut Vec<Interest>) -> Option<Instant> {
        for lane in self.lanes.iter().filter(|lane| lane.is_up) {
            into.extend(lane.driver.interests());
        }
        if self.has_room_where_it_stalled() {
            return Some(Instant::ZERO);
        }
        self.next_wake()
    }

    /// A sleeping thread was woken. Which link it was nobody asked: the first
    /// one counts.
    pub(crate) fn note_wakeup(&mut self) {
        if let Some(lane) = self.lanes.first_mut() {
            lane.driver.counters_mut().wakeups += 1;
        }
    }

    /// Who is to be woken, once the lock is not held: wakers may run anything.
    pub(crate) fn take_wakers(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.wake)
    }

    /// Nothing moves any more: tells all who wait, and gives the drivers up.
    pub(crate) fn let_go(&mut self) -> Vec<Lane> {
        self.lose_all();
        std::mem::take(&mut self.lanes)
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
