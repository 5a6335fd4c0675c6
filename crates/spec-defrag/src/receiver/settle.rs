//! A burst: the frames behind posted descriptors, looked at together; what a receiver is told at
//! its beginning, and what it counts.

use landfall_placement::{Area, Duration, Instant, Span, assumed};
use thiserror::Error;

use super::Receiver;
use crate::buffers::{BufferId, Buffers, LARGE, LEAD};
use crate::conventional::{self, Adopted, Congestion};
use crate::format::Begin;
use crate::memory::{Body, HEAD_SLOT, Memory, Packet, Pieces, ReassemblyPath};
use crate::predict::Prediction;
use crate::speculator::{Outcome, Page};
use crate::wire::{self, Parsed};

/// A frame of a burst.
#[derive(Clone, Copy, Debug)]
pub(super) struct Landed {
    /// The descriptor that it landed behind.
    pub(super) n: usize,
    /// How many descriptors of the burst are used.
    pub(super) arrived: usize,
}

impl Receiver {
    /// Frames landed behind the first descriptors of the list: `lens` are their whole
    /// lengths, 0 for a descriptor that was passed over. Lengths beyond the list are
    /// not looked at.
    pub fn settle<M: Memory>(&mut self, now: Instant, lens: &[u32], memory: &mut M) {
        let arrived = lens.len().min(self.speculator.posted().len());
        let patience = self.patience();
        for (n, len) in lens[..arrived].iter().copied().enumerate() {
            if len == 0 {
                continue;
            }
            self.stats.frames += 1;
            let outcome = self.speculator.check(now, patience, n, memory.head(n as u16), len);
            landfall_placement::trace!(n, len, ?outcome, "landed behind a guess");
            match outcome {
                Outcome::InPlace => self.stats.in_place += 1,
                Outcome::Whole => self.joined(),
                Outcome::Begun(begin) => {
                    self.begun(now, &begin, Landed { n, arrived }, len, memory);
                }
                Outcome::Misplaced => self.misplaced(now, Landed { n, arrived }, len, memory),
            }
        }
        self.speculator.end_burst(&mut self.buffers);
        // Packets that were begun hold pages that others wait for.
        while self.speculator.unfinished() > self.most_begun {
            let oldest = self.speculator.oldest();
            let Some(page) = assumed(
                self.speculator.withdraw(|_, since| Some(since) == oldest),
                "of those that are begun one is the oldest",
            ) else {
                return;
            };
            self.stats.broken += 1;
            self.adopt(now, &page, page.page, memory);
        }
    }

    #[inline]
    fn begun<M: Memory>(
        &mut self,
        now: Instant,
        begin: &Begin,
        at: Landed,
        len: u32,
        memory: &mut M,
    ) {
        let key = begin.key();
        // Pieces of this packet came before: they and it belong together. Its first piece
        // may have come twice, where an adapter passes descriptors over.
        let is_known = !self.reassembly.is_empty() && self.reassembly.contains(&key)
            || self.gathering.find(&key).is_some()
            || self.speculator.is_begun_elsewhere(at.n, |other| other.key() == key);
        if is_known {
            self.speculator.refuse(at.n);
            self.misplaced(now, at, len, memory);
        } else {
            self.stats.in_place += 1;
        }
    }

    /// The paper's success case: the first head is adapted to the whole packet, which
    /// goes up as one page.
    fn joined(&mut self) {
        let Some(page) = assumed(self.speculator.whole(), "a packet that is whole has its page")
        else {
            return;
        };
        self.stats.in_place += 1;
        let body_len = page.shape.body_len();
        let shape = page.shape;
        let Some(head) = wire::adapt(&page.head, shape.head_len(1), body_len) else {
            // Cannot be: the head was checked when the packet began.
            self.buffers.give_back(page.page);
            return;
        };
        let body = Body::Buffer(page.page, self.buffers.span(page.page, LEAD, body_len));
        self.deliver(Packet { head, body, body_len, path: ReassemblyPath::Speculated });
    }

    /// Where the bytes of a frame behind a descriptor lie.
    pub(super) fn pieces(&self, n: usize, len: u32) -> Pieces {
        let Some(descriptor) = self.speculator.posted().get(n) else { return Pieces::default() };
        let slot = n as u64;
        let head = self.areas.heads.span(slot * u64::from(HEAD_SLOT), descriptor.head_len.into());
        let (head, rest) = (head.split_at(len).0, len.saturating_sub(head.len));
        let (place, rest) =
            (descriptor.place.split_at(rest).0, rest.saturating_sub(descriptor.place.len));
        let frame_max = self.config.frame_max;
        let spill: Span = self.areas.spill.span(slot * u64::from(frame_max), rest.min(frame_max));
        Pieces::new([head, place, spill])
    }

    /// A packet that was begun in a page goes on in the conventional path. If frames
    /// that were not looked at yet lie in the page, what is in place moves to another.
    pub(super) fn hand_over<M: Memory>(
        &mut self,
        now: Instant,
        page: &Page<Begin>,
        is_occupied: bool,
        memory: &mut M,
    ) {
        self.stats.broken += 1;
        if !is_occupied {
            return self.adopt(now, page, page.page, memory);
        }
        let Some(other) = self.buffers.take(page.shape.body_len()) else {
            // Cannot be: two pages are free for each descriptor.
            return self.refuse(landfall_placement::Refusal::NoRoom);
        };
        let filled = page.shape.at(page.in_place);
        self.stats.bytes_copied += u64::from(filled);
        let from = self.buffers.span(page.page, LEAD, filled);
        memory.copy(from, self.buffers.span(other, LEAD, filled));
        self.adopt(now, page, other, memory);
    }

    pub(super) fn adopt<M: Memory>(
        &mut self,
        now: Instant,
        page: &Page<Begin>,
        buffer: BufferId,
        memory: &mut M,
    ) {
        let Some(first) = first_of(page) else {
            // Cannot be: the head was checked when the packet began.
            self.buffers.give_back(buffer);
            return;
        };
        let split = page.shape.head_len(0) - page.shape.head_len(1);
        let mut congestion = Congestion::default();
        congestion.add(first.ecn);
        let adopted = Adopted {
            started: page.since,
            first: &first,
            head: &page.head,
            split,
            buffer,
            filled: u32::from(split) + page.shape.at(page.in_place),
            congestion,
        };
        match self.reassembly.adopt(now, &adopted, &mut self.buffers, memory) {
            Ok(Some(packet)) => self.deliver(packet),
            Ok(None) => {}
            Err(refusal) => self.refuse(refusal),
        }
    }
}

/// The first frame of a packet, as its head says it.
fn first_of(page: &Page<Begin>) -> Option<Parsed> {
    let len = u32::from(page.shape.head_len(0)) + u32::from(page.shape.payload_len(0));
    wire::parse(&page.head, len).ok()
}

/// What happens to frames that are no IP fragments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Foreign {
    /// They come out as they came, at the cost of a copy.
    #[default]
    Deliver,
    /// They are counted. For a receiver beside an IP stack that has them anyway.
    Ignore,
}

/// How frames that lie somewhere already are delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lend {
    /// Joined in a page.
    #[default]
    Copy,
    /// As a list of where the pieces lie, unless they contradict each other, one comes
    /// twice, or they take longer than the patience: then joined in a page.
    List,
}

/// The configuration of a receiver.
#[derive(Clone, Debug)]
pub struct Config {
    /// The length of a page: of the body of a packet that is worth to be guessed for.
    pub page_len: u32,
    /// The most descriptors that are posted at once.
    pub burst: u16,
    /// The longest frame that arrives.
    pub frame_max: u32,
    /// How it is guessed what comes next.
    pub prediction: Prediction,
    /// How long a packet that was begun in a page may take there, or one that is to be
    /// lent where it lies. After that the conventional path waits for the rest.
    pub patience: Duration,
    /// What happens to frames that are no fragments.
    pub foreign: Foreign,
    /// How frames are delivered that lie somewhere already.
    pub lend: Lend,
    /// The most lists that are lent at once.
    pub lists: u16,
    /// The bounds of the conventional path. It gets half of the pages at most.
    pub reassembly: conventional::Config,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            page_len: 4096,
            burst: 96,
            frame_max: 65_535 + 18,
            prediction: Prediction::default(),
            patience: Duration::from_millis(5),
            foreign: Foreign::default(),
            lend: Lend::default(),
            lists: 1024,
            reassembly: conventional::Config::default(),
        }
    }
}

/// The most descriptors of one list.
pub const MOST_BURST: u16 = 1024;

/// The memory of a receiver: registered by its driver, named by the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Areas {
    /// The pages: [`Buffers::bytes_needed`] for as many as there shall be.
    pub pages: Area,
    /// The large buffers, for packets and frames that are longer than a page.
    pub large: Area,
    /// The head slots: [`HEAD_SLOT`] bytes for each descriptor.
    pub heads: Area,
    /// The spill slots: `frame_max` bytes for each descriptor.
    pub spill: Area,
}

/// A configuration that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Not a page.
    #[error("page_len is {0}: use a multiple of 4096 from 4096 to {LARGE}")]
    PageLen(u32),
    /// No descriptors, or too many.
    #[error("burst is {0}: use 1 to {MOST_BURST} descriptors")]
    Burst(u16),
    /// Too few pages for the list.
    #[error("there is room for {pages} pages: make the area longer, {needed} or more are needed")]
    Pages {
        /// How many there are.
        pages: usize,
        /// Two for each descriptor, and as many for the conventional path.
        needed: usize,
    },
    /// An area is too short.
    #[error("the area of {what} has {len} bytes: {needed} are needed")]
    Area {
        /// Which one.
        what: &'static str,
        /// Its length.
        len: u64,
        /// The length that is needed.
        needed: u64,
    },
}

impl Config {
    pub(super) fn check(&self, areas: &Areas, buffers: &Buffers) -> Result<(), ConfigError> {
        if !(4096..=LARGE).contains(&self.page_len) || !self.page_len.is_multiple_of(4096) {
            return Err(ConfigError::PageLen(self.page_len));
        }
        if !(1..=MOST_BURST).contains(&self.burst) {
            return Err(ConfigError::Burst(self.burst));
        }
        let (pages, needed) = (buffers.free_pages(), (4 * usize::from(self.burst)).max(8));
        if pages < needed {
            return Err(ConfigError::Pages { pages, needed });
        }
        let slots = u64::from(self.burst);
        for (what, area, each) in
            [("heads", areas.heads, HEAD_SLOT), ("spill", areas.spill, self.frame_max)]
        {
            let needed = slots * u64::from(each);
            if area.len < needed {
                return Err(ConfigError::Area { what, len: area.len, needed });
            }
        }
        Ok(())
    }
}

/// Frames and packets since the beginning. Refused frames are counted by reason, in
/// `Receiver::refusals`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Frames that arrived.
    pub frames: u64,
    /// Frames whose payload had landed where it belongs.
    pub in_place: u64,
    /// Frames for which a place was guessed, and which were not what belongs there.
    pub misplaced: u64,
    /// Packets that were guessed right: every fragment had landed where it belongs, in
    /// a page, without a copy. Those that are lent are not among them: of those nothing
    /// was guessed.
    pub speculated: u64,
    /// Packets that were begun in a page, and given to the conventional path.
    pub broken: u64,
    /// Packets that the conventional path joined, by copies.
    pub conventional: u64,
    /// Of those, the ones that were copied since no more was to be lent: see
    /// [`Bunch::lend`](crate::Bunch::lend).
    pub at_bound: u64,
    /// Packets that were lent as a list of where their fragments lie, without a copy.
    pub lent: u64,
    /// Packets that waited where they lay, and went the conventional way.
    pub lists_given_up: u64,
    /// Frames that came out as they came.
    pub whole: u64,
    /// Frames that were no fragments and not delivered, as configured.
    pub ignored: u64,
    /// Bytes of payload that were copied.
    pub bytes_copied: u64,
}

impl core::ops::AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        let Self {
            frames,
            in_place,
            misplaced,
            speculated,
            broken,
            conventional,
            at_bound,
            lent,
            lists_given_up,
            whole,
            ignored,
            bytes_copied,
        } = other;
        self.frames += frames;
        self.in_place += in_place;
        self.misplaced += misplaced;
        self.speculated += speculated;
        self.broken += broken;
        self.conventional += conventional;
        self.at_bound += at_bound;
        self.lent += lent;
        self.lists_given_up += lists_given_up;
        self.whole += whole;
        self.ignored += ignored;
        self.bytes_copied += bytes_copied;
    }
}
