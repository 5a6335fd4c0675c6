//! The engine: [`Endpoint`] joins all parts and meets the driver.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `adapter` | adapters that take Data off the engine |
//! | `dispatch` | a packet comes: checks, and who it is for; a payload is in place, a transmission is over |
//! | `transmit` | what is sent next; a message to the other side of a connection |
//! | `paths` | paths come, change and go |
//! | `timers` | time passed |

mod adapter;
mod dispatch;
mod paths;
mod timers;
mod transmit;

pub(crate) use transmit::SUM_SLOT;

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use landfall_placement::{
    Area, Deposit, Engine, Guess, Instant, Landing, PathId, PathState, Peer, Placement, Random,
    Refusal, Refusals, RunPlacement, RunRoom, Seed, Spans, Ticket, Timeout, Transmit, TransmitRun,
    Unit, UnitRun,
};
use landfall_tables::{IndexedHeap, Table};

use crate::config::Config;
use crate::connection::Connections;
use crate::event::Event;
use crate::link::Links;
use crate::mirror::Mirror;
use crate::offload::{Block, Blocks, Run, bits_needed, run, words_per_block};
use crate::path::Path;
use crate::receive::{Grant, Posted, Read, Ready, Receive};
use crate::region::{Ask, Exposed, Request};
use crate::send::Send;
use crate::stats::Stats;
use crate::usage::Share;
use crate::wire::proof::Secret;
use crate::wire::{HEADER_LEN, Op};

/// The granted Blocks: what an adapter knows, and what only the engine knows.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) blocks: Vec<Block>,
    bits: Vec<u64>,
    stus: u16,
    pub(crate) grants: Vec<Grant>,
    pub(crate) mirror: Mirror,
    pub(crate) free: Vec<u16>,
    /// What all links have of the window.
    pub(crate) held: Share,
}

impl Granted {
    fn new(config: &Config, random: &mut Random) -> Self {
        // Twice as many as a Block is given: where STUs become shorter, they are equal parts of
        // the old ones, and may be little more than half of what the link carries.
        let stus = (words_per_block(1 << config.block_stus) * 2 * 64) as u16;
        let count = config.blocks;
        Self {
            // Where generations begin is one thing more that forged Data must know.
            blocks: (0..count).map(|_| Block::free(random.next_u32() as u16)).collect(),
            bits: vec![0; bits_needed(count, stus)],
            stus,
            grants: vec![Grant::new(0, 0, Instant::ZERO); count],
            mirror: Mirror::new(config.adapters, count),
            free: (0..count).rev().map(|index| index as u16).collect(),
            held: Share::default(),
        }
    }

    /// The table of the offload seam.
    #[inline]
    pub(crate) fn table(&mut self) -> Blocks<'_> {
        Blocks::new(&mut self.blocks, &mut self.bits, self.stus)
    }

    #[inline]
    pub(crate) fn block(&self, index: u16) -> &Block {
        &self.blocks[usize::from(index)]
    }

    #[inline]
    pub(crate) fn grant(&mut self, index: u16) -> &mut Grant {
        &mut self.grants[usize::from(index)]
    }

    pub(crate) fn number_of(&self, index: u16) -> u32 {
        self.block(index).expected().number
    }

    pub(crate) fn take_free(&mut self) -> Option<u16> {
        self.free.pop()
    }

    /// The place of a Block is given up. It is free at once, where no adapter may
    /// have anything under way to it.
    pub(crate) fn give_back(&mut self, index: u16, is_complete: bool) {
        if self.mirror.is_on() {
            self.mirror.give_back(index, is_complete);
        } else {
            self.free.push(index);
        }
    }
}

/// An event that waits for the user.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) event: Event,
    /// Not before so many Blocks that were taken back are free.
    after: u64,
}

/// The Scheduled Transfer Protocol of one host: every connection, Transfer and
/// region, over any number of paths.
///
/// It is a state machine without I/O. Calls of the user are here and return at
/// once; a driver runs it as an [`Engine`]; what happened comes out of
/// [`poll_event`](Engine::poll_event).
#[derive(Debug)]
pub struct Endpoint {
    pub(crate) config: Config,
    pub(crate) random: Random,
    /// What challenges to new links are made with.
    pub(crate) link_secret: [Secret; 2],
    pub(crate) refusals: Refusals,
    pub(crate) stats: Stats,
    pub(crate) events: VecDeque<Told>,
    pub(crate) paths: Vec<Path>,
    pub(crate) links: Links,
    pub(crate) link_timers: IndexedHeap<Instant>,
    /// By link: how long packets may be is being found out, or will be again.
    pub(crate) size_timers: IndexedHeap<Instant>,
    /// What packets are filled up with.
    pub(crate) padding: Option<Area>,
    pub(crate) connections: Connections,
    pub(crate) sends: Table<Send>,
    pub(crate) send_timers: IndexedHeap<Instant>,
    pub(crate) receives: Table<Receive>,
    pub(crate) receive_timers: IndexedHeap<Instant>,
    /// Transfers that came with their request and are to be deposited, and the one that is.
    pub(crate) early: VecDeque<(u32, u32)>,
    pub(crate) deposited: Vec<u8>,
    pub(crate) granted: Granted,
    pub(crate) ready: Ready,
    pub(crate) posted: Table<Posted>,
    pub(crate) reads: Table<Read>,
    pub(crate) exposed: Table<Exposed>,
    pub(crate) asks: Table<Ask>,
    pub(crate) requests: Table<Request>,
    pub(crate) request_timers: IndexedHeap<Instant>,
    /// By connection: Puts and FetchOps that were not answered.
    pub(crate) stream_timers: IndexedHeap<Instant>,
    /// Something arrived: more may be granted.
    pub(crate) grants_due: bool,
    /// The links that something arrived over.
    pub(crate) fresh_links: Vec<u32>,
}

impl Endpoint {
    /// An endpoint without paths. The seed determines every key and secret of it.
    #[must_use]
    pub fn new(config: Config, seed: Seed) -> Self {
        let config = config.in_range();
        let mut random = Random::new(seed);
        Self {
            refusals: Refusals::new(),
            stats: Stats::default(),
            events: VecDeque::new(),
            paths: Vec::new(),
            links: Links::new(config.links, &mut random),
            link_timers: IndexedHeap::new(),
            size_timers: IndexedHeap::new(),
            padding: None,
            connections: Connections::new(config.connections, &mut random),
            sends: Table::new(config.sends),
            send_timers: IndexedHeap::new(),
            receives: Table::new(config.receives),
            receive_timers: IndexedHeap::new(),
            early: VecDeque::new(),
            deposited: Vec::new(),
            granted: Granted::new(&config, &mut random),
            ready: Ready::new(config.policy),
            posted: Table::new(config.posted),
            reads: Table::new(config.receives),
            exposed: Table::new(config.exposed),
            asks: Table::new(config.exposed),
            requests: Table::new(config.exposed),
            request_timers: IndexedHeap::new(),
            stream_timers: IndexedHeap::new(),
            grants_due: false,
            fresh_links: Vec::new(),
            link_secret: [Secret(random.next_u64()), Secret(random.next_u64())],
            random,
            config,
        }
    }

    /// The bounds and habits, as they are in force.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// What was done so far.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// How many connections there are, in any state.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.table.len()
    }

    /// How many bytes are granted and have not arrived, but for those that their senders do
    /// not use.
    #[must_use]
    pub const fn granted_bytes(&self) -> u64 {
        self.granted.held.bytes
    }

    pub(crate) fn tell(&mut self, event: Event) {
        landfall_placement::trace!(?event);
        // Memory is the user's once nothing is under way to it.
        let is_over = matches!(event, Event::ReceiveEnded { .. });
        let after = if is_over { self.granted.mirror.left() } else { 0 };
        self.events.push_back(Told { event, after });
    }

    #[inline]
    pub(crate) fn path_index(&self, path: PathId) -> Option<usize> {
        self.paths.iter().position(|known| known.id == path)
    }
}

impl Engine for Endpoint {
    type Event = Event;

    fn handle_path(&mut self, now: Instant, path: PathId, state: PathState) {
        self.change_path(now, path, state);
    }

    fn awaits_first_answer(&self, path: PathId) -> bool {
        self.is_unanswered_on(path)
    }

    fn handle_unreachable(&mut self, _now: Instant, path: PathId, peer: Peer) {
        self.end_unanswered(path, peer);
    }

    #[inline]
    fn guess(&self, path: PathId, nth: usize) -> Option<Guess> {
        let path = &self.paths[self.path_index(path)?];
        let link = self.links.get(path.last_link?)?;
        // What was granted and has not begun to come is likelier than what was
        // lost and is asked for again: that comes one by one, and may be first or
        // last. Gaps are guessed where nothing else is expected.
        let run = self
            .granted
            .nth_run(link.first, nth)
            .or_else(|| self.granted.nth_gap(link.first, nth))?;
        let head_len = HEADER_LEN as u16;
        Some(Guess { span: run.span, head_len, payload_len: run.payload_len })
    }

    #[inline]
    fn place(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        self.dispatch(now, unit, into).map_err(|refusal| self.refusals.count(refusal))
    }

    #[inline]
    fn place_run(&mut self, now: Instant, run: &UnitRun<'_>) -> Option<RunPlacement> {
        self.place_data_run(now, run).or_else(|| self.place_put_run(now, run))
    }

    #[inline]
    fn handle_placed(&mut self, now: Instant, ticket: Ticket, landing: Landing) {
        self.land(now, ticket, landing);
    }

    #[inline]
    fn poll_deposit(&mut self, _now: Instant, into: &mut Spans) -> Option<Deposit<'_>> {
        if self.early.is_empty() { None } else { self.next_early(into) }
    }

    #[inline]
    fn poll_transmit(
        &mut self,
        now: Instant,
        path: PathId,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        self.prepare_transmit(now);
        let path = self.path_index(path)?;
        self.next_transmit(now, path, head, from)
    }

    #[inline]
    fn poll_transmit_run(
        &mut self,
        now: Instant,
        path: PathId,
        room: &mut RunRoom<'_>,
    ) -> Option<TransmitRun> {
        self.prepare_transmit(now);
        let path = self.path_index(path)?;
        self.next_run(now, path, room)
    }

    #[inline]
    fn handle_sent(&mut self, now: Instant, ticket: Ticket) {
        self.let_go(now, ticket);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.fire_timers(now);
    }

    fn poll_timeout(&self) -> Option<Timeout> {
        self.next_timer()
    }

    #[inline]
    fn poll_event(&mut self) -> Option<Event> {
        if self.events.front()?.after > self.granted.mirror.freed() {
            return None;
        }
        Some(self.events.pop_front()?.event)
    }

    fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Data that fails its check leaves its grant open, and changes nothing else. Whatever
    /// else there is may answer, refuse or end something by its head alone.
    #[inline]
    fn places_unverified(&self, head: &[u8]) -> bool {
        head.first() == Some(&(Op::Data as u8))
    }
}

impl Granted {
    /// The run of a Block from an STU on: see [`Blocks::run`].
    #[inline]
    fn run(&self, index: u16, from: u16) -> Option<Run> {
        run(&self.blocks, &self.bits, words_per_block(self.stus), index, from)
    }

    /// Of the Blocks from this one on, in the order of their grants, the nth run
    /// behind the highest STU that came.
    #[inline]
    fn nth_run(&self, first: u16, nth: usize) -> Option<Run> {
        let (mut block, mut left) = (first, nth);
        loop {
            let known = self.blocks.get(usize::from(block))?;
            let mut from = known.highest();
            while let Some(run) = self.run(block, from) {
                if left == 0 {
                    return Some(run);
                }
                left -= 1;
                from = run.end;
            }
            block = self.grants.get(usize::from(block))?.behind;
        }
    }

    /// The nth gap of the first of these Blocks, if none expects anything else.
    fn nth_gap(&self, first: u16, nth: usize) -> Option<Run> {
        if self.nth_run(first, 0).is_some() {
            return None;
        }
        let mut run = self.run(first, 0)?;
        for _ in 0..nth {
            run = self.run(first, run.end)?;
        }
        Some(run)
    }
}
