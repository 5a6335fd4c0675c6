//! The engine: [`Endpoint`] joins all parts and meets the driver.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `calls` | what the user calls: who owns it answers |
//! | `dispatch` | a packet comes: checks, and who it is for; a payload is in place, a transmission is over |
//! | `transmit` | what is sent next |
//! | `paths` | paths come, change and go |
//! | `timers` | time passed |

mod calls;
mod dispatch;
mod paths;
mod timers;
mod transmit;

pub(crate) use transmit::SUM_SLOT;

use landfall_placement::{
    Deposit, Engine, Guess, Instant, Landing, PathId, PathState, Peer, Placement, Random, Refusal,
    Refusals, RunPlacement, RunRoom, Seed, Spans, Ticket, Timeout, Transmit, TransmitRun, Unit,
    UnitRun,
};

use crate::config::Config;
use crate::connection::Connections;
use crate::context::Context;
use crate::event::Event;
use crate::link::Links;
use crate::network::Network;
use crate::receive::{Granted, Receives};
use crate::region::{Regions, Streams};
use crate::send::Sends;
use crate::stats::Stats;
use crate::wire::{HEADER_LEN, Op};

/// The Scheduled Transfer Protocol of one host: every connection, Transfer and
/// region, over any number of paths.
///
/// It is a state machine without I/O. Calls of the user are here and return at
/// once; a driver runs it as an [`Engine`]; what happened comes out of
/// [`poll_event`](Engine::poll_event).
#[derive(Debug)]
pub struct Endpoint {
    pub(crate) cx: Context,
    pub(crate) net: Network,
    pub(crate) sends: Sends,
    pub(crate) receives: Receives,
    pub(crate) regions: Regions,
    pub(crate) streams: Streams,
}

impl Endpoint {
    /// An endpoint without paths. The seed determines every key and secret of it.
    #[must_use]
    pub fn new(config: Config, seed: Seed) -> Self {
        let config = config.in_range();
        let mut random = Random::new(seed);
        let links = Links::new(config.links, &mut random);
        let connections = Connections::new(config.connections, &mut random);
        let granted = Granted::new(&config, &mut random);
        let net = Network::new(links, connections, &mut random);
        Self {
            sends: Sends::new(&config),
            receives: Receives::new(&config, granted),
            regions: Regions::new(&config),
            streams: Streams::default(),
            cx: Context::new(config, random),
            net,
        }
    }

    /// The bounds and habits, as they are in force.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.cx.config
    }

    /// What was done so far.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.cx.stats
    }

    /// How many connections there are, in any state.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.net.connections.table.len()
    }

    /// How many bytes are granted and have not arrived, but for those that their senders do
    /// not use.
    #[must_use]
    pub const fn granted_bytes(&self) -> u64 {
        self.net.links.held.bytes
    }
}

impl Engine for Endpoint {
    type Event = Event;

    fn handle_path(&mut self, now: Instant, path: PathId, state: PathState) {
        self.cx.now = now;
        self.change_path(path, state);
    }

    fn awaits_first_answer(&self, path: PathId) -> bool {
        self.net.is_unanswered_on(path)
    }

    fn handle_unreachable(&mut self, _now: Instant, path: PathId, peer: Peer) {
        self.end_unanswered(path, peer);
    }

    #[inline]
    fn guess(&self, path: PathId, nth: usize) -> Option<Guess> {
        let path = &self.net.paths[self.net.path_index(path)?];
        let link = self.net.links.get(path.last_link?)?;
        // What was granted and has not begun to come is likelier than what was
        // lost and is asked for again: that comes one by one, and may be first or
        // last. Gaps are guessed where nothing else is expected.
        let run = self
            .receives
            .granted
            .nth_run(link.first, nth)
            .or_else(|| self.receives.granted.nth_gap(link.first, nth))?;
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
        self.cx.now = now;
        self.dispatch(unit, into).map_err(|refusal| self.cx.refusals.count(refusal))
    }

    #[inline]
    fn place_run(&mut self, now: Instant, run: &UnitRun<'_>) -> Option<RunPlacement> {
        self.cx.now = now;
        self.receives
            .place_data_run(&mut self.net, &mut self.cx, run)
            .or_else(|| self.place_put_run(run))
    }

    #[inline]
    fn handle_placed(&mut self, now: Instant, ticket: Ticket, landing: Landing) {
        self.cx.now = now;
        self.land(ticket, landing);
    }

    #[inline]
    fn poll_deposit(&mut self, _now: Instant, into: &mut Spans) -> Option<Deposit<'_>> {
        if self.receives.early.is_empty() { None } else { self.receives.next_early(into) }
    }

    #[inline]
    fn poll_transmit(
        &mut self,
        now: Instant,
        path: PathId,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        self.cx.now = now;
        self.prepare_transmit();
        let path = self.net.path_index(path)?;
        self.next_transmit(path, head, from)
    }

    #[inline]
    fn poll_transmit_run(
        &mut self,
        now: Instant,
        path: PathId,
        room: &mut RunRoom<'_>,
    ) -> Option<TransmitRun> {
        self.cx.now = now;
        self.prepare_transmit();
        let path = self.net.path_index(path)?;
        self.next_run(path, room)
    }

    #[inline]
    fn handle_sent(&mut self, _now: Instant, ticket: Ticket) {
        self.let_go(ticket);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.cx.now = now;
        self.fire_timers();
    }

    fn poll_timeout(&self) -> Option<Timeout> {
        self.next_timer()
    }

    #[inline]
    fn poll_event(&mut self) -> Option<Event> {
        self.cx.take_event(self.receives.granted.mirror.freed())
    }

    fn refusals(&self) -> &Refusals {
        &self.cx.refusals
    }

    /// Data that fails its check leaves its grant open, and changes nothing else. Whatever
    /// else there is may answer, refuse or end something by its head alone.
    #[inline]
    fn places_unverified(&self, head: &[u8]) -> bool {
        head.first() == Some(&(Op::Data as u8))
    }
}
