//! The engine: [`Endpoint`] joins all parts, and meets the user and the driver.
//!
//! | part | what it owns |
//! | --- | --- |
//! | `Context` | the time, the configuration, counters, and events for the user |
//! | `Network` | paths with what waits to be sent there, links, connections |
//! | `Sends` | Transfers that this side sends |
//! | `Receives` | Transfers and Gets that this side receives, and what is granted to them |
//! | `Regions` | memory of this side that others use |
//! | `Streams` | Puts and FetchOps that this side asks for |
//!
//! A part is handed the `Network` and the `Context`, and calls no part beside it. What it has
//! to tell another it returns, and the `Endpoint` tells it.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `calls` | what the user calls |
//! | `dispatch` | a packet comes: checks, and who it is for; a payload is in place, a transmission is over; what follows from one part for another |
//! | this one | what the driver calls; what is sent next; time passed |

mod calls;
mod dispatch;

use landfall_placement::{
    ConfigError, Deposit, Ecn, Engine, Guess, Instant, Landing, PathId, PathState, Peer, Placement,
    Random, Refusal, Refusals, RunPlacement, RunRoom, Seed, Spans, Ticket, Timeout, Transmit,
    TransmitRun, Unit, UnitRun,
};
use landfall_tables::IndexedHeap;

use crate::config::Config;
use crate::connection::{Connections, Effect};
use crate::context::Context;
use crate::error::Ended;
use crate::event::Event;
use crate::link::Links;
use crate::network::Network;
use crate::path::{ControlTail, DataRun, Source};
use crate::receive::{Granted, Receives};
use crate::region::{Regions, Streams};
use crate::send::Sends;
use crate::stats::Stats;
use crate::ticket::Purpose;
use crate::wire::header::{SUM_RANGE, SUM_SLOT};
use crate::wire::{HEADER_LEN, LONGEST_HEAD, Op};

/// How many timers fire in one call; the rest in the next, which is due at once.
const BUDGET: usize = 256;

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
    ///
    /// # Errors
    /// A value of the configuration is out of its range.
    pub fn new(config: Config, seed: Seed) -> Result<Self, ConfigError> {
        config.validate()?;
        let mut random = Random::new(seed);
        let links = Links::new(config.links, &mut random);
        let connections = Connections::new(config.connections, &mut random);
        let granted = Granted::new(&config, &mut random);
        let net = Network::new(links, connections, &mut random);
        Ok(Self {
            sends: Sends::new(&config),
            receives: Receives::new(&config, granted),
            regions: Regions::new(&config),
            streams: Streams::default(),
            cx: Context::new(config, random),
            net,
        })
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

    fn handle_unreachable(&mut self, now: Instant, path: PathId, peer: Peer) {
        self.cx.now = now;
        // Anybody can forge that: what nobody there has answered ends, and nothing else.
        for connection in self.net.unanswered_at(path, peer) {
            self.apply(Effect::failed(connection, Ended::Unreachable));
        }
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
        self.handle_released(ticket);
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

/// What is sent next: first what carries no payload, for somebody waits for it; then Puts and
/// FetchOps, which are short; then Data.
impl Endpoint {
    /// What became due since something was sent last.
    #[inline]
    fn prepare_transmit(&mut self) {
        if self.receives.grants_due {
            self.receives.grant_more(&mut self.net, &mut self.cx);
        }
        if !self.net.connections.ending.is_empty() {
            self.net.disconnect_idle(&mut self.cx);
        }
    }

    #[inline]
    fn next_transmit(
        &mut self,
        path: usize,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        if head.len() < LONGEST_HEAD || self.net.paths[path].limits.is_none() {
            return None;
        }
        while let Some(control) = self.net.paths[path].control.pop_front() {
            let len = usize::from(control.len);
            head[..len].copy_from_slice(&control.bytes[..len]);
            let (ticket, span, checksum) = match control.behind {
                ControlTail::Nothing => (Purpose::Control, None, None),
                ControlTail::Padding(len) => {
                    (Purpose::Control, self.net.padding.map(|padding| padding.span(0, len)), None)
                }
                ControlTail::Transfer { index, generation } => {
                    // It may have ended since.
                    let Some(span) = self.sends.begin_eager(&mut self.cx, index, generation) else {
                        continue;
                    };
                    head[SUM_RANGE].fill(0);
                    (Purpose::Send { index, generation }, Some(span), Some(SUM_SLOT))
                }
            };
            if let Some(span) = span {
                from.push(span).ok()?;
            }
            self.cx.stats.control_sent += 1;
            let known = &self.net.paths[path];
            if !known.waiting.is_empty() && known.has_room_for_grants(self.cx.config.queue) {
                self.receives.wake_path(&mut self.net, path);
            }
            return Some(Transmit {
                to: control.to,
                head_len: u16::from(control.len),
                segment: None,
                checksum,
                sum_only: 0,
                ecn: Ecn::NotCapable,
                ticket: ticket.pack(),
            });
        }
        if let Some(transmit) =
            self.streams.next_operation(&mut self.net, &mut self.cx, path, head, from)
        {
            return Some(transmit);
        }
        self.next_data(path, head, from)
    }

    /// Puts or Data that are sent next, if nothing comes before them and they are a run.
    #[inline]
    fn next_run(&mut self, path: usize, room: &mut RunRoom<'_>) -> Option<TransmitRun> {
        let Self { net, cx, sends, regions, .. } = self;
        let known = net.paths.get_mut(path)?;
        if !known.control.is_empty() || known.limits.is_none() || cx.config.checksum {
            return None;
        }
        if !known.streams.is_empty() {
            return self.streams.next_put_run(net, cx, path, room);
        }
        let is_wanted = |source| may_leave(sends, regions, source);
        let DataRun { to, source, run } = known.next_data_run(cx.now, is_wanted, room)?;
        let ticket = self.note_sent(source, run.stus, run.span.len);
        Some(TransmitRun {
            to,
            units: run.stus,
            head_len: HEADER_LEN as u16,
            payload_len: run.stu_len,
            span: run.span,
            ecn: self.cx.ecn(),
            ticket,
        })
    }

    #[inline]
    fn next_data(&mut self, path: usize, head: &mut [u8], from: &mut Spans) -> Option<Transmit> {
        let Self { net, cx, sends, regions, .. } = self;
        let is_summed = cx.config.checksum;
        let is_wanted = |source| may_leave(sends, regions, source);
        let data = net.paths[path].next_data(cx.now, is_summed, is_wanted, head)?;
        from.push(data.span).ok()?;
        let ticket = self.note_sent(data.source, 1, data.span.len);
        Some(Transmit {
            to: data.to,
            head_len: HEADER_LEN as u16,
            segment: None,
            checksum: is_summed.then_some(SUM_SLOT),
            sum_only: 0,
            ecn: self.cx.ecn(),
            ticket,
        })
    }

    #[inline]
    fn note_sent(&mut self, source: Source, stus: u16, len: u32) -> Ticket {
        self.cx.stats.stus_sent += u64::from(stus);
        self.cx.stats.bytes_sent += u64::from(len);
        match source {
            Source::Send { index, .. } => self.sends.hold(index),
            Source::Exposed { index, .. } => self.regions.hold(index),
        }
        source.purpose().pack()
    }
}

/// May Data of an order leave? Not where its Transfer was ended, or its region revoked, since it
/// was granted.
#[inline]
fn may_leave(sends: &Sends, regions: &Regions, source: Source) -> bool {
    match source {
        Source::Send { index, generation } => sends.may_leave(index, generation),
        Source::Exposed { index, generation } => regions.may_leave(index, generation),
    }
}

/// Time passed.
impl Endpoint {
    fn next_timer(&self) -> Option<Timeout> {
        let timers: [(&IndexedHeap<Instant>, &'static str); 7] = [
            (&self.net.links.timers, "granted data"),
            (&self.net.links.size_timers, "size of a link"),
            (&self.net.connections.timers, "connection"),
            (&self.sends.timers, "transfer to send"),
            (&self.receives.timers, "transfer to receive"),
            (&self.streams.timers, "put or fetch"),
            (&self.regions.timers, "memory region"),
        ];
        let firsts = timers.into_iter().filter_map(|(heap, timer)| {
            let (at, _) = heap.first()?;
            Some(Timeout { at, timer })
        });
        firsts.min_by_key(|timeout| timeout.at)
    }

    fn fire_timers(&mut self) {
        for _ in 0..BUDGET {
            if let Some(link) = due(&mut self.net.links.timers, self.cx.now) {
                if self.receives.time_out_link(&mut self.net, &mut self.cx, link) {
                    self.lose_link(link);
                }
            } else if let Some(link) = due(&mut self.net.links.size_timers, self.cx.now) {
                self.net.time_out_size(&mut self.cx, link);
            } else if let Some(connection) = due(&mut self.net.connections.timers, self.cx.now) {
                let effect = self.net.time_out_connection(&mut self.cx, connection);
                self.apply(effect);
            } else if let Some(send) = due(&mut self.sends.timers, self.cx.now) {
                self.sends.time_out_send(&mut self.net, &mut self.cx, send);
            } else if let Some(receive) = due(&mut self.receives.timers, self.cx.now) {
                self.receives.time_out_receive(&mut self.net, &mut self.cx, receive);
            } else if let Some(connection) = due(&mut self.streams.timers, self.cx.now) {
                self.time_out_puts(connection);
            } else if let Some(request) = due(&mut self.regions.timers, self.cx.now) {
                self.regions.time_out_request(&mut self.net, &mut self.cx, request);
            } else {
                return;
            }
        }
    }
}

/// The first timer that is due, taken out.
fn due(timers: &mut IndexedHeap<Instant>, now: Instant) -> Option<u32> {
    let (at, index) = timers.first()?;
    if at > now {
        return None;
    }
    timers.remove(index);
    Some(index)
}
