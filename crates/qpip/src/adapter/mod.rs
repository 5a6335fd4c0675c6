//! [`Adapter`]: queue pairs over TCP and UDP, as the network interface of the
//! paper would run them.
//!
//! Its four state machines are files here, and each has files that serve it:
//!
//! | state machine | file | what it uses |
//! | --- | --- | --- |
//! | management: commands that make and end things | `management`, `connecting` | `domain`, `completion_queue`, `queue_pair`, `interface` |
//! | doorbell: work requests are posted | `doorbell` | `domain`, `udp` |
//! | transmit: what leaves next | `transmit` | `fragments`, `control` |
//! | receive: where what came belongs | `receive` and its folder | `predict`, `demux`, `opening`, `landing` |
//!
//! Where a card runs the offload seam, `commands` is what it is told, and
//! `delegation` takes what it reports.
//!
//! `links` is what the adapter is on each path, and what leaves without a queue pair;
//! `context` is what every part is handed: `config`, and `event` with what is told and
//! counted.
//!
//! What does not live here: TCP itself ([`tcp`](crate::tcp)), headers
//! ([`wire`](crate::wire)), what a host on IP remembers ([`ip`](crate::ip)).

mod commands;
mod completion_queue;
mod config;
mod connecting;
mod context;
mod delegation;
mod demux;
mod domain;
mod doorbell;
mod error;
mod event;
mod fragments;
mod interface;
mod landing;
mod links;
mod management;
mod predict;
mod queue_pair;
mod receive;
mod transmit;
mod udp;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use landfall_placement::{
    Deposit, Engine, Guess, Instant, Landing, PathId, PathState, Placement, Random, Refusal,
    Refusals, Seed, Spans, Ticket, Timeout, Transmit, Unit,
};
use landfall_tables::{IndexedHeap, Table};

pub use completion_queue::Arm;
pub use config::Config;
pub use domain::Access;
pub use error::{Error, Object, PostError};
pub use event::{ConnectionStats, Event, Stats};
pub use interface::Interface;
pub use queue_pair::{QueuePairSetup, Service};

use crate::tcp::{Cookies, Secret};
use crate::work::{Completion, CompletionQueueId, ListenerId, QueuePairId};
use completion_queue::CompletionQueues;
use context::Context;
use delegation::Delegation;
use demux::{Demux, Listener, Openings, TimeWaits};
use domain::Domains;
use landing::{Placing, Sending};
use links::Links;
use predict::Predictions;
use queue_pair::QueuePair;
use receive::Pieces;

/// Queue pairs over TCP and UDP on any number of Ethernet interfaces.
///
/// It is a state machine without I/O. Commands and doorbells are methods and
/// return at once; a driver runs it as an [`Engine`] whose units are whole
/// Ethernet frames; what is done is polled from completion queues, and what else
/// happened from [`poll_event`](Engine::poll_event).
#[derive(Debug)]
pub struct Adapter {
    context: Context,
    secret: Secret,
    cookies: Cookies,
    domains: Domains,
    completion_queues: CompletionQueues,
    pairs: Table<QueuePair>,
    /// By queue pair; never later than it wants.
    pair_timers: IndexedHeap<Instant>,
    demux: Demux,
    listeners: Table<Listener>,
    /// By port and address, in that order.
    listening: BTreeMap<(u16, core::net::IpAddr), ListenerId>,
    openings: Openings,
    /// Listeners with connections that are proved and queue pairs to mate them with.
    awaited: Vec<ListenerId>,
    time_waits: TimeWaits,
    links: Links,
    pieces: Pieces,
    /// What drivers are putting into its place, and what they read.
    placing: Table<Placing>,
    sending: Table<Sending>,
    /// What the offload seam expects.
    predictions: Predictions,
    /// What a card expects, where one runs the seam.
    delegation: Delegation,
}

impl Adapter {
    /// An adapter without interfaces. The seed determines every number that
    /// strangers must not guess.
    #[must_use]
    pub fn new(config: Config, seed: Seed) -> Self {
        let config = config.in_range();
        let mut random = Random::new(seed);
        Self {
            secret: Secret::new(&mut random),
            cookies: Cookies::new(&mut random),
            domains: Domains::new(&config),
            completion_queues: CompletionQueues::new(&config),
            pairs: Table::new(config.queue_pairs),
            pair_timers: IndexedHeap::new(),
            demux: Demux::new(&mut random),
            listeners: Table::new(config.listeners),
            listening: BTreeMap::new(),
            awaited: Vec::new(),
            openings: Openings::new(config.half_open, &mut random),
            time_waits: TimeWaits::new(config.time_wait, &mut random),
            links: Links::new(&config, &mut random),
            pieces: Pieces::new(&config),
            placing: Table::new(config.placements),
            sending: Table::new(config.transmissions),
            predictions: Predictions::new(&mut random),
            delegation: Delegation::default(),
            context: Context::new(config, random),
        }
    }

    /// The bounds, as they are in force.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.context.config
    }

    /// What was done so far.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.context.stats
    }

    /// Takes the next completion of a queue.
    #[inline]
    pub fn poll(&mut self, queue: CompletionQueueId) -> Option<Completion> {
        let completion = self.completion_queues.poll(queue)?;
        if !completion.ends_request {
            self.part_was_polled(queue, completion.queue_pair);
        }
        Some(completion)
    }

    /// Asks for one [`Event::CompletionsReady`] when there is something to poll.
    ///
    /// `false`: there is something already, and no event will come. A waiter
    /// polls until the queue is empty, arms, and sleeps only after `true`: so no
    /// completion is ever missed.
    pub fn arm(&mut self, queue: CompletionQueueId, arm: Arm) -> bool {
        self.completion_queues.arm(queue, arm)
    }

    /// How many completions wait to be polled.
    #[must_use]
    pub fn completions(&self, queue: CompletionQueueId) -> usize {
        self.completion_queues.len(queue)
    }

    /// The queue pair of this name, unless the user has destroyed it.
    fn known(&self, id: QueuePairId) -> Option<&QueuePair> {
        self.pairs.named(id.index, id.generation).filter(|pair| !pair.is_destroyed)
    }

    fn known_mut(&mut self, id: QueuePairId) -> Option<&mut QueuePair> {
        self.pairs.named_mut(id.index, id.generation).filter(|pair| !pair.is_destroyed)
    }
}

impl Engine for Adapter {
    type Event = Event;

    fn handle_path(&mut self, now: Instant, path: PathId, state: PathState) {
        self.change_path(now, path, state);
    }

    #[inline]
    fn guess(&self, path: PathId, nth: usize) -> Option<Guess> {
        self.guess_next(path, nth)
    }

    #[inline]
    fn place(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        self.receive(now, unit, into).map_err(|refusal| self.context.refusals.count(refusal))
    }

    #[inline]
    fn handle_placed(&mut self, now: Instant, ticket: Ticket, landing: Landing) {
        self.land(now, ticket, landing);
    }

    fn poll_deposit(&mut self, now: Instant, into: &mut Spans) -> Option<Deposit<'_>> {
        self.next_deposit(now, into)
    }

    #[inline]
    fn poll_transmit(
        &mut self,
        now: Instant,
        path: PathId,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        let link = self.links.of(path)?;
        self.next_transmit(now, link, head, from)
    }

    #[inline]
    fn handle_sent(&mut self, _now: Instant, ticket: Ticket) {
        self.let_go(ticket);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.fire_timers(now);
    }

    fn poll_timeout(&self) -> Option<Timeout> {
        self.next_timer()
    }

    #[inline]
    fn poll_event(&mut self) -> Option<Event> {
        let event = self.context.events.pop()?;
        if let Event::CompletionsReady { queue } = event {
            self.completion_queues.was_heard(queue);
        }
        Some(event)
    }

    fn refusals(&self) -> &Refusals {
        &self.context.refusals
    }
}
