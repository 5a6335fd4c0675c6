//! The node that runs an engine keeps the contract of a driver, and notices
//! an engine that does not keep its own.

mod receiving;
mod sending;

use std::collections::VecDeque;

use landfall_placement::{
    Ecn, Engine, Guess, Instant, Landing, PathId, PathState, Peer, Placement, Refusal, Refusals,
    Span, Spans, Ticket, Timeout, Transmit, Unit,
};
use landfall_simnet::{EngineConfig, EngineNode, Handle, LinkConfig, LinkId, Sim};

use crate::common::Inbox;

type Host = EngineNode<ScriptedEngine>;

/// A puppet, with 1,000 bytes of memory in its first region, and an inbox.
fn stage(
    puppet: ScriptedEngine,
    how: EngineConfig,
    link: LinkConfig,
) -> (Sim, Handle<Host>, Handle<Inbox>, LinkId) {
    let mut sim = Sim::from_number(1);
    let mut host = EngineNode::with_config(puppet, how);
    host.memory_mut().lend((0..1_000).map(|n| n as u8).collect()).unwrap();
    let host = sim.add("puppet", host).unwrap();
    let inbox = sim.add("inbox", Inbox::default()).unwrap();
    let link = sim.connect(host, inbox, link).unwrap();
    (sim, host, inbox, link)
}

// An engine that does what a test tells it, and notes what it is told.

/// What the puppet says where a unit belongs.
pub(crate) type Answer = (Result<Placement, Refusal>, Vec<Span>);

#[derive(Debug, Default)]
struct ScriptedEngine {
    /// The run that it guesses first.
    pub(crate) guess: Option<Guess>,
    /// Its answers to [`Engine::place`], one after another; then `Consumed`.
    pub(crate) answers: VecDeque<Answer>,
    /// What it has to send.
    pub(crate) transmits: VecDeque<(Vec<u8>, Vec<Span>, Transmit)>,
    /// Repeat the last of them for ever.
    pub(crate) endless: bool,
    /// What it has to say.
    pub(crate) events: VecDeque<u32>,
    /// The length of each head it was shown, and whether congestion was signalled.
    pub(crate) heads: Vec<(usize, Ecn)>,
    /// The tickets that it gave out for placements.
    pub(crate) given: Vec<Ticket>,
    pub(crate) landings: Vec<(Ticket, Landing)>,
    pub(crate) sent: Vec<(Instant, Ticket)>,
    pub(crate) paths: Vec<(PathId, PathState)>,
    pub(crate) refusals: Refusals,
}

impl ScriptedEngine {
    /// Has this unit to send: a head, and a payload from spans.
    pub(crate) fn with_transmit(
        mut self,
        head: &[u8],
        spans: &[Span],
        change: impl FnOnce(&mut Transmit),
    ) -> Self {
        let mut transmit = Transmit {
            to: Peer::Unaddressed,
            head_len: head.len() as u16,
            segment: None,
            checksum: None,
            sum_only: 0,
            ecn: Ecn::NotCapable,
            ticket: Ticket::new(self.transmits.len() as u32, 0),
        };
        change(&mut transmit);
        self.transmits.push_back((head.to_vec(), spans.to_vec(), transmit));
        self
    }
}

impl Engine for ScriptedEngine {
    type Event = u32;

    fn handle_path(&mut self, _: Instant, path: PathId, state: PathState) {
        self.paths.push((path, state));
    }

    fn guess(&self, _: PathId, nth: usize) -> Option<Guess> {
        self.guess.filter(|_| nth == 0)
    }

    fn place(
        &mut self,
        _: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        assert!(into.is_empty() && unit.head.len() <= unit.len as usize);
        self.heads.push((unit.head.len(), unit.ecn));
        let (answer, spans) = self.answers.pop_front().unwrap_or((Ok(Placement::Consumed), vec![]));
        for span in spans {
            into.push(span).unwrap();
        }
        if let Ok(Placement::Into { ticket, .. } | Placement::Word(_, ticket)) = answer {
            self.given.push(ticket);
        }
        answer
    }

    fn handle_placed(&mut self, _: Instant, ticket: Ticket, landing: Landing) {
        self.landings.push((ticket, landing));
    }

    fn poll_transmit(
        &mut self,
        _: Instant,
        _: PathId,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        assert!(from.is_empty());
        let (bytes, spans, transmit) = match self.transmits.front() {
            Some(last) if self.endless && self.transmits.len() == 1 => last.clone(),
            _ => self.transmits.pop_front()?,
        };
        let len = bytes.len().min(head.len());
        head[..len].copy_from_slice(&bytes[..len]);
        for span in spans {
            from.push(span).unwrap();
        }
        Some(transmit)
    }

    fn handle_sent(&mut self, now: Instant, ticket: Ticket) {
        self.sent.push((now, ticket));
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn poll_timeout(&self) -> Option<Timeout> {
        None
    }

    fn poll_event(&mut self) -> Option<u32> {
        self.events.pop_front()
    }

    fn refusals(&self) -> &Refusals {
        &self.refusals
    }
}
