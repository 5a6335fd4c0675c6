//! The receiver: posts places by guess, checks what landed, cleans up, delivers.
//!
//! It joins two parts that know nothing of each other: the speculator with its
//! pages, and the conventional path. A frame is either in place, and then nothing
//! but its header was looked at, or it goes to the conventional path from where it
//! lies. A packet that was begun in a page and cannot go on there is given to the
//! conventional path with its page, so that only what is displaced is moved.
//!
//! | file | what it does |
//! | --- | --- |
//! | `settle` | frames behind posted descriptors; what it is told, what it counts |
//! | `misplaced` | a frame that is not in place |
//! | `lists` | frames that lie somewhere already, and packets that are lent as they lie |

use alloc::collections::VecDeque;

use landfall_placement::{Duration, Instant, Random, Refusal, Refusals, Seed, Timeout};
use landfall_tables::HashSecret;

use crate::buffers::{BufferId, Buffers};
use crate::conventional::{self, Expired, Reassembly};
use crate::format::{Begin, Ip};
use crate::memory::{Descriptor, Memory, Packet, ReassemblyPath};
use crate::offload::{Guess, Open};
use crate::speculator::Speculator;

mod lists;
mod misplaced;
mod settle;

use lists::{Gathering, Lists};
use misplaced::LastMisplaced;

pub use settle::{Areas, Config, ConfigError, Foreign, Lend, MOST_BURST, Stats};

/// Joins fragments of IP packets, in place where it can.
///
/// The order of calls: [`post`](Self::post), receive behind the descriptors,
/// [`settle`](Self::settle); then drain [`poll_packet`](Self::poll_packet), and
/// [`release`](Self::release) what is needed no longer.
#[derive(Debug)]
pub struct Receiver {
    config: Config,
    areas: Areas,
    buffers: Buffers,
    speculator: Speculator<Ip>,
    reassembly: Reassembly,
    /// The most packets that are not whole and hold pages of the speculator.
    most_begun: usize,
    packets: VecDeque<Packet>,
    /// Packets that are not complete, and wait where their pieces lie.
    gathering: Gathering,
    lists: Lists,
    stats: Stats,
    refusals: Refusals,
    /// The IP headers of the last fragment misplaced ended here: so much is kept apart
    /// where nothing is guessed.
    last_head: u16,
    last: Option<LastMisplaced>,
}

impl Receiver {
    /// Nothing learned, nothing gathered.
    ///
    /// # Errors
    /// [`ConfigError`] says which bound or area does not fit.
    pub fn new(config: Config, areas: Areas, seed: Seed) -> Result<Self, ConfigError> {
        let buffers = Buffers::new(areas.pages, config.page_len.max(1), areas.large);
        config.check(&areas, &buffers)?;
        let mut config = config;
        // Anyone who sends pieces that never become whole gets half of the pages at most,
        // and anyone who begins packets an eighth: so the list is never empty for long
        // because of them.
        let pages = buffers.free_pages();
        config.reassembly.pages = config.reassembly.pages.min(pages as u32 / 2);
        let mut random = Random::new(seed);
        let mut secret = || HashSecret::new(random.next_u64(), random.next_u64());
        Ok(Self {
            speculator: Speculator::new(Ip, config.prediction, config.burst, secret()),
            reassembly: Reassembly::new(config.reassembly, secret()),
            most_begun: pages / 8,
            packets: VecDeque::with_capacity(usize::from(config.burst)),
            gathering: Gathering::default(),
            lists: Lists::new(config.lists.into()),
            config,
            areas,
            buffers,
            stats: Stats::default(),
            refusals: Refusals::new(),
            last_head: FIRST_HEAD,
            last: None,
        })
    }

    /// The list for the next burst: frame `n` goes behind descriptor `n`.
    ///
    /// Without a [`settle`](Self::settle) in between it is the same list again. It is
    /// shorter when pages are few, and empty when there are none: then release some.
    pub fn post(&mut self) -> &[Descriptor] {
        self.speculator.post(self.last_head, &mut self.buffers)
    }

    /// What is expected behind each descriptor of the list that was posted: for an
    /// adapter that runs [`offload::check`](crate::offload::check) itself, and picks the
    /// descriptor by it.
    pub fn guesses(&self) -> impl ExactSizeIterator<Item = Guess> + '_ {
        self.speculator.guesses()
    }

    /// The pages that these guesses mean.
    #[must_use]
    pub fn opens(&self) -> &[Open<Begin>] {
        self.speculator.opens()
    }

    /// A packet that is whole, in the order in which they became so.
    pub fn poll_packet(&mut self) -> Option<Packet> {
        self.packets.pop_front()
    }

    /// A packet that did not become whole in time, of which the first fragment came:
    /// its sender is to be told (ICMP time exceeded).
    pub fn poll_expired(&mut self) -> Option<Expired> {
        self.reassembly.poll_expired()
    }

    /// The body of a packet is needed no longer. False if it was released before.
    pub fn release(&mut self, buffer: BufferId) -> bool {
        self.buffers.give_back(buffer)
    }

    /// Whether the name of a buffer is still good.
    #[must_use]
    pub fn holds(&self, buffer: BufferId) -> bool {
        self.buffers.is_taken(buffer)
    }

    /// Packets that took too long go to the conventional path, and there they expire.
    /// Only between bursts: after a `settle`, before the next `post`.
    pub fn handle_timeout<M: Memory>(&mut self, now: Instant, memory: &mut M) {
        let patience = self.patience();
        while let Some(page) = self.speculator.overdue(now, patience) {
            self.stats.broken += 1;
            self.adopt(now, &page, page.page, memory);
        }
        self.give_up_overdue(now, memory);
        self.reassembly.handle_timeout(now, &mut self.buffers, memory);
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) next, at the latest.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timeout> {
        let burst = self.speculator.oldest().map(|since| Timeout {
            at: since + self.patience(),
            timer: "a packet begun in a page",
        });
        let list = self.gathering.waits_since().map(|since| Timeout {
            at: since + self.patience(),
            timer: "a packet that waits where it lies",
        });
        let gathering = self
            .reassembly
            .poll_timeout()
            .map(|at| Timeout { at, timer: "fragments of a packet that is not whole" });
        [burst, list, gathering].into_iter().flatten().min_by_key(|timeout| timeout.at)
    }

    /// What was counted.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// What was refused, by reason.
    #[must_use]
    pub const fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// What the conventional path counted.
    #[must_use]
    pub const fn gathering(&self) -> &conventional::Counters {
        self.reassembly.counters()
    }

    /// How many large buffers are free.
    #[must_use]
    pub const fn free_large(&self) -> usize {
        self.buffers.free_large()
    }

    /// How many pages are free.
    #[must_use]
    pub const fn free_pages(&self) -> usize {
        self.buffers.free_pages()
    }

    /// A page waits not longer than a packet lives.
    fn patience(&self) -> Duration {
        self.config.patience.min(self.config.reassembly.lifetime)
    }

    fn deliver(&mut self, packet: Packet) {
        match packet.path {
            ReassemblyPath::Speculated => self.stats.speculated += 1,
            ReassemblyPath::Lent => self.stats.lent += 1,
            ReassemblyPath::Conventional => self.stats.conventional += 1,
            ReassemblyPath::Whole => self.stats.whole += 1,
        }
        self.packets.push_back(packet);
    }

    fn refuse(&mut self, refusal: Refusal) {
        self.refusals.count(refusal);
    }
}

/// Where the headers of a plain IPv4 fragment end.
const FIRST_HEAD: u16 = 34;
