//! [`Paced`]: a host whose TCP takes time. Either the whole engine runs on the card's
//! processor, as in the paper: requests go down, and completions come up. Or it runs on the
//! host's, behind an adapter that only sends and receives.
//!
//! Nothing happens before its time was spent: the engine sees a frame when the stages of
//! the paper's Table 3 are over and the payload has crossed the bus, and a frame leaves
//! when those of Table 2 are. One processor does one thing at a time, and takes what came
//! and what is to be sent in turns. What a program does is a *job* of the host's processor.

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Deref, DerefMut};

use landfall_inet::packet::{Content, parse};
use landfall_inet::protocol;
use landfall_placement::{
    Duration, Engine, Instant, InternetSum, PathId, Peer, Span, Spans, Transmit,
};
use landfall_simnet::engine_node::EngineHost;
use landfall_simnet::{Frame, LinkState, Node, Outbox, PortId};
use qpip::Adapter;

use super::network::{EventQueue, Host, engine_config};
use super::world::Shape;
use crate::firmware::{Arrival, Meter, Stage};
use crate::lanai::stages::{Account, Helps, Load, StageCosts};
use crate::machine::{Bus, Dma, Processor};
use crate::node::software::{take_deposit, take_frame};
use crate::node::{Reached, SocketCosts};

/// Where TCP runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Site {
    /// On the card, at the cost of its stages.
    #[default]
    Card,
    /// On the host, at this cost.
    Host(SocketCosts),
}

/// A frame that the processor has seen.
#[derive(Debug)]
struct OutgoingFrame {
    /// When its payload may be fetched; once it is being fetched, when it is there.
    at: Instant,
    is_fetched: bool,
    port: PortId,
    head: Vec<u8>,
    spans: Vec<Span>,
    transmit: Transmit,
}

/// What a frame costs a host that runs TCP.
fn on_the_host(costs: &SocketCosts, load: Load) -> Duration {
    match load {
        Load::Bare => costs.ack,
        Load::Segment { payload, .. } | Load::Datagram { payload } => {
            costs.packet + costs.copy_of(payload)
        }
    }
}

/// Nanoseconds are the cycles of a host's processor here.
const NANOS: u64 = 1_000_000_000;
/// The most that is done in one call.
const BUDGET: u32 = 1_024;
/// This many frames that are to be sent have a place.
pub(crate) const SEND_SLOTS: usize = 16;

/// A host whose TCP takes time.
#[derive(Debug)]
pub struct Paced {
    host: EngineHost<Adapter>,
    site: Site,
    stages: StageCosts,
    helps: Helps,
    /// The card's processor, which is idle where the host's runs TCP.
    card: Processor,
    cpu: Processor,
    account: Account,
    bus: Bus,
    /// To the host, and from it.
    dma: [Dma; 2],
    /// This many frames that came have a place.
    slots: usize,
    arrived: VecDeque<Frame>,
    landing: VecDeque<(Instant, Frame)>,
    leaving: VecDeque<OutgoingFrame>,
    /// What was acknowledged last, by port.
    acknowledged: BTreeMap<u16, u32>,
    jobs: VecDeque<(u64, Duration)>,
    job: Option<(Instant, u64)>,
    done: VecDeque<u64>,
    lost: u64,
    /// Whose turn it is.
    sends_next: bool,
    no_room: bool,
    /// When this was last called.
    now: Instant,
}

impl Deref for Paced {
    type Target = EngineHost<Adapter>;

    fn deref(&self) -> &Self::Target {
        &self.host
    }
}

impl DerefMut for Paced {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.host
    }
}

impl Host for Paced {
    const IS_CARDED: bool = false;

    fn make(engine: Adapter, told: EventQueue, _: usize, shape: &Shape) -> Self {
        let build = &shape.card;
        let mut host = EngineHost::new(engine, engine_config(shape));
        host.set_handler(move |_, _, _, event| told.borrow_mut().push_back(event));
        Self {
            host,
            site: build.site,
            stages: build.stages,
            helps: build.helps,
            card: Processor::new(build.costs.clock),
            cpu: Processor::new(NANOS),
            account: Account::default(),
            bus: Bus::new(build.costs.bus),
            dma: [Dma::new(build.costs.dma); 2],
            slots: build.sizes.arrivals.into(),
            arrived: VecDeque::new(),
            landing: VecDeque::new(),
            leaving: VecDeque::new(),
            acknowledged: BTreeMap::new(),
            jobs: VecDeque::new(),
            job: None,
            done: VecDeque::new(),
            lost: 0,
            sends_next: false,
            no_room: false,
            now: Instant::ZERO,
        }
    }

    fn restart(&mut self, _: Instant) {}
}

impl Paced {
    /// A program keeps the host's processor for so long; [`poll_done`](Self::poll_done) says
    /// when that is over.
    pub fn ask(&mut self, job: u64, time: Duration) {
        self.host.restless = true;
        self.jobs.push_back((job, time));
    }

    /// The next job that is done.
    pub fn poll_done(&mut self) -> Option<u64> {
        self.done.pop_front()
    }

    /// For how long the host's processor was busy.
    #[must_use]
    pub fn busy(&self) -> Duration {
        Duration::from_nanos(Stage::ALL.iter().map(|stage| self.cpu.spent(*stage)).sum())
    }

    /// What the card's processor has spent, by the paper's stages.
    #[must_use]
    pub const fn account(&self) -> &Account {
        &self.account
    }

    /// Frames that came and found no place.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// The processor that runs TCP.
    const fn runs_tcp(&self) -> &Processor {
        match self.site {
            Site::Card => &self.card,
            Site::Host(_) => &self.cpu,
        }
    }

    /// Does all that is due.
    fn go_on(&mut self, now: Instant, out: &mut Outbox<'_>) {
        self.now = now;
        self.host.restless = false;
        for _ in 0..BUDGET {
            let mut is_busy = self.land(now);
            is_busy |= self.fire(now);
            is_busy |= self.leave(now, out);
            is_busy |= self.begin_tcp(now, out);
            is_busy |= self.run_jobs(now);
            if !is_busy {
                return self.check_memory(out);
            }
        }
        self.host.restless = true;
    }

    /// The engine's timers, and what it has to say. Neither is charged: the paper's stages
    /// are of frames.
    fn fire(&mut self, now: Instant) -> bool {
        let is_due = self.host.engine.poll_timeout().is_some_and(|timeout| timeout.at <= now);
        if is_due {
            self.host.engine.handle_timeout(now);
        }
        let mut memory = Reached { memory: &mut self.host.memory, now };
        let kept = take_deposit(&mut self.host.engine, &mut memory, now).is_some();
        self.host.drain_events(now, &mut (BUDGET as usize));
        is_due || kept
    }

    /// What has crossed the bus is the engine's to see.
    fn land(&mut self, now: Instant) -> bool {
        if self.landing.front().is_none_or(|(at, _)| *at > now) {
            return false;
        }
        let Some((_, frame)) = self.landing.pop_front() else { return false };
        let Frame { bytes, from, ecn, .. } = &frame;
        let arrival = Arrival { bytes, path: PathId(0), from: *from, ecn: *ecn };
        let mut memory = Reached { memory: &mut self.host.memory, now };
        let _ =
            take_frame(&mut self.host.engine, &mut memory, now, &arrival, &mut self.host.refused);
        true
    }

    /// The processor that runs TCP takes up the next frame, one that came and one that is to
    /// be sent in turns.
    fn begin_tcp(&mut self, now: Instant, out: &mut Outbox<'_>) -> bool {
        for _ in 0..2 {
            if self.runs_tcp().free_at() > now {
                return false;
            }
            self.sends_next = !self.sends_next;
            let begun = if self.sends_next { self.send(now, out) } else { self.receive(now) };
            if begun {
                return true;
            }
        }
        false
    }

    fn receive(&mut self, now: Instant) -> bool {
        let Some(frame) = self.arrived.pop_front() else { return false };
        let len = frame.bytes.len() as u32;
        let load = self.load(&frame.bytes, len, true);
        let done = match self.site {
            Site::Card => {
                let meter = self.card.begin();
                self.stages.receive_all(&self.helps, (load, len), &mut self.account, meter);
                self.card.end(now)
            }
            Site::Host(costs) => self.occupy(now, Stage::Header, on_the_host(&costs, load)),
        };
        let moved = match load {
            Load::Bare => now,
            Load::Segment { payload, .. } | Load::Datagram { payload } => {
                self.dma[0].begin(now, payload.into(), 1, &mut self.bus)
            }
        };
        self.landing.push_back((done.max(moved), frame));
        true
    }

    fn send(&mut self, now: Instant, out: &mut Outbox<'_>) -> bool {
        let port = PortId(0);
        let Some(limits) = self.host.paths.first().copied().flatten() else { return false };
        if self.leaving.len() >= SEND_SLOTS || !out.has_room(port) {
            return false;
        }
        let mut head = vec![0; usize::from(limits.head)];
        let mut spans = Spans::new();
        let transmit = self.host.engine.poll_transmit(now, PathId(0), &mut head, &mut spans);
        let Some(transmit) = transmit else { return false };
        head.truncate(usize::from(transmit.head_len));
        let len = u32::from(transmit.head_len) + spans.total_len() as u32;
        let load = self.load(&head, len, false);
        let at = match self.site {
            Site::Card => {
                self.stages.send(&self.helps, load, &mut self.account, self.card.begin());
                self.card.end(now)
            }
            Site::Host(costs) => self.occupy(now, Stage::Send, on_the_host(&costs, load)),
        };
        let spans = spans.to_vec();
        self.leaving.push_back(OutgoingFrame {
            at,
            is_fetched: false,
            port,
            head,
            spans,
            transmit,
        });
        true
    }

    /// What a frame is to the stages, of which these bytes are at hand.
    fn load(&mut self, head: &[u8], len: u32, has_come: bool) -> Load {
        let Ok(packet) = parse(head, len) else { return Load::Bare };
        let Content::Ip(ip) = packet.content else { return Load::Bare };
        if ip.protocol == protocol::UDP {
            return Load::Datagram { payload: ip.payload_len.saturating_sub(8) };
        }
        let Ok(segment) = ip.tcp(head) else { return Load::Bare };
        let port = segment.header.destination;
        let is_news = has_come
            && self.acknowledged.insert(port, segment.header.ack) != Some(segment.header.ack);
        match segment.payload_len {
            0 => Load::Bare,
            payload => Load::Segment { payload, is_news },
        }
    }

    /// Payloads are fetched, and what was fetched leaves.
    fn leave(&mut self, now: Instant, out: &mut Outbox<'_>) -> bool {
        let mut is_busy = false;
        for unit in self.leaving.iter_mut().filter(|unit| !unit.is_fetched && unit.at <= now) {
            let len = unit.spans.iter().map(|span| u64::from(span.len)).sum();
            unit.at = self.dma[1].begin(now, len, 1, &mut self.bus);
            unit.is_fetched = true;
            is_busy = true;
        }
        while let Some(unit) = self.leaving.front().filter(|it| it.is_fetched && it.at <= now) {
            if !out.has_room(unit.port) {
                out.call_when_room(unit.port);
                self.no_room = true;
                return is_busy;
            }
            let Some(unit) = self.leaving.pop_front() else { break };
            let ticket = unit.transmit.ticket;
            match self.build(&unit) {
                Some(bytes) => {
                    let Transmit { to, ecn, .. } = unit.transmit;
                    out.send(unit.port, Frame { bytes, from: Peer::Unaddressed, to, ecn });
                }
                None => self.host.counted.unsendable += 1,
            }
            self.host.engine.handle_sent(now, ticket);
            is_busy = true;
        }
        is_busy
    }

    /// All bytes of a frame; nothing where its memory is gone.
    fn build(&self, unit: &OutgoingFrame) -> Option<Vec<u8>> {
        let mut bytes = unit.head.clone();
        for span in &unit.spans {
            bytes.extend_from_slice(self.host.memory.read(*span).ok()?);
        }
        if let Some(slot) = unit.transmit.checksum {
            slot.fill(&mut bytes, InternetSum::new())?;
        }
        bytes.truncate(bytes.len().checked_sub(unit.transmit.sum_only as usize)?);
        Some(bytes)
    }

    /// The program's jobs, one after another.
    fn run_jobs(&mut self, now: Instant) -> bool {
        if let Some((_, job)) = self.job.take_if(|(until, _)| *until <= now) {
            self.done.push_back(job);
        }
        if self.job.is_some() || self.cpu.free_at() > now {
            return false;
        }
        let Some((job, time)) = self.jobs.pop_front() else { return false };
        let until = self.occupy(now, Stage::Update, time);
        self.job = Some((until, job));
        true
    }

    /// The host's processor is busy for so long; says until when.
    fn occupy(&mut self, now: Instant, stage: Stage, time: Duration) -> Instant {
        self.cpu.begin().spend(stage, time.as_nanos() as u32);
        self.cpu.end(now)
    }
}

impl Node for Paced {
    fn handle_frame(&mut self, now: Instant, _: PortId, frame: Frame, out: &mut Outbox<'_>) {
        if self.arrived.len() + self.landing.len() < self.slots {
            self.arrived.push_back(frame);
        } else {
            self.lost += 1;
        }
        self.go_on(now, out);
    }

    fn handle_link(&mut self, now: Instant, port: PortId, state: LinkState, out: &mut Outbox<'_>) {
        let state = self.note_link(port, state);
        self.host.engine.handle_path(now, PathId(port.0), state);
        self.go_on(now, out);
    }

    fn handle_room(&mut self, now: Instant, _: PortId, out: &mut Outbox<'_>) {
        self.no_room = false;
        self.go_on(now, out);
    }

    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox<'_>) {
        self.go_on(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if self.host.restless {
            return Some(Instant::ZERO);
        }
        let engine = self.host.engine.poll_timeout().map(|timeout| timeout.at);
        let landing = self.landing.front().map(|(at, _)| *at);
        let fetch = self.leaving.iter().find(|unit| !unit.is_fetched).map(|unit| unit.at);
        let leaving = self.leaving.front().filter(|unit| unit.is_fetched && !self.no_room);
        // Who is done with something looks for the next.
        let free =
            [self.card.free_at(), self.cpu.free_at()].map(|at| (at > self.now).then_some(at));
        [engine, landing, fetch, leaving.map(|unit| unit.at), free[0], free[1]]
            .into_iter()
            .flatten()
            .min()
    }
}
