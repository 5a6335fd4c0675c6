//! Traffic like that of a solver on distributed shared memory (over UDP): each
//! host fetches the pages that it works on when it touches them, one after the
//! other; neighbours exchange the edges of their bands between barriers; at the end
//! of a section the master fetches the results, one page after the other.

use std::time::Duration;

use anyhow::Result;

use super::station::{Program, Turn};
use super::wire::{Host, Message, PAGE};
use super::{Arrival, Network, run, up_to};

/// How many parallel sections there are, and what one of them takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    pub(crate) sections: u32,
    /// Pages that each host fetches: what it changes, and what it only reads.
    pub(crate) fetched: u32,
    /// Pages that each host has changed, and the master fetches.
    pub(crate) changed: u32,
    /// Barriers: two for each iteration, one for the red and one for the black
    /// points.
    pub(crate) barriers: u32,
    pub(crate) network: Network,
}

impl Workload {
    /// As large as the run of the paper.
    pub(crate) const TABLE_2: Self =
        Self { sections: 14, fetched: 727, changed: 524, barriers: 50, network: Network::CLUSTER };
}

/// Begin a section.
const START: u8 = 1;
/// A page is wanted.
const GET: u8 = 2;
/// The page.
const ANSWER: u8 = 3;
/// What has happened to the page, behind it.
const NOTICES: u8 = 4;
/// The changes of an edge are wanted.
const EDGE: u8 = 5;
/// The changes.
const CHANGES: u8 = 6;
/// A barrier is reached.
const ARRIVE: u8 = 7;
/// All have reached it.
const RELEASE: u8 = 8;
/// The section is over.
const JOIN: u8 = 9;
/// An alarm: the work before a barrier is done.
const WORKED: u8 = 10;
/// An alarm: the next page is touched.
const TOUCH: u8 = 11;

const MASTER: Host = 0;
/// A request, or what is said at a barrier.
const SHORT: u32 = 40;
/// The changed words of an edge.
const CHANGED_WORDS: u32 = 300;
/// From one page that is not there to the next one.
const BETWEEN_FAULTS: Duration = Duration::from_micros(200);
/// The work before a barrier takes up to this.
const WORK: Duration = Duration::from_micros(3_000);

/// The master distributes, and collects; gives what arrived at each of the three.
pub(crate) fn arrivals(seed: u64, workload: &Workload) -> Result<[Vec<Arrival>; 3]> {
    let programs: [Box<dyn Program>; 3] = [
        Box::new(Master::new(*workload)),
        Box::new(Worker { workload: *workload, band: Band::new(&[0, 2]), pages: 0 }),
        Box::new(Worker { workload: *workload, band: Band::new(&[1]), pages: 0 }),
    ];
    run(seed, workload.network, programs)
}

fn say(turn: &mut Turn<'_>, to: Host, verb: u8) {
    turn.send(to, SHORT, Message { verb, number: 0 });
}

/// The band of the grid that a station works on.
struct Band {
    neighbours: &'static [Host],
    /// Edges that came since the last barrier.
    edges: usize,
    /// Barriers reached in this section.
    barriers: u32,
}

impl Band {
    const fn new(neighbours: &'static [Host]) -> Self {
        Self { neighbours, edges: 0, barriers: 0 }
    }

    /// Fetches the edge of the next neighbour; after the last one the work begins.
    fn go_on(&self, turn: &mut Turn<'_>) {
        match self.neighbours.get(self.edges) {
            Some(neighbour) => say(turn, *neighbour, EDGE),
            None => {
                let work = up_to(WORK, turn.random());
                turn.later(work, Message { verb: WORKED, number: 0 });
            }
        }
    }

    fn handle_changes(&mut self, turn: &mut Turn<'_>) {
        self.edges += 1;
        self.go_on(turn);
    }

    fn handle_worked(&mut self) {
        self.edges = 0;
        self.barriers += 1;
    }
}

/// What every station does for the others. False if it is something else.
fn serve(from: Host, message: Message, turn: &mut Turn<'_>) -> bool {
    match message.verb {
        EDGE => turn.send(from, CHANGED_WORDS, Message { verb: CHANGES, number: 0 }),
        GET => turn.send(from, PAGE, Message { verb: ANSWER, number: 0 }),
        _ => return false,
    }
    true
}

/// A host.
struct Worker {
    workload: Workload,
    band: Band,
    /// Pages fetched in this section.
    pages: u32,
}

impl Worker {
    fn touch(&self, turn: &mut Turn<'_>) {
        if self.pages < self.workload.fetched {
            say(turn, MASTER, GET);
        } else {
            self.band.go_on(turn);
        }
    }
}

impl Program for Worker {
    fn start(&mut self, _: &mut Turn<'_>) {}

    fn hear(&mut self, from: Host, message: Message, turn: &mut Turn<'_>) {
        if serve(from, message, turn) {
            return;
        }
        match message.verb {
            START => {
                (self.pages, self.band.barriers) = (0, 0);
                self.touch(turn);
            }
            NOTICES => {
                self.pages += 1;
                let time = up_to(BETWEEN_FAULTS, turn.random());
                turn.later(time, Message { verb: TOUCH, number: 0 });
            }
            CHANGES => self.band.handle_changes(turn),
            RELEASE => self.band.go_on(turn),
            _ => {}
        }
    }

    fn wake(&mut self, alarm: Message, turn: &mut Turn<'_>) {
        match alarm.verb {
            TOUCH => self.touch(turn),
            _ => {
                self.band.handle_worked();
                let is_over = self.band.barriers == self.workload.barriers;
                say(turn, MASTER, if is_over { JOIN } else { ARRIVE });
            }
        }
    }
}

/// The master: it has all pages, works on a band itself, and keeps the barriers.
struct Master {
    workload: Workload,
    band: Band,
    sections: u32,
    /// Stations that have reached the barrier.
    arrived: u32,
    /// Hosts that have reached the end of the section.
    joined: [bool; 2],
    /// It has reached the end itself.
    collects: bool,
    /// Pages fetched from both hosts.
    pages: u32,
}

impl Master {
    const fn new(workload: Workload) -> Self {
        Self {
            workload,
            band: Band::new(&[1]),
            sections: 0,
            arrived: 0,
            joined: [false; 2],
            collects: false,
            pages: 0,
        }
    }

    fn begin(&mut self, turn: &mut Turn<'_>) {
        if self.sections == self.workload.sections {
            return;
        }
        self.sections += 1;
        (self.pages, self.band.barriers) = (0, 0);
        (self.joined, self.collects) = ([false; 2], false);
        say(turn, 1, START);
        say(turn, 2, START);
        self.band.go_on(turn);
    }

    fn handle_arrived(&mut self, turn: &mut Turn<'_>) {
        self.arrived += 1;
        if self.arrived == 3 {
            self.arrived = 0;
            say(turn, 1, RELEASE);
            say(turn, 2, RELEASE);
            self.band.go_on(turn);
        }
    }

    /// Fetches the next result, once the host that has it has joined.
    fn collect(&mut self, turn: &mut Turn<'_>) {
        let from = self.pages / self.workload.changed;
        match self.joined.get(from as usize) {
            Some(true) => say(turn, from as Host + 1, GET),
            Some(false) => {}
            None => self.begin(turn),
        }
    }

    /// Whether it waits for this host before it goes on collecting.
    fn waits_for(&self, host: Host) -> bool {
        self.collects && self.pages == (u32::from(host) - 1) * self.workload.changed
    }
}

impl Program for Master {
    fn start(&mut self, turn: &mut Turn<'_>) {
        self.begin(turn);
    }

    fn hear(&mut self, from: Host, message: Message, turn: &mut Turn<'_>) {
        if serve(from, message, turn) {
            if message.verb == GET {
                turn.send(from, SHORT, Message { verb: NOTICES, number: 0 });
            }
            return;
        }
        match message.verb {
            CHANGES => self.band.handle_changes(turn),
            ARRIVE => self.handle_arrived(turn),
            JOIN => {
                self.joined[usize::from(from) - 1] = true;
                if self.waits_for(from) {
                    self.collect(turn);
                }
            }
            ANSWER => {
                self.pages += 1;
                let time = up_to(BETWEEN_FAULTS, turn.random());
                turn.later(time, Message { verb: TOUCH, number: 0 });
            }
            _ => {}
        }
    }

    fn wake(&mut self, alarm: Message, turn: &mut Turn<'_>) {
        if alarm.verb == TOUCH {
            return self.collect(turn);
        }
        self.band.handle_worked();
        if self.band.barriers == self.workload.barriers {
            self.collects = true;
            self.collect(turn);
        } else {
            self.handle_arrived(turn);
        }
    }
}
