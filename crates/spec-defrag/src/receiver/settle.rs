//! A burst: the frames behind posted descriptors, looked at together.

use landfall_placement::{Instant, Span};

use super::Receiver;
use crate::buffers::{BufferId, LEAD};
use crate::format::Begin;
use crate::memory::HEAD_SLOT;
use crate::memory::{Memory, Pieces};
use crate::packet::{Body, Packet, Way};
use crate::reassembly::{Adopted, Congestion};
use crate::speculator::{Outcome, Page};
use crate::wire::{self, Parsed};

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
            match outcome {
                Outcome::InPlace => self.stats.in_place += 1,
                Outcome::Whole => self.joined(),
                Outcome::Begun(begin) => self.begun(now, &begin, (n, arrived), len, memory),
                Outcome::Astray => self.astray(now, (n, arrived), len, memory),
            }
        }
        self.speculator.end_burst(&mut self.buffers);
        // Packets that were begun hold pages that others wait for.
        while self.speculator.unfinished() > self.most_begun {
            let oldest = self.speculator.oldest();
            let Some(page) = self.speculator.withdraw(|_, since| Some(since) == oldest) else {
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
        at: (usize, usize),
        len: u32,
        memory: &mut M,
    ) {
        let key = begin.key();
        // Pieces of this packet came before: they and it belong together. Its first piece
        // may have come twice, where an adapter passes descriptors over.
        let is_known = !self.reassembly.is_empty() && self.reassembly.contains(&key)
            || self.speculator.is_begun_elsewhere(at.0, |other| other.key() == key);
        if is_known {
            self.speculator.refuse(at.0);
            self.astray(now, at, len, memory);
        } else {
            self.stats.in_place += 1;
        }
    }

    /// The paper's success case: the first head is adapted to the whole packet, which
    /// goes up as one page.
    fn joined(&mut self) {
        let Some(page) = self.speculator.whole() else { return };
        self.stats.in_place += 1;
        let body_len = page.shape.body_len();
        let shape = page.shape;
        let Some(head) = wire::adapt(&page.head, shape.head_len(1), body_len) else {
            // Cannot be: the head was checked when the packet began.
            self.buffers.give_back(page.page);
            return;
        };
        let body = Body::Buffer(page.page, self.buffers.span(page.page, LEAD, body_len));
        self.deliver(Packet { head, body, body_len, way: Way::Speculated });
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
