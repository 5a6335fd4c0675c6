//! A host at a native link: memory that others write and read, and what this host
//! writes and reads elsewhere, with nothing between the packets and the wire.
//!
//! This is the adapter of the paper as its host sees it. A link loses nothing and keeps
//! its order, so nothing is acknowledged or repeated here; where a link is damaged, it
//! begins anew, and the users at both ends are told. [`Nic`](crate::Nic) is for
//! networks that lose.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `mod` | the station, and when it begins a link anew |
//! | `calls` | what the user asks for |
//! | `engine` | the contract with drivers |
//! | `arrive` | where packets belong, and what happens once they are there |
//! | `outgoing` | what waits to be sent, and in which order |
//! | `news` | what the user is told |
//! | `mirror` | what an adapter knows that takes bursts off this host |
//!
//! # Order
//!
//! Writes by the program ([`write`](Station::write)), its questions and answers go in the
//! order of the calls. The one DMA engine ([`write_from`](Station::write_from), and answers
//! to the reads of others) takes turns with them.
//!
//! # With an adapter
//!
//! Where the configuration says so, bursts that an adapter took are heard of by
//! [`handle_report`](Station::handle_report), and the adapter is told by
//! [`poll_command`](Station::poll_command) what it may take.

mod arrive;
mod calls;
mod engine;
mod mirror;
mod news;
mod outgoing;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use landfall_placement::{Duration, Instant, PathId, Random, Refusals, Seed, Serial32};

use crate::address::{HostId, WORD};
use crate::error::Ended;
use crate::ids::{ApertureId, TripwireId};
use crate::memory::Memory;
use crate::native::{NativeLink, Settings, State};
use crate::offload::{Command, Report};
use crate::transfer::reads::Reads;
use crate::tripwire::Tripwires;

use arrive::Arriving;
use mirror::Mirror;
use news::News;
use outgoing::Outgoing;

pub use news::Event;

/// The bounds and habits of a [`Station`]. Values out of range are moved to the nearest
/// one that makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The path that is its link.
    pub path: PathId,
    /// The most apertures, up to 65,535.
    pub apertures: usize,
    /// The most groups that multicasts are received for.
    pub groups: usize,
    /// The most tripwires.
    pub tripwires: usize,
    /// The most reads of this host that are under way, and of others that are served.
    pub reads: usize,
    /// The most writes by DMA that are under way.
    pub writes: usize,
    /// How many bytes of programmed writes wait to be sent, with 64 more for each packet.
    pub write_buffer: usize,
    /// The most events that wait for the user before its calls find no room.
    pub events: usize,
    /// How many words, headers included, may come before the first of them is used.
    pub room: u32,
    /// How long something may wait to be sent before the other end counts as gone.
    pub patience: Duration,
    /// The most words of a packet that the program wrote: 64 bytes in the paper.
    pub pio_burst: u32,
    /// The most words of a packet by DMA: 1,024 bytes in the paper.
    pub dma_burst: u32,
    /// An adapter takes bursts off it.
    pub adapter: bool,
}

impl Default for Config {
    fn default() -> Self {
        let Settings { room, patience, .. } = Settings::default();
        Self {
            path: PathId(0),
            apertures: 1024,
            groups: 64,
            tripwires: 4096,
            reads: 64,
            writes: 256,
            write_buffer: 192 << 10,
            events: 4096,
            room,
            patience,
            pio_burst: 64 / WORD,
            dma_burst: 1024 / WORD,
            adapter: false,
        }
    }
}

/// What a station counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Bursts that came to lie in memory of this host.
    pub bursts: u64,
    /// Of these, how many an adapter put there.
    pub offloaded: u64,
    /// Packets that were sent.
    pub packets: u64,
    /// Packets that were refused, and the sender told.
    pub complaints: u64,
    /// Answers that found no room.
    pub answers_lost: u64,
    /// How often the link began.
    pub sessions: u64,
}

/// Memory that is given back once nothing writes there any more.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    aperture: ApertureId,
    /// Up to which placement drivers may write there.
    placement: Serial32,
    /// After which fence the adapter does not.
    fence: Option<Serial32>,
}

/// One host at a native link, as a state machine without I/O.
#[derive(Debug)]
pub struct Station {
    config: Config,
    host: HostId,
    random: Random,
    /// The longest unit of the path; zero while it is down.
    unit: u32,
    session: u32,
    link: NativeLink,
    /// The user was told that the link is up.
    is_up: bool,
    memory: Memory,
    tripwires: Tripwires,
    reads: Reads,
    arriving: Arriving,
    outgoing: Outgoing,
    leaving: VecDeque<Leaving>,
    mirror: Option<Mirror>,
    news: News,
    /// Tripwires that fired just now; empty between calls.
    fired: Vec<(TripwireId, bool)>,
    refusals: Refusals,
    stats: Stats,
}

impl Station {
    /// The station of a host. The seed makes its keys: whoever knows it can touch all
    /// memory.
    #[must_use]
    pub fn new(config: Config, host: HostId, seed: Seed) -> Self {
        let mut config = config;
        config.pio_burst = config.pio_burst.clamp(1, outgoing::MOST_COPIED);
        config.dma_burst = config.dma_burst.max(1);
        config.reads = config.reads.clamp(1, usize::from(u16::MAX));
        let bounds = crate::Config {
            apertures: config.apertures,
            groups: config.groups,
            tripwires: config.tripwires,
            tripsets: 1,
            ..crate::Config::default()
        };
        let mut random = Random::new(seed);
        let memory = Memory::new(host, &bounds, &mut random);
        let tripwires = Tripwires::new(&bounds, &mut random);
        let session = random.next_u32();
        let settings = Settings { host: Some(host), room: config.room, patience: config.patience };
        Self {
            host,
            random,
            unit: 0,
            session,
            link: NativeLink::new(settings),
            is_up: false,
            memory,
            tripwires,
            reads: Reads::new(config.reads),
            arriving: Arriving::default(),
            outgoing: Outgoing::new(&config),
            leaving: VecDeque::new(),
            mirror: config.adapter.then(Mirror::default),
            news: News::new(config.events),
            fired: Vec::new(),
            refusals: Refusals::new(),
            stats: Stats::default(),
            config,
        }
    }

    /// Which host this is.
    #[must_use]
    pub const fn host(&self) -> HostId {
        self.host
    }

    /// What was counted.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Whether packets may pass, and if not, why.
    #[must_use]
    pub const fn state(&self) -> State {
        self.link.state()
    }

    /// Begins the link, if there is a path. What came before and is not in its place yet
    /// still takes room.
    fn begin(&mut self, now: Instant) {
        if self.unit == 0 {
            return;
        }
        self.session = self.session.wrapping_add(1);
        self.stats.sessions += 1;
        self.link.handle_up(now, self.session);
        self.anew();
    }

    /// The link counts from zero.
    fn anew(&mut self) {
        self.link.handle_occupied(self.arriving.cost());
        self.arriving.session = self.arriving.session.wrapping_add(1);
        if let Some(mirror) = &mut self.mirror {
            // What it gave and lost is not waited for.
            mirror.fence();
        }
    }

    /// What was under way over the link is lost.
    fn end(&mut self, why: Ended) {
        self.outgoing.clear(why, &mut self.news);
        while let Some(over) = self.reads.link_gone(0, why) {
            self.news.push(Event::Read { read: over.read, result: over.result });
        }
        if core::mem::take(&mut self.is_up) {
            self.news.push_news(Event::Down { why });
        }
    }

    /// Brings what depends on the state of the link up to date. To be called at the end of
    /// whatever may have changed it.
    fn settle(&mut self, now: Instant) {
        if self.link.take_restarted() {
            self.end(Ended::Restarted);
            self.anew();
        }
        match self.link.state() {
            State::Down(why) => {
                self.end(why);
                self.begin(now);
            }
            State::Up if !self.is_up => {
                self.is_up = true;
                let peer = self.link.peer().flatten();
                self.news.push_news(Event::Up { peer });
            }
            State::Up | State::Starting => {}
        }
        self.link.handle_waiting(now, !self.outgoing.is_empty());
        self.release();
        if let Some(mirror) = &mut self.mirror {
            mirror.line_is(self.arriving.session, self.link.window());
        }
    }

    /// Gives back memory that nothing writes to any more.
    fn release(&mut self) {
        while let Some(leaving) = self.leaving.front() {
            let is_settled = self.arriving.has_settled(leaving.placement);
            let heard = |fence| self.mirror.as_ref().is_none_or(|mirror| mirror.has_heard(fence));
            if !is_settled || !leaving.fence.is_none_or(heard) {
                return;
            }
            self.news.push(Event::Released { aperture: leaving.aperture });
            self.leaving.pop_front();
        }
    }

    // ---- The adapter ---------------------------------------------------------

    /// The next thing that the adapter must be told, before anything that is sent later.
    pub fn poll_command(&mut self) -> Option<Command> {
        self.mirror.as_mut()?.poll(&self.memory, &mut self.tripwires)
    }

    /// The adapter says something.
    pub fn handle_report(&mut self, now: Instant, report: &Report) {
        let Some(mirror) = &mut self.mirror else { return };
        match *report {
            Report::Landed(landed) => self.landed_there(&landed),
            Report::Unwatched { number } => mirror.unwatched(number),
            Report::Fence { number } => mirror.fenced(number),
        }
        self.settle(now);
    }

    /// The adapter was started anew, and knows nothing. What it had taken and not
    /// reported is lost, so the link begins anew, too.
    pub fn adapter_lost(&mut self, now: Instant) {
        let Some(mirror) = &mut self.mirror else { return };
        mirror.lost(&self.memory);
        self.link.close();
        self.settle(now);
    }
}
