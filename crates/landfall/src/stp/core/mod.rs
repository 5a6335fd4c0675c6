//! What is behind an endpoint's lock: the engine, its drivers, and who waits
//! for what.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `request` | what was asked of the engine, as data |
//! | `slots` | operations, from the call to their end |
//! | `connections` | who waits for what on a connection |
//! | `events` | what the engine tells, and whom it concerns |
//! | `calls` | what handles ask for |

mod calls;
mod connections;
mod events;
mod request;
mod slots;

use std::collections::HashMap;
use std::task::Waker;

use landfall_placement::{Engine as _, Instant, PathId, Peer};
use landfall_transport::Clock;
use landfall_transport::driver::Interest;
use stp_core::{ConnectionId, Endpoint, ExposedId};

pub use connections::Notice;
pub(crate) use connections::{Known, Listening, OfferMade, ReadMade, RegionMade, Shown, Status};
pub(crate) use request::Request;
pub(crate) use slots::{Key, Outcome, Slots, Stage};

use super::memory::Held;

/// A path of an endpoint.
pub(crate) type Lane = crate::drive::Lane<Endpoint>;

/// What is done when the lock is no longer held: wakers may run anything.
#[derive(Debug, Default)]
pub(crate) struct After {
    pub(crate) wake: Vec<Waker>,
    pub(crate) forget: Vec<Waker>,
    pub(crate) free: Vec<Held>,
}

impl After {
    pub(crate) fn run(self) {
        self.wake.into_iter().for_each(Waker::wake);
    }

    const fn is_empty(&self) -> bool {
        self.wake.is_empty() && self.forget.is_empty() && self.free.is_empty()
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) engine: Endpoint,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) clock: Clock,
    pub(crate) slots: Slots,
    pub(crate) connections: HashMap<ConnectionId, Known>,
    /// Those with operations that wait for room.
    crowded: Vec<ConnectionId>,
    pub(crate) listeners: HashMap<u16, Listening>,
    pub(crate) shown: HashMap<ExposedId, Shown>,
    /// How many connections may wait to be accepted at a port.
    backlog: usize,
    /// The endpoint closes: nothing begins any more.
    pub(crate) is_closing: bool,
    /// What a sleeping thread waits for, and until when.
    pub(crate) asleep: Option<Asleep>,
    after: After,
}

/// A thread that sleeps at the descriptors.
#[derive(Debug)]
pub(crate) struct Asleep {
    until: Option<Instant>,
    interests: Vec<Interest>,
}

impl Core {
    pub(crate) fn new(engine: Endpoint, lanes: Vec<Lane>, clock: Clock, backlog: usize) -> Self {
        let mut core = Self {
            engine,
            lanes,
            clock,
            slots: Slots::default(),
            connections: HashMap::new(),
            crowded: Vec::new(),
            listeners: HashMap::new(),
            shown: HashMap::new(),
            backlog,
            is_closing: false,
            asleep: None,
            after: After::default(),
        };
        let now = clock.now();
        for lane in &mut core.lanes {
            lane.set_up(&mut core.engine, now, true);
        }
        core
    }

    /// One turn of every path, and what came of it. Gives whether anything moved.
    pub(crate) fn turn(&mut self) -> bool {
        let mut moved = false;
        for lane in &mut self.lanes {
            moved |= lane.turn(&mut self.engine, self.clock.now());
        }
        let now = self.clock.now();
        if self.engine.poll_timeout().is_some_and(|timeout| timeout.at <= now) {
            // No path is up that would have let it fire.
            self.engine.handle_timeout(now);
        }
        moved |= self.hear(now);
        if !self.crowded.is_empty() {
            moved |= self.begin_waiting(now);
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

    /// A thread is about to sleep: what it waits for, and until when.
    pub(crate) fn fall_asleep(&mut self, into: &mut Vec<Interest>) -> Option<Instant> {
        self.interests(into);
        let until = self.next_wake();
        self.asleep = Some(Asleep { until, interests: into.clone() });
        until
    }

    /// The thread is awake, and finds something to do or does not.
    pub(crate) fn wake_up(&mut self, is_ready: bool) {
        self.asleep = None;
        // Which path it was nobody asked: the first one counts.
        if let (true, Some(lane)) = (is_ready, self.lanes.first_mut()) {
            lane.driver.counters_mut().wakeups += 1;
        }
    }

    /// After a turn while a thread sleeps: does it sleep for the wrong things?
    pub(crate) fn must_wake_sleeper(&mut self) -> bool {
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

    pub(crate) fn take_after(&mut self) -> After {
        if self.after.is_empty() { After::default() } else { std::mem::take(&mut self.after) }
    }

    /// The first path that leads to such a peer.
    pub(crate) fn path_to(&self, peer: Peer) -> Option<PathId> {
        Lane::to(&self.lanes, peer).map(|lane| lane.driver.path())
    }

    pub(crate) fn lane(&mut self, path: PathId) -> Option<&mut Lane> {
        self.lanes.iter_mut().find(|lane| lane.driver.path() == path)
    }

    fn wake_all(after: &mut After, wakers: &mut Vec<Waker>) {
        after.wake.append(wakers);
    }

    /// Remembers a waker once; what it replaces is dropped without the lock.
    pub(crate) fn watch(after: &mut After, wakers: &mut Vec<Waker>, waker: &Waker) {
        if !wakers.iter().any(|known| known.will_wake(waker)) {
            /// Handles that are polled by ever new tasks leave wakers behind.
            const MOST: usize = 64;
            if wakers.len() >= MOST {
                after.wake.append(wakers);
            }
            wakers.push(waker.clone());
        }
    }
}
