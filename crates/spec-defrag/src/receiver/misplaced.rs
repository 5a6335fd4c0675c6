//! The clean-up: a frame that is not where it belongs is read from where it lies.
//!
//! Packets whose pieces lie one after another in a ring: lent as a list, without a
//! copy, or moved to a page when something came in between.
//!
//! Frames that lie somewhere already: in a ring that is shared with the kernel, in
//! the memory of a device.

use alloc::vec::Vec;

use landfall_placement::{Instant, Refusal, Span, Spans, assumed};

use super::settle::Landed;
use super::{Foreign, Lend, Receiver};
use crate::buffers::LEAD;
use crate::conventional::Arrived;
use crate::format::Begin;
use crate::memory::{Body, Head, ListId, MappedFrame, Memory, Packet, Pieces, ReassemblyPath};
use crate::predict::Observed;
use crate::speculator::Page;
use crate::wire::{self, Key, Parsed, Stop};

/// As much of a frame as anybody asks for to know its headers.
const MOST_HEAD: usize = 256;

/// The first bytes of a frame, in one piece.
pub(super) struct First {
    bytes: [u8; MOST_HEAD],
    len: usize,
}

impl First {
    /// What was shown of the frame.
    pub(super) fn new(shown: &[u8]) -> Self {
        let mut first = Self { bytes: [0; MOST_HEAD], len: shown.len().min(MOST_HEAD) };
        first.bytes[..first.len].copy_from_slice(&shown[..first.len]);
        first
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Sees to it that this many bytes are shown, if the frame has them.
    pub(super) fn reach<M: Memory>(&mut self, wanted: usize, frame: &Pieces, memory: &M) {
        let wanted = wanted.min(MOST_HEAD);
        if wanted > self.len {
            let rest = frame.part(self.len as u32, (wanted - self.len) as u32);
            self.len += rest.read(&mut self.bytes[self.len..wanted], memory);
        }
    }

    /// The headers; as many bytes as that takes are shown then.
    pub(super) fn parse<M: Memory>(
        &mut self,
        frame: &Pieces,
        len: u32,
        memory: &M,
    ) -> Result<Parsed, Stop> {
        loop {
            match wire::parse(self.as_slice(), len) {
                Err(Stop::NeedHead(wanted)) => {
                    let before = self.len;
                    self.reach(usize::from(wanted), frame, memory);
                    if self.len == before {
                        // The frame has no more: it says nothing that is known here.
                        return Err(Stop::Foreign);
                    }
                }
                done => return done,
            }
        }
    }

    /// How long the transport header of a first piece is, shown with all before it.
    pub(super) fn transport<M: Memory>(
        &mut self,
        parsed: &Parsed,
        frame: &Pieces,
        memory: &M,
    ) -> Option<u16> {
        let at = usize::from(parsed.payload_at);
        let end = at + parsed.payload_len as usize;
        // Most headers are short, the others say how long they are.
        for enough in [LEAST_TRANSPORT, MOST_TRANSPORT] {
            self.reach(end.min(at + enough), frame, memory);
            let piece = self.as_slice().get(at..end.min(self.len))?;
            if let Some(len) = wire::transport_len(parsed.protocol, piece) {
                return Some(len);
            }
        }
        None
    }
}

/// The last fragment that was not in place.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastMisplaced {
    pub(super) key: Key,
    /// How long the transport header of its packet is.
    pub(super) split: u16,
}

/// TCP without options, and with as many as there can be.
const LEAST_TRANSPORT: usize = 20;
const MOST_TRANSPORT: usize = 60;

impl Receiver {
    /// The frame behind this descriptor is not in place.
    pub(super) fn misplaced<M: Memory>(
        &mut self,
        now: Instant,
        at: Landed,
        len: u32,
        memory: &mut M,
    ) {
        let Landed { n, arrived } = at;
        let frame = self.pieces(n, len);
        let was_guessed = self.speculator.posted().get(n).is_some_and(|d| d.place.len > 0);
        self.stats.misplaced += u64::from(was_guessed);
        let shown = self.speculator.posted().get(n).map_or(0, |d| usize::from(d.head_len));
        let head = memory.head(n as u16);
        let mut first = First::new(&head[..shown.min(len as usize).min(head.len())]);
        let parsed = first.parse(&frame, len, memory);
        // What was begun where the frame landed. It is given away after the frame was
        // read, unless the frame belongs to it.
        let broken = self.speculator.broken_by(n, arrived);
        let is_part =
            |key: &wire::Key| broken.as_ref().is_some_and(|(page, _)| page.begin.key() == *key);
        match parsed {
            Ok(parsed) if parsed.fragment.is_some() => {
                let others =
                    self.speculator.broken_where(|begin| begin.key() == parsed.key, n, arrived);
                let is_part = is_part(&parsed.key);
                let mut left = [None; 2];
                let pages = others.iter().chain(broken.iter().filter(|_| is_part));
                for ((page, is_occupied), left) in pages.zip(&mut left) {
                    let is_across = self.lies_across(page, &parsed, &frame);
                    self.hand_over(now, page, *is_occupied || is_across, memory);
                    *left = Some(page.page).filter(|_| is_across && !is_occupied);
                }
                self.fragment(now, Some(n), &mut first, &parsed, &frame, memory);
                // Its packet moved out, and the frame that lay there was read.
                left.into_iter().flatten().for_each(|page| _ = self.buffers.give_back(page));
                if is_part {
                    return;
                }
            }
            other => self.not_a_fragment(Some(n), &other, &first, &frame, memory),
        }
        if let Some((page, is_occupied)) = broken {
            self.hand_over(now, &page, is_occupied, memory);
        }
    }

    /// Whether a piece lies over the place in the page where it belongs, and not
    /// exactly there: it could not be moved.
    fn lies_across(&self, page: &Page<Begin>, parsed: &Parsed, frame: &Pieces) -> bool {
        // A packet in one piece has no place in a page.
        let Some(piece) = parsed.fragment else { return false };
        let split = u32::from(page.shape.head_len(0) - page.shape.head_len(1));
        let at = (LEAD + piece.offset).saturating_sub(split);
        let target = self.buffers.span(page.page, at, parsed.payload_len);
        let payload = frame.part(parsed.payload_at.into(), parsed.payload_len);
        payload.iter().any(|span| span.overlaps(&target) && span != target)
    }

    /// A fragment goes the conventional way, from where it lies.
    pub(super) fn fragment<M: Memory>(
        &mut self,
        now: Instant,
        n: Option<usize>,
        first: &mut First,
        parsed: &Parsed,
        frame: &Pieces,
        memory: &mut M,
    ) {
        let Some(piece) = assumed(parsed.fragment, "only fragments go this way") else { return };
        self.last_head = parsed.payload_at.min(crate::Shape::MOST_HEAD);
        let flow = parsed.key.flow();
        let split = match self.last {
            _ if piece.offset == 0 => first.transport(parsed, frame, memory).unwrap_or(0),
            Some(last) if last.key == parsed.key => last.split,
            _ => {
                let shape = self.speculator.last_shape(&flow);
                shape.map_or(0, |shape| shape.head_len(0).saturating_sub(shape.head_len(1)))
            }
        };
        self.last = Some(LastMisplaced { key: parsed.key, split });
        if let Some(n) = n {
            let split = if piece.offset == 0 { split } else { 0 };
            let payload_len = parsed.payload_len.saturating_sub(split.into());
            let unit = Observed {
                position: piece.offset,
                reach: parsed.payload_len,
                is_last: !piece.more,
                head_len: parsed.payload_at + split,
                payload_len: u16::try_from(payload_len).unwrap_or(u16::MAX),
            };
            self.speculator.learn(n, &flow, &unit);
        }
        self.stats.bytes_copied += u64::from(parsed.payload_len);
        let arrived = Arrived { parsed, head: first.as_slice(), frame, split };
        match self.reassembly.insert(now, &arrived, &mut self.buffers, memory) {
            Ok(Some(packet)) => self.deliver(packet),
            Ok(None) => {}
            Err(refusal) => self.refuse(refusal),
        }
    }

    /// A frame that carries no fragment comes out as it came, unless nobody wants it.
    pub(super) fn not_a_fragment<M: Memory>(
        &mut self,
        n: Option<usize>,
        parsed: &Result<Parsed, Stop>,
        first: &First,
        frame: &Pieces,
        memory: &mut M,
    ) {
        if let Some(n) = n {
            self.speculator.learn_other(n);
        }
        if let Err(Stop::Refused(refusal)) = parsed {
            return self.refuse(*refusal);
        }
        if self.config.foreign == Foreign::Ignore {
            self.stats.ignored += 1;
            return;
        }
        let head_len = parsed.as_ref().map_or(ETHERNET, |parsed| usize::from(parsed.payload_at));
        let head = first.as_slice();
        let head = &head[..head_len.min(head.len()).min(Head::MOST)];
        let len = frame.len() as u32;
        let body_len = len - head.len() as u32;
        let Some(buffer) = self.buffers.take(body_len) else {
            return self.refuse(Refusal::NoRoom);
        };
        let span = self.buffers.span(buffer, LEAD, body_len);
        frame.part(head.len() as u32, body_len).copy_to(span, memory);
        self.stats.bytes_copied += u64::from(body_len);
        let head = Head::from_slice(head).unwrap_or_default();
        self.deliver(Packet {
            head,
            body: Body::Buffer(buffer, span),
            body_len,
            path: ReassemblyPath::Whole,
        });
    }
}

const ETHERNET: usize = 14;

/// The most packets gathered at once; more pieces than a list takes go the
/// conventional way.
pub(super) const MOST_OPEN: usize = 8;

/// A packet of which all pieces so far came in order.
#[derive(Debug)]
pub(super) struct Gathered {
    pub(super) key: Key,
    pub(super) first: Parsed,
    pub(super) head: Head,
    /// Each piece as it came, to be read again if the list is given up.
    pub(super) frames: Vec<(Parsed, Span)>,
    /// The pieces reach so far.
    pub(super) filled: u32,
}

/// Lists that were lent, by number.
#[derive(Debug)]
pub(super) struct Lists {
    lists: Vec<Slot>,
    free: Vec<u32>,
    most: usize,
}

#[derive(Debug)]
struct Slot {
    /// Odd while lent.
    generation: u32,
    spans: Spans,
}

impl Lists {
    pub(super) fn new(most: usize) -> Self {
        Self { lists: Vec::new(), free: Vec::new(), most }
    }

    /// A list with these pieces; `None` at the bound, or for too many pieces.
    pub(super) fn lend(&mut self, pieces: impl Iterator<Item = Span>) -> Option<ListId> {
        if self.free.is_empty() {
            if self.lists.len() == self.most {
                return None;
            }
            self.free.push(self.lists.len() as u32);
            self.lists.push(Slot { generation: 0, spans: Spans::new() });
        }
        let index = *self.free.last()?;
        let slot = &mut self.lists[index as usize];
        slot.spans.clear();
        for piece in pieces {
            slot.spans.push(piece).ok()?;
        }
        slot.generation = slot.generation.wrapping_add(1);
        self.free.pop();
        Some(ListId { index, generation: slot.generation })
    }

    pub(super) fn get(&self, id: ListId) -> Option<&[Span]> {
        let slot = self.lists.get(id.index as usize)?;
        (slot.generation == id.generation && id.generation & 1 == 1).then(|| slot.spans.as_slice())
    }

    pub(super) fn give_back(&mut self, id: ListId) -> bool {
        if self.get(id).is_none() {
            return false;
        }
        let slot = &mut self.lists[id.index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.index);
        true
    }
}

/// The payload of a piece, in the frame that lies at `at`.
pub(super) fn payload(parsed: &Parsed, at: Span, skip: u32) -> Span {
    let len = parsed.payload_len.saturating_sub(skip);
    let part = Pieces::one(at).part(u32::from(parsed.payload_at) + skip, len);
    part.iter().next().unwrap_or_default()
}

impl Receiver {
    /// Frames lie there. When this returns, all that was not lent has been read, and
    /// the memory of the others is the driver's again.
    ///
    /// Only between bursts, as for `handle_timeout`.
    pub fn take<M: Memory>(&mut self, now: Instant, frames: &[MappedFrame<'_>], memory: &mut M) {
        self.stats.frames += frames.len() as u64;
        for frame in frames {
            self.take_one(now, frame, memory);
        }
        while let Some(gathered) = self.gathered.pop() {
            self.evacuate(now, &gathered, memory);
        }
    }

    /// The pieces of a packet that was lent, in order: its body, behind the head.
    #[must_use]
    pub fn lent(&self, list: ListId) -> Option<&[Span]> {
        self.lists.get(list)
    }

    /// The pieces of a packet are needed no longer. False if they were given back
    /// before. That their memory may be used again is between driver and user.
    pub fn release_list(&mut self, list: ListId) -> bool {
        self.lists.give_back(list)
    }

    fn take_one<M: Memory>(&mut self, now: Instant, lying: &MappedFrame<'_>, memory: &mut M) {
        let frame = Pieces::one(lying.at);
        let mut first = First::new(lying.head);
        let parsed = match first.parse(&frame, lying.at.len, memory) {
            Ok(parsed) if parsed.fragment.is_some() => parsed,
            other => return self.not_a_fragment(None, &other, &first, &frame, memory),
        };
        // A page waits for pieces of its packet by guess alone.
        while let Some(page) = self.speculator.withdraw(|begin, _| begin.key() == parsed.key) {
            self.stats.broken += 1;
            self.adopt(now, &page, page.page, memory);
        }
        if self.config.lend == Lend::List && self.gather(now, lying, &mut first, &parsed, memory) {
            return;
        }
        if let Some(at) = self.gathered.iter().position(|other| other.key == parsed.key) {
            let gathered = self.gathered.swap_remove(at);
            self.evacuate(now, &gathered, memory);
        }
        self.fragment(now, None, &mut first, &parsed, &frame, memory);
    }

    /// Whether this piece went to a list: it is the first of its packet, or the next.
    fn gather<M: Memory>(
        &mut self,
        now: Instant,
        lying: &MappedFrame<'_>,
        first: &mut First,
        parsed: &Parsed,
        memory: &mut M,
    ) -> bool {
        // A packet in one piece needs no list.
        let Some(piece) = parsed.fragment else { return false };
        let known = self.gathered.iter().position(|other| other.key == parsed.key);
        match known {
            None if piece.offset == 0 && piece.more && self.gathered.len() < MOST_OPEN => {
                let elsewhere =
                    !self.reassembly.is_empty() && self.reassembly.contains(&parsed.key);
                let frame = Pieces::one(lying.at);
                let transport = first.transport(parsed, &frame, memory).unwrap_or(0);
                let head_len = usize::from(parsed.payload_at + transport);
                let head = first.as_slice().get(..head_len).and_then(Head::from_slice);
                // Pieces of it went another way before, or its head is too long to be kept.
                let (Some(head), false) = (head, elsewhere) else { return false };
                let mut frames = self.spare_list.take().unwrap_or_default();
                frames.clear();
                frames.push((*parsed, lying.at));
                let (key, filled) = (parsed.key, parsed.payload_len);
                self.gathered.push(Gathered { key, first: *parsed, head, frames, filled });
                true
            }
            Some(at) => {
                let gathered = &mut self.gathered[at];
                let is_next = piece.offset == gathered.filled
                    && parsed.ecn == gathered.first.ecn
                    && gathered.frames.len() < landfall_placement::Spans::CAPACITY;
                if !is_next {
                    return false;
                }
                gathered.frames.push((*parsed, lying.at));
                gathered.filled += parsed.payload_len;
                if !piece.more {
                    let gathered = self.gathered.swap_remove(at);
                    self.lend(now, gathered, memory);
                }
                true
            }
            None => false,
        }
    }

    /// All pieces of a packet lie there, in order.
    fn lend<M: Memory>(&mut self, now: Instant, gathered: Gathered, memory: &mut M) {
        let network = usize::from(gathered.first.payload_at);
        let (network, transport) = gathered.head.split_at(network.min(gathered.head.len()));
        let skip = transport.len() as u32;
        let whole = wire::whole_head(network, &gathered.first, gathered.filled, gathered.first.ecn);
        let head = whole.ok().and_then(|mut head| head.push(transport).then_some(head));
        let pieces = gathered
            .frames
            .iter()
            .enumerate()
            .map(|(n, (parsed, at))| payload(parsed, *at, if n == 0 { skip } else { 0 }));
        let list = head.and_then(|head| Some((head, self.lists.lend(pieces)?)));
        let Some((head, list)) = list else { return self.evacuate(now, &gathered, memory) };
        self.stats.lent += 1;
        self.packets.push_back(Packet {
            head,
            body: Body::Lent(list),
            body_len: gathered.filled - skip,
            path: ReassemblyPath::Speculated,
        });
        self.spare_list = Some(gathered.frames);
    }

    /// What was gathered goes the conventional way.
    fn evacuate<M: Memory>(&mut self, now: Instant, gathered: &Gathered, memory: &mut M) {
        for (parsed, at) in &gathered.frames {
            let frame = Pieces::one(*at);
            let mut first = First::new(&[]);
            first.reach(usize::from(parsed.payload_at), &frame, memory);
            self.fragment(now, None, &mut first, parsed, &frame, memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_placement::RegionId;

    #[test]
    fn invariant_7_a_stale_list_names_nothing() {
        let mut lists = Lists::new(2);
        let piece = RegionId::new(1, 1).span(0, 8);
        let first = lists.lend([piece].into_iter()).unwrap();
        assert_eq!(lists.get(first), Some([piece].as_slice()));
        assert!(lists.give_back(first) && !lists.give_back(first));
        assert_eq!(lists.get(first), None);
        let again = lists.lend([piece].into_iter()).unwrap();
        assert!(lists.lend([piece].into_iter()).is_some() && again.index == first.index);
        assert!(lists.lend([piece].into_iter()).is_none(), "at the bound");
        let many = core::iter::repeat_n(piece, Spans::CAPACITY + 1);
        assert!(lists.give_back(again) && lists.lend(many).is_none());
        assert!(lists.lend([piece].into_iter()).is_some(), "a list that failed is not lost");
    }
}
