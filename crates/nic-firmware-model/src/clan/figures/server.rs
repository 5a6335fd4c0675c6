//! The event-based server of section 5.3: a tripwire for each endpoint, one queue of events,
//! one process.

use clan_dsm::{Event, WORD};
use landfall_placement::{Area, Duration, Instant, Random};

use super::{Design, Exposed, HostProcessor, Listens, Pair};
use crate::runs;

/// A client that spins, and a server that is interrupted.
struct Served {
    pair: Pair,
    /// Where requests of each endpoint go, and where their answers do.
    requests: Vec<Exposed>,
    answers: Vec<Exposed>,
    server: HostProcessor<usize>,
    /// The server sleeps from then on, if nothing comes.
    sleeps_at: Instant,
    design: Design,
}

const CLIENT: usize = 0;
const SERVER: usize = 1;

impl Served {
    /// A connection for each of these endpoints, and room for requests of this many bytes.
    fn new(design: &Design, endpoints: usize, len: u32) -> Option<Self> {
        let mut pair = Pair::new(design, [Listens::Spinning, Listens::Interrupted])?;
        let (mut requests, mut answers) = (Vec::new(), Vec::new());
        for _ in 0..endpoints {
            requests.push(pair.expose(SERVER, len, true)?);
            answers.push(pair.expose(CLIENT, WORD, false)?);
        }
        // The link carries what the adapter must know, a thousand endpoints' too.
        pair.settle()?;
        let server = HostProcessor::default();
        let sleeps_at = Instant::ZERO;
        Some(Self { pair, requests, answers, server, sleeps_at, design: *design })
    }

    /// A request over this endpoint: a word that the client stores.
    fn ask(&mut self, endpoint: usize, number: u64) -> Option<()> {
        let to = *self.requests.get(endpoint)?;
        self.pair.store(CLIENT, &to, number)
    }

    fn answer_of(&self, endpoint: usize) -> u64 {
        self.answers.get(endpoint).map_or(0, |answer| self.pair.last_word(CLIENT, answer))
    }

    /// The next thing happens, and the server does its part.
    fn step(&mut self, until: Option<Instant>) -> Option<()> {
        let next = [until, self.server.poll_timeout()].into_iter().flatten().min();
        self.pair.step(next)?;
        let now = self.pair.world.now();

        let Design { interrupt, interrupt_busy, wake, call, patience, handling, .. } = self.design;
        if self.pair.is_interrupted(SERVER) {
            self.server.interrupt(now, interrupt, interrupt_busy);
        }
        loop {
            let event = self.pair.told[SERVER].borrow_mut().pop_front();
            let Some(event) = event else { break };
            let Event::Tripwire { tripwire } = event else { continue };
            let of = |request: &Exposed| request.tripwire == Some(tripwire);
            let Some(endpoint) = self.requests.iter().position(of) else { continue };
            // Who sleeps in a call is woken, and comes back from it.
            let is_asleep = self.server.is_idle() && now >= self.sleeps_at;
            let before = if is_asleep { wake + call } else { Duration::ZERO };
            self.server.ask(now, before + handling, endpoint);
        }
        while let Some(endpoint) = self.server.poll(now) {
            let request = *self.requests.get(endpoint)?;
            let answer = *self.answers.get(endpoint)?;
            let number = self.pair.last_word(SERVER, &request);
            self.pair.store(SERVER, &answer, number)?;
            self.sleeps_at = now + patience;
        }
        Some(())
    }

    /// Handlers of the server's interrupts, and bursts that its adapter put into memory.
    fn counts(&self) -> [u64; 2] {
        let placed = self.pair.world.node(SERVER).adapters().iter().map(|it| it.counters().placed);
        [self.server.handlers(), placed.sum()]
    }

    /// Nothing happens until then.
    fn rest(&mut self, time: Duration) -> Option<()> {
        let until = self.pair.world.now() + time;
        while self.pair.world.now() < until {
            self.step(Some(until))?;
        }
        Some(())
    }
}

/// How long a request and its answer take where this many endpoints are connected, each
/// request over one of them by chance; nothing where no answer came. The server sleeps
/// between requests, or there is always the next one.
#[must_use]
pub fn round_trip(design: &Design, endpoints: usize, sleeps: bool) -> Option<Duration> {
    runs::once("clan round_trip", &(design, endpoints, sleeps), || {
        run_round_trip(design, endpoints, sleeps)
    })
}

fn run_round_trip(design: &Design, endpoints: usize, sleeps: bool) -> Option<Duration> {
    const ROUNDS: u64 = 50;
    let mut served = Served::new(design, endpoints, WORD)?;
    let mut random = Random::from_number(endpoints as u64);
    let mut sum = Duration::ZERO;
    for round in 0..=ROUNDS {
        if sleeps {
            served.rest(design.patience * 4)?;
        }
        let endpoint = random.below(endpoints as u64) as usize;
        let began = served.pair.world.now();
        served.ask(endpoint, round + 1)?;
        while served.answer_of(endpoint) != round + 1 {
            served.step(None)?;
        }
        // The first one finds a server that sleeps in any case.
        if round > 0 {
            sum += served.pair.world.now().since(began);
        }
    }
    Some(sum / ROUNDS as u32)
}

/// What came of requests over several endpoints at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Requests {
    /// Answers in a second.
    pub rate: f64,
    /// Handlers of interrupts for each of them.
    pub interrupts: f64,
    /// Which share of the requests the server's adapter put into memory by itself.
    pub placed: f64,
}

/// A client with a request under way on each of these endpoints, which asks again as soon
/// as it sees the answer.
#[must_use]
pub fn requests(design: &Design, endpoints: usize) -> Option<Requests> {
    runs::once("clan requests", &(design, endpoints), || run_requests(design, endpoints))
}

fn run_requests(design: &Design, endpoints: usize) -> Option<Requests> {
    const ANSWERS: u64 = 1_000;
    // What comes first finds a server that sleeps.
    const WARM: u64 = ANSWERS / 10;
    let mut served = Served::new(design, endpoints, WORD)?;
    let mut asked = vec![0; endpoints];
    let (mut answers, mut began) = (0, None);
    while answers < ANSWERS + WARM {
        for (endpoint, asked) in asked.iter_mut().enumerate() {
            if served.answer_of(endpoint) == *asked {
                answers += u64::from(*asked > 0);
                *asked += 1;
                served.ask(endpoint, *asked)?;
            }
        }
        if answers >= WARM && began.is_none() {
            began = Some((answers, served.pair.world.now(), served.counts()));
        }
        served.step(None)?;
    }
    let (first, began, [handlers, placed]) = began?;
    let count = (answers - first) as f64;
    let taken = served.pair.world.now().since(began).as_secs_f64();
    let since = served.counts();
    Some(Requests {
        rate: count / taken,
        interrupts: (since[0] - handlers) as f64 / count,
        placed: (since[1] - placed) as f64 / count,
    })
}

/// Bits in a second of messages of this many bytes by DMA, each of which the server acknowledges
/// before the next one is set up.
#[must_use]
pub fn acknowledged(design: &Design, len: u32) -> Option<f64> {
    runs::once("clan acknowledged", &(design, len), || run_acknowledged(design, len))
}

fn run_acknowledged(design: &Design, len: u32) -> Option<f64> {
    const MESSAGES: u64 = 20;
    let mut served = Served::new(design, 1, len.max(WORD))?;
    let from: Area = served.pair.world.lend(CLIENT, vec![1; len as usize]);
    let mut began = served.pair.world.now();
    for message in 0..=MESSAGES {
        if message == 1 {
            began = served.pair.world.now();
        }
        // Nothing is under way, so that no interrupt ends it.
        served.rest(design.setup)?;
        let to = *served.requests.first()?;
        served.pair.send(CLIENT, from, &to, message + 1)?;
        while served.answer_of(0) != message + 1 {
            served.step(None)?;
        }
    }
    let taken = served.pair.world.now().since(began).as_secs_f64();
    Some(MESSAGES as f64 * f64::from(len) * 8.0 / taken)
}
