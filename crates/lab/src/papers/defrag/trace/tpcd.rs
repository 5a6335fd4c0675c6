//! Traffic like that of a distributed database: the master asks two hosts for rows,
//! one lookup after the other; when both are done it asks both for their results,
//! and both answer with a burst, as soon as each has them.

use std::time::Duration;

use anyhow::Result;
use landfall_placement::Random;

use super::station::{Program, Turn};
use super::wire::{Host, MSS, Message, PAGE};
use super::{Arrival, Network, run, up_to};

/// How many queries, and what one of them takes of each host.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    pub(crate) queries: u32,
    pub(crate) hosts: [Share; 2],
    pub(crate) network: Network,
}

/// What one query takes of one host, on average.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    /// Lookups of one row, by an index.
    pub(crate) lookups: u32,
    /// Fetches of several rows: less than a page.
    pub(crate) fetches: u32,
    /// Pages of results.
    pub(crate) pages: u32,
    /// From when both hosts are asked for results to when this one has them.
    pub(crate) preparation: Duration,
}

impl Workload {
    /// As large as the run of the paper. A host's small frames are its answers to
    /// lookups and the ends of longer answers; the large ones that are no pieces of
    /// pages are rows that were fetched. That one host takes
    /// longer to prepare its results decides for how long the two bursts of a query
    /// overlap: about half of the time.
    pub(crate) const TABLE_2: Self = Self {
        queries: 60,
        hosts: [
            Share { lookups: 292, fetches: 67, pages: 210, preparation: Duration::from_millis(10) },
            Share {
                lookups: 263,
                fetches: 26,
                pages: 232,
                preparation: Duration::from_micros(15_400),
            },
        ],
        network: Network::CLUSTER,
    };
}

/// One row is wanted.
const LOOKUP: u8 = 1;
/// The row.
const ROW: u8 = 2;
/// Several rows are wanted.
const FETCH: u8 = 3;
/// The rows.
const ROWS: u8 = 4;
/// The results are wanted; and an alarm of the master's: the next query begins.
const RESULTS: u8 = 5;
/// All of the results.
const ALL: u8 = 6;

const MASTER: Host = 0;
/// A question, with the text of the query.
const QUESTION: u32 = 80;
const ONE_ROW: u32 = 120;
/// Two full segments and a short one.
const SEVERAL_ROWS: u32 = 2 * MSS + 200;
/// What is written behind the pages of the results.
const SUMMARY: u32 = 60;
/// How long a host takes for a row, and for several, at most.
const FIND_ROW: Duration = Duration::from_micros(150);
const FIND_ROWS: Duration = Duration::from_micros(400);
/// How long the master takes between an answer and the next question, and between two
/// queries, at most.
const NEXT_QUESTION: Duration = Duration::from_micros(100);
const NEXT_QUERY: Duration = Duration::from_millis(20);

/// The master asks, and the hosts answer; gives what arrived at each of the three.
pub(crate) fn arrivals(seed: u64, workload: &Workload) -> Result<[Vec<Arrival>; 3]> {
    let server = |n: usize| Box::new(Server { share: workload.hosts[n] }) as Box<dyn Program>;
    let programs = [Box::new(Master::new(workload)) as _, server(0), server(1)];
    run(seed, workload.network, programs)
}

/// Where a number of the workload is a mean: a fifth more or less, by chance.
fn about(mean: u32, random: &mut Random) -> u32 {
    let fifth = mean / 5;
    mean - fifth + random.below(u64::from(2 * fifth) + 1) as u32
}

struct Master {
    workload: Workload,
    queries: u32,
    left: [OpenQuestions; 2],
    /// Hosts that have no more to be asked; then, whose results are not all there.
    outstanding: u32,
}

/// What the query under way has still to ask a host.
#[derive(Clone, Copy, Debug, Default)]
struct OpenQuestions {
    lookups: u32,
    fetches: u32,
}

impl OpenQuestions {
    fn all(self) -> u32 {
        self.lookups + self.fetches
    }
}

impl Master {
    fn new(workload: &Workload) -> Self {
        let workload = workload.clone();
        Self { workload, queries: 0, left: [OpenQuestions::default(); 2], outstanding: 0 }
    }

    fn query(&mut self, turn: &mut Turn<'_>) {
        if self.queries == self.workload.queries {
            return;
        }
        self.queries += 1;
        for (share, left) in self.workload.hosts.iter().zip(&mut self.left) {
            left.lookups = about(share.lookups, turn.random());
            left.fetches = about(share.fetches, turn.random());
        }
        self.ask(1, turn);
        self.ask(2, turn);
    }

    /// The next question to a host; when there is none for either, the results.
    fn ask(&mut self, host: Host, turn: &mut Turn<'_>) {
        let left = &mut self.left[usize::from(host) - 1];
        let verb = match turn.random().below(left.all().into()) {
            _ if left.all() == 0 => return self.results(turn),
            n if n < u64::from(left.lookups) => LOOKUP,
            _ => FETCH,
        };
        let kind = if verb == LOOKUP { &mut left.lookups } else { &mut left.fetches };
        *kind -= 1;
        turn.write(host, QUESTION, Message { verb, number: self.queries });
    }

    fn results(&mut self, turn: &mut Turn<'_>) {
        self.outstanding += 1;
        if self.outstanding == 2 {
            for host in [1, 2] {
                turn.write(host, QUESTION, Message { verb: RESULTS, number: self.queries });
            }
        }
    }
}

impl Program for Master {
    fn start(&mut self, turn: &mut Turn<'_>) {
        self.query(turn);
    }

    fn hear(&mut self, from: Host, message: Message, turn: &mut Turn<'_>) {
        match message.verb {
            ROW | ROWS => {
                let think = up_to(NEXT_QUESTION, turn.random());
                turn.later(think, Message { verb: LOOKUP, number: from.into() });
            }
            ALL => {
                self.outstanding -= 1;
                if self.outstanding == 0 {
                    let think = up_to(NEXT_QUERY, turn.random());
                    turn.later(think, Message { verb: RESULTS, number: 0 });
                }
            }
            _ => {}
        }
    }

    fn wake(&mut self, alarm: Message, turn: &mut Turn<'_>) {
        match alarm.verb {
            LOOKUP => self.ask(alarm.number as Host, turn),
            _ => self.query(turn),
        }
    }
}

/// A host: it answers what the master asks.
struct Server {
    share: Share,
}

impl Program for Server {
    fn start(&mut self, _: &mut Turn<'_>) {}

    fn hear(&mut self, _: Host, message: Message, turn: &mut Turn<'_>) {
        let time = match message.verb {
            LOOKUP => up_to(FIND_ROW, turn.random()),
            FETCH => up_to(FIND_ROWS, turn.random()),
            _ => {
                let micros = about(self.share.preparation.as_micros() as u32, turn.random());
                Duration::from_micros(micros.into())
            }
        };
        turn.later(time, message);
    }

    fn wake(&mut self, alarm: Message, turn: &mut Turn<'_>) {
        let number = alarm.number;
        match alarm.verb {
            LOOKUP => turn.write(MASTER, ONE_ROW, Message { verb: ROW, number }),
            FETCH => turn.write(MASTER, SEVERAL_ROWS, Message { verb: ROWS, number }),
            _ => {
                let pages = about(self.share.pages, turn.random());
                turn.write(MASTER, pages * PAGE + SUMMARY, Message { verb: ALL, number });
            }
        }
    }
}
