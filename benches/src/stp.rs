//! The Scheduled Transfer Protocol between two endpoints, without memory,
//! sockets or copies: each side's work is a call of its own, to be timed alone.
//!
//! A round is: [`offer`](StpPair::offer), [`send`](StpPair::send),
//! [`receive`](StpPair::receive), [`answer`](StpPair::answer),
//! [`hear`](StpPair::hear).

use landfall_placement::{
    Area, Duration, Ecn, Engine, Heads, Instant, Landing, PathLimits, PathState, Peer, RegionId,
    RunRoom, Spans, Ticket, TransmitRun, UnitRun,
};
use stp_core::{Admission, Config, Connect, ConnectionId, Endpoint, Event};

use crate::{Head, PATH, deliver, place, poll};

/// STUs in a batch: as many as a call to the kernel brings.
pub const BATCH: usize = 64;
/// Bytes in an STU.
pub const STU: u64 = 1024;

const PORT: u16 = 1;
const REGION: RegionId = RegionId::new(0, 1);
/// Transfers under way cover at least this many batches.
const BATCHES_AHEAD: u64 = 4;
/// Connections that are opened at a time.
const OPENED_AT_ONCE: usize = 64;

/// Room for a head of a run, as drivers have it.
const HEAD_ROOM: usize = 128;
/// This many bytes leave with one call to the kernel.
const LONGEST_RUN: u32 = 65_472;

/// How a driver deals with units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnitHandling {
    InRuns,
    UnitByUnit,
}

/// What leaves together.
#[derive(Clone, Copy, Debug)]
enum OutgoingUnits {
    Unit(Head),
    /// Its heads begin at this byte of the room.
    Run(TransmitRun, usize),
}

/// Two endpoints with connections between them, over which Transfers go in turn.
#[derive(Debug)]
pub struct StpPair {
    sender: Endpoint,
    receiver: Endpoint,
    now: Instant,
    /// As each side names them.
    connections: Vec<(ConnectionId, ConnectionId)>,
    /// Bytes in each Transfer.
    transfer: u64,
    /// Transfers that are not acknowledged, and how many there shall be.
    under_way: u64,
    wanted: u64,
    /// The next Transfer goes over this connection.
    turn: usize,
    dealing: UnitHandling,
    batch: Vec<OutgoingUnits>,
    /// The heads of the batch's runs.
    heads: Box<[u8]>,
    answers: Vec<Head>,
    tickets: Vec<Ticket>,
    spans: Spans,
}

impl StpPair {
    /// This many connections; Transfers of `transfer` bytes go over them in turn. Units leave
    /// and come in runs, as drivers deal with them.
    #[must_use]
    pub fn new(connections: usize, transfer: u64) -> Self {
        Self::dealing(UnitHandling::InRuns, connections, transfer)
    }

    /// The same, each unit by itself: what is out of order goes this way.
    #[must_use]
    pub fn unit_by_unit(connections: usize, transfer: u64) -> Self {
        Self::dealing(UnitHandling::UnitByUnit, connections, transfer)
    }

    fn dealing(dealing: UnitHandling, connections: usize, transfer: u64) -> Self {
        let config = Config {
            max_stu: STU.ilog2() as u8,
            connections,
            half_open: OPENED_AT_ONCE.min(connections),
            ..Config::default()
        };
        let now = Instant::from_millis(1);
        let mut receiver = Endpoint::new(config.clone(), [2; 32]).unwrap();
        let mut sender = Endpoint::new(config, [1; 32]).unwrap();
        for engine in [&mut sender, &mut receiver] {
            engine.handle_path(now, PATH, PathState::Up(PathLimits::plain(1500)));
        }
        let _ = receiver.listen(PORT, Admission::Open);
        let mut line = Self {
            sender,
            receiver,
            now,
            connections: Vec::with_capacity(connections),
            transfer,
            under_way: 0,
            wanted: (BATCHES_AHEAD * BATCH as u64 * STU).div_ceil(transfer).clamp(2, 60),
            turn: 0,
            dealing,
            batch: Vec::with_capacity(4 * BATCH),
            heads: vec![0; BATCH * HEAD_ROOM].into(),
            answers: Vec::with_capacity(4 * BATCH),
            tickets: Vec::with_capacity(4 * BATCH),
            spans: Spans::new(),
        };
        while line.connections.len() < connections {
            let more = OPENED_AT_ONCE.min(connections - line.connections.len());
            line.open(more);
        }
        line
    }

    /// Opens this many connections, with nothing lost on the way.
    fn open(&mut self, more: usize) {
        let connect = |n| Connect { port: PORT, hello: n as u64, ..Connect::default() };
        let ours: Vec<_> = (0..more)
            .filter_map(|n| self.sender.connect(self.now, PATH, Peer::Node(1), connect(n)).ok())
            .collect();
        let mut theirs = vec![None; more];
        // Request, answer, proof.
        for _ in 0..3 {
            self.fill(usize::MAX);
            self.take_batch();
            while let Some(event) = self.receiver.poll_event() {
                if let Event::Accepted { connection, hello, .. } = event {
                    theirs[hello as usize] = Some(connection);
                }
            }
            self.poll_answers();
            self.hear();
        }
        // An engine whose events nobody takes hears nobody.
        while self.sender.poll_event().is_some() {}
        let pairs = ours.into_iter().zip(theirs).filter_map(|(ours, theirs)| Some((ours, theirs?)));
        let before = self.connections.len();
        self.connections.extend(pairs);
        assert_eq!(self.connections.len(), before + more, "every connection is open");
    }

    /// What the sender's user does: it offers Transfers, for which memory is posted.
    pub fn offer(&mut self) {
        while let Some(event) = self.sender.poll_event() {
            match event {
                Event::Sent { .. } => self.under_way -= 1,
                Event::Connected { .. } => {}
                other => panic!("the sender was told {other:?}"),
            }
        }
        while self.under_way < self.wanted {
            let (ours, theirs) = self.connections[self.turn];
            let area = Area::new(REGION, 0, self.transfer);
            let posted = self.receiver.post(self.now, theirs, area, false);
            let sent = self.sender.send(self.now, ours, area, 0);
            assert!(posted.is_ok() && sent.is_ok(), "{posted:?}, {sent:?}");
            self.turn = (self.turn + 1) % self.connections.len();
            self.under_way += 1;
        }
    }

    /// The sender's engine: a batch of STUs, and what else it has to say in
    /// between. Gives the number of STUs. Never inlined, so that its
    /// instructions can be counted.
    #[inline(never)]
    pub fn send(&mut self) -> usize {
        self.fill(BATCH)
    }

    #[inline]
    fn fill(&mut self, stus: usize) -> usize {
        self.batch.clear();
        let (mut sent, mut in_runs) = (0, 0);
        while sent < stus {
            if let Some((run, at)) = self.poll_run(in_runs) {
                sent += usize::from(run.units);
                in_runs += usize::from(run.units);
                self.batch.push(OutgoingUnits::Run(run, at));
                continue;
            }
            let Some(head) = poll(&mut self.sender, self.now, true, &mut self.spans) else { break };
            sent += usize::from(head.has_payload());
            self.batch.push(OutgoingUnits::Unit(head));
        }
        sent
    }

    /// The next run of the sender, which is sent at once, behind this many heads.
    #[inline]
    fn poll_run(&mut self, behind: usize) -> Option<(TransmitRun, usize)> {
        if self.dealing == UnitHandling::UnitByUnit {
            return None;
        }
        let at = behind * HEAD_ROOM;
        let mut room = RunRoom::new(&mut self.heads[at..], HEAD_ROOM, LONGEST_RUN);
        let run = self.sender.poll_transmit_run(self.now, PATH, &mut room)?;
        self.sender.handle_sent(self.now, run.ticket);
        Some((run, at))
    }

    /// What a driver does with the batch: a guess, a place for each run or unit, then all
    /// placed. Gives the number of STUs that got a place.
    #[inline(never)]
    pub fn receive(&mut self) -> usize {
        self.take_batch()
    }

    #[inline]
    fn take_batch(&mut self) -> usize {
        self.tickets.clear();
        std::hint::black_box(self.receiver.guess(PATH, 0));
        let mut placed = 0;
        for leaving in &self.batch {
            match leaving {
                OutgoingUnits::Unit(head) => {
                    let ticket = place(&mut self.receiver, self.now, head, &mut self.spans);
                    placed += usize::from(ticket.is_some());
                    self.tickets.extend(ticket);
                }
                OutgoingUnits::Run(run, at) => {
                    let heads = &self.heads[*at..];
                    placed += place_run(&mut self.receiver, self.now, run, heads, |ticket| {
                        self.tickets.push(ticket);
                    });
                }
            }
        }
        for ticket in &self.tickets {
            self.receiver.handle_placed(self.now, *ticket, Landing::Unchecked);
        }
        placed
    }

    /// The rest of the receiver's work: events, grants, acknowledgements.
    #[inline(never)]
    pub fn answer(&mut self) {
        while let Some(event) = self.receiver.poll_event() {
            let is_expected = matches!(event, Event::Received { .. });
            assert!(is_expected, "the receiver was told {event:?}");
        }
        self.poll_answers();
    }

    #[inline]
    fn poll_answers(&mut self) {
        self.answers.clear();
        while let Some(head) = poll(&mut self.receiver, self.now, false, &mut self.spans) {
            self.answers.push(head);
        }
    }

    /// The sender hears that, and time passes.
    pub fn hear(&mut self) {
        for head in &self.answers {
            deliver(&mut self.sender, self.now, head);
        }
        self.now += Duration::from_micros(10);
        for engine in [&mut self.receiver, &mut self.sender] {
            if engine.poll_timeout().is_some_and(|timeout| timeout.at <= self.now) {
                engine.handle_timeout(self.now);
            }
        }
    }

    /// Rounds until a batch is full again, so that what is measured next is the
    /// usual.
    ///
    /// # Panics
    /// No STUs come: a bench would measure nothing.
    pub fn warm_up(&mut self) {
        let rounds = 200;
        let stus: usize = (0..rounds).map(|_| self.round()).sum();
        assert!(stus > rounds * BATCH / 2, "only {stus} STUs in {rounds} rounds");
    }

    /// One round. Gives the number of STUs.
    pub fn round(&mut self) -> usize {
        self.offer();
        self.send();
        let placed = self.receive();
        self.answer();
        self.hear();
        placed
    }
}

/// Asks an engine for the places of a run, and again for those behind the ones that it
/// answered for. Gives how many got a place.
#[inline]
fn place_run(
    engine: &mut Endpoint,
    now: Instant,
    run: &TransmitRun,
    heads: &[u8],
    mut placed: impl FnMut(Ticket),
) -> usize {
    let (units, head_len) = (usize::from(run.units), usize::from(run.head_len));
    let unit_len = u32::from(run.head_len) + run.payload_len;
    let mut done = 0;
    while let Some(heads) = Heads::new(
        heads.get(done * HEAD_ROOM..).unwrap_or_default(),
        HEAD_ROOM,
        head_len,
        units - done,
    ) {
        let (from, ecn, last_len) = (Peer::Node(0), Ecn::NotCapable, run.last_len());
        let came = UnitRun { path: PATH, from, heads, unit_len, last_len, ecn };
        let Some(placement) = engine.place_run(now, &came) else { break };
        placed(placement.ticket);
        done += usize::from(placement.units);
    }
    done
}
